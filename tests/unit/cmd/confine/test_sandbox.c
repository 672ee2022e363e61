/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine and the gateway can't do once they are confined: each attempt in a process of its own, which confines
 * itself as they do. Where a kernel has no Landlock, or no filters, the part says so and is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/state/privileges.h"
#include "cmd/confine/sandbox.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* their leak checker traces: that is allowed then */
#else
enum { SANITIZED = 0 };
#endif

enum { LEFT_OUT = 200, NOT_CONFINED = 201, KILLED = 1000, RUNNER = 54322 };

static char dir[64];

static int setup(void **unused)
{
	(void)unused;
	snprintf(dir, sizeof dir, "/tmp/sluice-box-XXXXXX");
	return mkdtemp(dir) == NULL;
}

static int teardown(void **unused)
{
	char path[96];
	(void)unused;
	snprintf(path, sizeof path, "%s/made", dir);
	unlink(path);
	return rmdir(dir);
}

/* What try() returns in a process whose calls are limited; KILLED + signal when that ended it. */
static int limited(enum sandbox_kind kind, int (*try)(void))
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int rc = sandbox_calls(kind);
		_exit(rc < 0 ? NOT_CONFINED : rc == 0 ? LEFT_OUT : try());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	int rc = WIFEXITED(status) ? WEXITSTATUS(status) : KILLED + WTERMSIG(status);
	if (rc == LEFT_OUT)
		skip();
	return rc;
}

static void ends_it(int (*try)(void))
{
	assert_int_equal(limited(SANDBOX_GATEWAY, try), KILLED + SIGSYS);
	assert_int_equal(limited(SANDBOX_ENGINE, try), KILLED + SIGSYS);
	assert_int_equal(limited(SANDBOX_DRIVER, try), KILLED + SIGSYS);
	assert_int_equal(limited(SANDBOX_REMOTE, try), KILLED + SIGSYS);
	assert_int_equal(limited(SANDBOX_DOWNLOAD, try), KILLED + SIGSYS);
}

static void gives(enum sandbox_kind kind, int (*try)(void), int want) { assert_int_equal(limited(kind, try), want); }

/* ---- attempts: 0, or errno ---- */

static int try_exec(void) { return execl("/bin/true", "true", NULL) == 0 ? 0 : errno; }
static int try_exec_by_descriptor(void)
{
	return syscall(SYS_execveat, open("/bin/true", O_PATH), "", NULL, NULL, 0x1000) == 0 ? 0 : errno;
}
static int try_trace(void) { return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0 ? 0 : errno; }
static int try_memory_of_another(void)
{
	char c = 0;
	struct iovec here = {&c, 1}, there = {&c, 1};
	return syscall(SYS_process_vm_readv, getppid(), &here, 1, &there, 1, 0) >= 0 ? 0 : errno;
}
static int try_mount(void) { return mount("none", dir, "tmpfs", 0, NULL) == 0 ? 0 : errno; }
static int try_namespace(void) { return unshare(CLONE_NEWUSER) == 0 ? 0 : errno; }
static int try_root(void) { return chroot(dir) == 0 ? 0 : errno; }
static int try_user(void) { return syscall(SYS_setuid, 0) == 0 ? 0 : errno; }
static int try_bpf(void) { return syscall(SYS_bpf, 0, NULL, 0) >= 0 ? 0 : errno; }

static int try_fork(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	return pid > 0 ? 0 : errno;
}
static int try_kill(void) { return kill(getppid(), 0) == 0 ? 0 : errno; }
static int open_socket(int family, int type) { return socket(family, type, 0) >= 0 ? 0 : errno; }
static int try_unix(void) { return open_socket(AF_UNIX, SOCK_STREAM); }
static int try_inet(void) { return open_socket(AF_INET, SOCK_STREAM); }
static int try_inet6(void)
{
	int e = open_socket(AF_INET6, SOCK_STREAM);
	return e == EAFNOSUPPORT ? 0 : e; /* a machine without it */
}
static int try_netlink(void) { return open_socket(AF_NETLINK, SOCK_RAW); }
static int try_packet(void) { return open_socket(AF_PACKET, SOCK_RAW); }
static int try_listen(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	return fd >= 0 && listen(fd, 1) == 0 ? 0 : errno;
}
static int try_open_beneath(void)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY, .resolve = RESOLVE_BENEATH};
	int at = open("/", O_RDONLY | O_DIRECTORY);
	long fd = syscall(SYS_openat2, at, ".", &how, sizeof how);
	return fd >= 0 || errno == ENOSYS ? 0 : errno; /* before Linux 5.6 */
}
static int try_unknown(void) { return syscall(9999) >= 0 ? 0 : errno; }
static int try_uring(void) { return syscall(425, 1, NULL) >= 0 ? 0 : errno; }

static void *thread(void *arg)
{
	*(int *)arg = 7;
	return NULL;
}

/* What both do all day. */
static int work(void)
{
	pthread_t t;
	int seven = 0, pair[2], fds[2];
	struct timespec nap = {.tv_nsec = 1000};
	struct stat st;
	sigset_t none;
	char c = 'x', path[96];
	sigemptyset(&none);
	if (pthread_create(&t, NULL, thread, &seven) != 0 || pthread_join(t, NULL) != 0 || seven != 7)
		return 1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 || write(pair[0], &c, 1) != 1 ||
	    read(pair[1], &c, 1) != 1)
		return 2;
	int ep = epoll_create1(EPOLL_CLOEXEC), sig = signalfd(-1, &none, SFD_CLOEXEC);
	struct epoll_event e = {.events = EPOLLOUT};
	if (ep < 0 || sig < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, pair[0], &e) != 0 || epoll_wait(ep, &e, 1, 0) != 1)
		return 3;
	void *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED || madvise(m, 1 << 20, MADV_DONTNEED) != 0 || munmap(m, 1 << 20) != 0)
		return 4;
	snprintf(path, sizeof path, "%s/made", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1 || fsync(fd) != 0 || fstat(fd, &st) != 0 || close(fd) != 0)
		return 5;
	if (pipe2(fds, O_CLOEXEC) != 0 || nanosleep(&nap, NULL) != 0 || sysconf(_SC_NPROCESSORS_ONLN) < 1)
		return 6;
	if (raise(SIGCHLD) != 0 || kill(getpid(), 0) != 0)
		return 7;
	return 0;
}

/* ---- calls ---- */

static void what_only_an_intruder_does_ends_the_process(void **unused)
{
	(void)unused;
	ends_it(try_exec);
	ends_it(try_exec_by_descriptor);
	ends_it(try_mount);
	ends_it(try_namespace);
	ends_it(try_root);
	ends_it(try_user);
	ends_it(try_bpf);
	if (SANITIZED)
		return;
	ends_it(try_trace);
	ends_it(try_memory_of_another);
}

static void sockets_are_of_few_families(void **unused)
{
	(void)unused;
	gives(SANDBOX_GATEWAY, try_unix, 0);
	gives(SANDBOX_GATEWAY, try_inet, 0);
	gives(SANDBOX_GATEWAY, try_inet6, 0);
	gives(SANDBOX_GATEWAY, try_netlink, EPERM);
	gives(SANDBOX_GATEWAY, try_packet, EPERM);
	gives(SANDBOX_ENGINE, try_unix, 0);
	gives(SANDBOX_ENGINE, try_inet, EPERM);
	gives(SANDBOX_ENGINE, try_inet6, EPERM);
	gives(SANDBOX_ENGINE, try_netlink, EPERM);
	gives(SANDBOX_DRIVER, try_unix, 0);
	gives(SANDBOX_DRIVER, try_inet, EPERM);
	gives(SANDBOX_REMOTE, try_unix, 0);
	gives(SANDBOX_REMOTE, try_inet, 0);
	gives(SANDBOX_REMOTE, try_inet6, 0);
	gives(SANDBOX_REMOTE, try_netlink, EPERM);
	gives(SANDBOX_REMOTE, try_packet, EPERM);
	gives(SANDBOX_DOWNLOAD, try_inet, 0);
	gives(SANDBOX_DOWNLOAD, try_inet6, 0);
	gives(SANDBOX_DOWNLOAD, try_unix, ENOSYS);
	gives(SANDBOX_DOWNLOAD, try_netlink, EPERM);
}

/* The process that downloads makes connections and takes none. */
static void only_servers_listen(void **unused)
{
	(void)unused;
	gives(SANDBOX_GATEWAY, try_listen, 0);
	gives(SANDBOX_DOWNLOAD, try_listen, ENOSYS);
	gives(SANDBOX_DOWNLOAD, try_open_beneath, 0);
}

/* As on an older kernel: libraries go another way then. */
static void what_is_unknown_is_not_there(void **unused)
{
	(void)unused;
	gives(SANDBOX_GATEWAY, try_unknown, ENOSYS);
	gives(SANDBOX_GATEWAY, try_uring, ENOSYS);
	if (SANITIZED)
		return;
	gives(SANDBOX_GATEWAY, try_fork, ENOSYS);
	gives(SANDBOX_ENGINE, try_fork, ENOSYS);
	gives(SANDBOX_REMOTE, try_fork, ENOSYS);
	gives(SANDBOX_GATEWAY, try_kill, ENOSYS);
}

static void their_own_work_goes_on(void **unused)
{
	(void)unused;
	gives(SANDBOX_GATEWAY, work, 0);
	gives(SANDBOX_ENGINE, work, 0);
	gives(SANDBOX_DRIVER, work, 0);
	gives(SANDBOX_REMOTE, work, 0);
	gives(SANDBOX_DOWNLOAD, work, 0);
}

/* ---- files ---- */

/* errno of opening path with flags once only dir may be written to and /usr read. */
static int open_limited(const char *path, int flags)
{
	int status;
	const struct sandbox_path paths[] = {{dir, SANDBOX_WRITE},
					     {"/usr", SANDBOX_READ},
					     {"/dev/null", SANDBOX_DEVICE},
					     {"/no/such/folder", SANDBOX_READ}};
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int rc = sandbox_files(paths, sizeof paths / sizeof *paths);
		_exit(rc < 0                                     ? NOT_CONFINED
		      : rc == 0                                  ? LEFT_OUT
		      : open(path, flags | O_CLOEXEC, 0600) >= 0 ? 0
								 : errno);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == LEFT_OUT)
		skip();
	return WEXITSTATUS(status);
}

static void only_named_folders_are_open(void **unused)
{
	(void)unused;
	char inside[96], outside[] = "/tmp/sluice-outside-XXXXXX";
	snprintf(inside, sizeof inside, "%s/made", dir);
	int fd = mkstemp(outside);
	assert_true(fd >= 0);
	close(fd);
	int write_inside = open_limited(inside, O_RDWR | O_CREAT), read_outside = open_limited(outside, O_RDONLY),
	    write_outside = open_limited(outside, O_WRONLY), read_passwd = open_limited("/etc/passwd", O_RDONLY),
	    read_usr = open_limited("/usr/bin", O_RDONLY), null = open_limited("/dev/null", O_RDWR),
	    made = open_limited("/tmp/sluice-outside-new", O_WRONLY | O_CREAT);
	unlink(outside);
	unlink("/tmp/sluice-outside-new");
	assert_int_equal(write_inside, 0);
	assert_int_equal(read_outside, EACCES);
	assert_int_equal(write_outside, EACCES);
	assert_int_equal(read_passwd, EACCES);
	assert_int_equal(read_usr, 0);
	assert_int_equal(null, 0);
	assert_int_equal(made, EACCES);
}

struct sleeper {
	int wake[2], told[2]; /* pipes */
	int tid;
};

static void *sleep_in(void *arg)
{
	struct sleeper *s = arg;
	char c = 0;
	s->tid = (int)syscall(SYS_gettid);
	(void)!write(s->told[1], &c, 1);
	(void)!read(s->wake[0], &c, 1);
	return NULL;
}

static int open_of_thread(int tid, const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, name);
	return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) >= 0 ? 0 : errno;
}

/* Names another thread as a device's driver does, with and without the folder of threads. 0, or what went wrong. */
static int name_a_thread(bool may)
{
	struct sleeper s;
	char c;
	pthread_t thread;
	const char *threads = sandbox_threads();
	const struct sandbox_path paths[] = {{"/proc", SANDBOX_READ}, {may ? threads : dir, SANDBOX_WRITE}};
	if (threads == NULL || pipe(s.wake) != 0 || pipe(s.told) != 0)
		return NOT_CONFINED;
	int rc = sandbox_files(paths, 2);
	if (rc <= 0)
		return rc < 0 ? NOT_CONFINED : LEFT_OUT;
	if (pthread_create(&thread, NULL, sleep_in, &s) != 0 || read(s.told[0], &c, 1) != 1)
		return NOT_CONFINED;
	int named = open_of_thread(s.tid, "comm"),
	    other = open("/proc/self/comm", O_WRONLY | O_CLOEXEC) >= 0 ? 0 : errno;
	close(s.wake[1]);
	pthread_join(thread, NULL);
	return named != (may ? 0 : EACCES) ? 1 : other != EACCES ? 2 : 0;
}

static void a_driver_names_its_threads(void **unused)
{
	(void)unused;
	for (int may = 0; may < 2; may++) {
		int status;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(name_a_thread(may));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == LEFT_OUT)
			skip();
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* ---- kernels that can't ---- */

/* A filter that makes calls fail as on a kernel without them. */
static bool take_away(const int *calls, const int *errors, size_t n)
{
	struct sock_filter code[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	size_t k = 1;
	for (size_t i = 0; i < n; i++) {
		code[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)errors[i]);
	}
	code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const struct sock_fprog program = {(unsigned short)k, code};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int files_without_landlock(void)
{
	static const int calls[] = {444}, errors[] = {ENOSYS};
	const struct sandbox_path paths[] = {{dir, SANDBOX_WRITE}};
	return take_away(calls, errors, 1) ? sandbox_files(paths, 1) : LEFT_OUT;
}

static int files_with_landlock_off(void)
{
	static const int calls[] = {444}, errors[] = {EOPNOTSUPP};
	const struct sandbox_path paths[] = {{dir, SANDBOX_WRITE}};
	return take_away(calls, errors, 1) ? sandbox_files(paths, 1) : LEFT_OUT;
}

static int calls_without_seccomp(void)
{
	static const int calls[] = {SYS_seccomp, SYS_prctl}, errors[] = {ENOSYS, EINVAL};
	return take_away(calls, errors, 2) ? sandbox_calls(SANDBOX_GATEWAY) : LEFT_OUT;
}

static void a_kernel_without_them_is_no_failure(void **unused)
{
	(void)unused;
	static int (*const all[])(void) = {files_without_landlock, files_with_landlock_off, calls_without_seccomp};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		int status;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(all[i]() & 0xff);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == LEFT_OUT)
			skip();
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* ---- rights ---- */

static int status_line(const char *name, char *out, size_t size)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");
	while (f != NULL && fgets(line, sizeof line, f) != NULL) {
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		snprintf(out, size, "%s", line + strlen(name) + 1 + strspn(line + strlen(name) + 1, "\t "));
		out[strcspn(out, "\n")] = '\0';
		fclose(f);
		return 0;
	}
	return -1;
}

static bool is_zero(const char *name)
{
	char text[64] = "";
	return status_line(name, text, sizeof text) == 0 && strspn(text, "0") == strlen(text) && text[0] != '\0';
}

static int drop_and_look(void)
{
	struct run_user u = geteuid() == 0 ? (struct run_user){.change = true, .uid = RUNNER, .gid = RUNNER}
					   : (struct run_user){.uid = geteuid(), .gid = getegid()};
	bool root = u.change;
	char text[64] = "";
	gid_t groups[4];
	if (privileges_drop(&u) != 0)
		return 1;
	if (!is_zero("CapEff") || !is_zero("CapPrm") || !is_zero("CapInh") || !is_zero("CapAmb") ||
	    (root && !is_zero("CapBnd")))
		return 2;
	if (status_line("NoNewPrivs", text, sizeof text) != 0 || strcmp(text, "1") != 0)
		return 3;
	if (root && (getuid() != RUNNER || getgid() != RUNNER || getgroups(4, groups) != 0 || setuid(0) == 0))
		return 4;
	return 0;
}

static void every_right_goes(void **unused)
{
	(void)unused;
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(drop_and_look());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_only_an_intruder_does_ends_the_process, setup, teardown),
	    cmocka_unit_test(sockets_are_of_few_families),
	    cmocka_unit_test(only_servers_listen),
	    cmocka_unit_test(what_is_unknown_is_not_there),
	    cmocka_unit_test_setup_teardown(their_own_work_goes_on, setup, teardown),
	    cmocka_unit_test_setup_teardown(only_named_folders_are_open, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_driver_names_its_threads, setup, teardown),
	    cmocka_unit_test(a_kernel_without_them_is_no_failure),
	    cmocka_unit_test(every_right_goes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
