/* SPDX-License-Identifier: Apache-2.0
 *
 * seccomp(2) by libseccomp: lists of allowed calls. Calls on no list fail with ENOSYS: libraries that try a newer call
 * first then fall back to the older one, so a newer libc keeps working. Calls that only an intruder makes end the
 * process; the supervisor logs that and restarts it.
 *
 * The lists are by purpose and longer than one run needs, because libraries choose among similar calls (poll, ppoll,
 * epoll). No process starts programs. An engine uses unix sockets only, unless another server runs its models; the
 * list for drivers adds the calls of a device's driver (measured with CUDA 13.0 and driver 580).
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/confine/sandbox.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static const char *const allowed[] = {
    /* memory */
    "brk",
    "madvise",
    "mincore",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mmap2",
    "mprotect",
    "mremap",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "membarrier",
    "get_mempolicy",
    "mbind",
    "set_mempolicy",
    "memfd_create",
    /* threads, time */
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "exit",
    "exit_group",
    "futex",
    "futex_waitv",
    "get_robust_list",
    "getitimer",
    "gettimeofday",
    "nanosleep",
    "restart_syscall",
    "rseq",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_setaffinity",
    "sched_yield",
    "set_robust_list",
    "set_thread_area",
    "set_tid_address",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "arch_prctl",
    /* identity */
    "getcpu",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpgid",
    "getpgrp",
    "getpid",
    "getpriority",
    "getppid",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsid",
    "gettid",
    "getuid",
    "sysinfo",
    "times",
    "ugetrlimit",
    "umask",
    "uname",
    "capget",
    /* signals */
    "pause",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "sigreturn",
    /* descriptors and waiting */
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "fcntl",
    "fcntl64",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "pselect6",
    "select",
    "_newselect",
    /* files: Landlock and the user's rights limit which */
    "access",
    "chdir",
    "chmod",
    "copy_file_range",
    "creat",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fdatasync",
    "flock",
    "fstat",
    "fstat64",
    "fstatat64",
    "fstatfs",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "getcwd",
    "getdents",
    "getdents64",
    "lseek",
    "_llseek",
    "link",
    "linkat",
    "lstat",
    "lstat64",
    "mkdir",
    "mkdirat",
    "newfstatat",
    "open",
    "openat",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "stat",
    "stat64",
    "statfs",
    "statx",
    "sync_file_range",
    "truncate",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
    "writev",
    /* sockets: allow_sockets limits socket() */
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socketpair",
};

static const char *const for_servers[] = {"accept", "accept4", "bind", "listen"};

static const char *const for_drivers[] = {"ioctl",         "setpriority", "sched_setscheduler",
					  "sched_setattr", "shmget",      "shmat",
					  "shmdt",         "shmctl",      "process_madvise"};

/* A leak checker stops all threads by tracing them. */
static const char *const for_sanitizers[] = {"ptrace",      "wait4", "waitid",   "process_vm_readv",
					     "personality", "ioctl", "clone",    "kill",
					     "tkill",       "prctl", "setrlimit"};

/* Neither our code nor a library makes these. */
static const char *const hostile[] = {
    "execve",
    "execveat",
    "fork",
    "vfork",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "mount",
    "umount",
    "umount2",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsmount",
    "fsconfig",
    "fspick",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "bpf",
    "perf_event_open",
    "reboot",
    "swapon",
    "swapoff",
    "sethostname",
    "setdomainname",
    "acct",
    "settimeofday",
    "clock_settime",
    "iopl",
    "ioperm",
    "open_by_handle_at",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "setfsgid",
    "capset",
};

static bool is_for_sanitizers(const char *name)
{
	for (size_t i = 0; SANITIZED && i < sizeof for_sanitizers / sizeof *for_sanitizers; i++)
		if (strcmp(name, for_sanitizers[i]) == 0)
			return true;
	return false;
}

static int add_names(scmp_filter_ctx f, uint32_t action, const char *const *list, size_t n)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		int number = seccomp_syscall_resolve_name(list[i]);
		if (action != SCMP_ACT_ALLOW && is_for_sanitizers(list[i]))
			continue;
		/* A call that libseccomp or this processor does not know gets the default action. */
		if (number != __NR_SCMP_ERROR)
			rc = seccomp_rule_add(f, action, number, 0);
		if (rc == -EDOM) /* not on this processor */
			rc = 0;
	}
	return rc;
}

#define ADD(f, action, list) add_names(f, action, list, sizeof(list) / sizeof *(list))

/* An argument's test; b: the second operand of SCMP_CMP_MASKED_EQ, else 0. */
static struct scmp_arg_cmp arg_is(unsigned arg, enum scmp_compare op, uint64_t a, uint64_t b)
{
	return (struct scmp_arg_cmp){.arg = arg, .op = op, .datum_a = a, .datum_b = b};
}

static int allow_if(scmp_filter_ctx f, int call, struct scmp_arg_cmp cmp)
{
	return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, call, 1, &cmp);
}

/* Signals to this process: abort() and the sanitizers raise them. */
static int allow_signals(scmp_filter_ctx f)
{
	struct scmp_arg_cmp self = arg_is(0, SCMP_CMP_EQ, (uint64_t)getpid(), 0);
	int rc = allow_if(f, SCMP_SYS(tgkill), self);
	return rc == 0 && !SANITIZED ? allow_if(f, SCMP_SYS(kill), self) : rc;
}

/* The downloading process has no use for unix sockets; its user's other programs listen on some. */
static int allow_sockets(scmp_filter_ctx f, enum sandbox_kind kind)
{
	static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
	bool local = kind == SANDBOX_ENGINE || kind == SANDBOX_DRIVER;
	int first = kind == SANDBOX_DOWNLOAD ? 1 : 0, end = local ? 1 : 3, rc = 0;
	for (int i = first; rc == 0 && i < end; i++)
		rc = allow_if(f, SCMP_SYS(socket), arg_is(0, SCMP_CMP_EQ, (uint64_t)families[i], 0));
	struct scmp_arg_cmp others = arg_is(0, SCMP_CMP_GT, (uint64_t)families[end - 1], 0);
	return rc == 0 ? seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, &others) : rc;
}

/* Threads, not processes. glibc tries clone3 first, whose flags a filter can't read, and then falls back to clone. */
static int allow_threads(scmp_filter_ctx f)
{
	return SANITIZED ? 0 : allow_if(f, SCMP_SYS(clone), arg_is(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
}

/* This process's own limits. */
static int allow_limits(scmp_filter_ctx f) { return allow_if(f, SCMP_SYS(prlimit64), arg_is(0, SCMP_CMP_EQ, 0, 0)); }

static int allow_some(scmp_filter_ctx f, int call, int arg, const uint64_t *values, size_t n)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = allow_if(f, call, arg_is((unsigned)arg, SCMP_CMP_EQ, values[i], 0));
	return rc;
}

static int allow_prctl(scmp_filter_ctx f)
{
	static const uint64_t options[] = {
	    PR_SET_NAME,         PR_GET_NAME,       PR_GET_DUMPABLE, PR_GET_PDEATHSIG,
	    PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP,    PR_CAPBSET_READ, PR_SET_THP_DISABLE,
	    PR_GET_THP_DISABLE,  PR_SET_TIMERSLACK, 0x53564d41 /* PR_SET_VMA: names for mappings */};
	return SANITIZED ? 0 : allow_some(f, SCMP_SYS(prctl), 0, options, sizeof options / sizeof *options);
}

/* The requests of stdio and libevent. */
static int allow_plain_ioctl(scmp_filter_ctx f)
{
	static const uint64_t requests[] = {TCGETS, FIONREAD, FIONBIO, FIOCLEX, TIOCGWINSZ};
	return SANITIZED ? 0 : allow_some(f, SCMP_SYS(ioctl), 1, requests, sizeof requests / sizeof *requests);
}

/* A thread may lower its own priority. */
static int allow_nice(scmp_filter_ctx f) { return allow_if(f, SCMP_SYS(setpriority), arg_is(1, SCMP_CMP_EQ, 0, 0)); }

static int allow_openat2(scmp_filter_ctx f)
{
	static const char *const call[] = {"openat2"};
	return ADD(f, SCMP_ACT_ALLOW, call);
}

static int fill(scmp_filter_ctx f, enum sandbox_kind kind)
{
	int rc = ADD(f, SCMP_ACT_ALLOW, allowed);
	if (rc == 0 && SANITIZED)
		rc = ADD(f, SCMP_ACT_ALLOW, for_sanitizers);
	if (rc == 0)
		rc = kind == SANDBOX_DOWNLOAD ? allow_openat2(f) : ADD(f, SCMP_ACT_ALLOW, for_servers);
	if (rc == 0)
		rc = kind == SANDBOX_DRIVER ? ADD(f, SCMP_ACT_ALLOW, for_drivers) : allow_plain_ioctl(f);
	if (rc == 0)
		rc = allow_signals(f);
	if (rc == 0)
		rc = allow_sockets(f, kind);
	if (rc == 0)
		rc = allow_threads(f);
	if (rc == 0)
		rc = allow_limits(f);
	if (rc == 0)
		rc = allow_prctl(f);
	if (rc == 0 && kind == SANDBOX_ENGINE)
		rc = allow_nice(f);
	return rc == 0 ? ADD(f, SCMP_ACT_KILL_PROCESS, hostile) : rc;
}

int sandbox_calls(enum sandbox_kind kind)
{
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0)
		return 0;
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	if (f == NULL)
		return -ENOMEM;
	/* A sanitizer may have started a thread. Fails on kernels before 3.17. */
	(void)seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
	(void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree: any call costs a few comparisons */
	int rc = fill(f, kind);
	if (rc == 0)
		rc = seccomp_load(f);
	seccomp_release(f);
	return rc == 0 ? 1 : rc == -EINVAL || rc == -ENOSYS ? 0 : rc;
}
