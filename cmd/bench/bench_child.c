/* SPDX-License-Identifier: Apache-2.0
 *
 * A child gets SIGKILL when this process ends for any reason, so no measurement leaves a server behind. Its processor
 * time comes from its CPU clock, which has nanosecond resolution; ticks are too coarse for a window of a second.
 */
#include "cmd/bench/bench_child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { STOP_MS = 3000, UP_S = 120, LOOK_US = 2000, BACKLOG = 4096 };

/* The n-th processor allowed at the start of this process, before any pinning; -1: none. */
static int nth_cpu(int n)
{
	static cpu_set_t all;
	static bool known;
	if (!known)
		known = sched_getaffinity(0, sizeof all, &all) == 0;
	for (int i = 0; known && i < CPU_SETSIZE; i++)
		if (CPU_ISSET((size_t)i, &all) && n-- == 0)
			return i;
	return -1;
}

int bench_cpus(void)
{
	int n = 0;
	while (nth_cpu(n) >= 0)
		n++;
	return n;
}

void bench_pin(int cpu)
{
	int which = nth_cpu(cpu);
	cpu_set_t one;
	if (which < 0 || bench_cpus() < 2)
		return;
	CPU_ZERO(&one);
	CPU_SET((size_t)which, &one);
	sched_setaffinity(0, sizeof one, &one);
}

static void enter_child(pid_t parent, int cpu)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* Ctrl-C must reach this process only, which then ends its children. */
	setpgid(0, 0);
	bench_pin(cpu);
}

static int started(struct bench_child *c, pid_t pid, struct sl_err *err)
{
	c->pid = pid;
	if (clock_getcpuclockid(pid, &c->cpu) == 0)
		return 0;
	bench_child_stop(c);
	return sl_errf(err, SL_EIO, "a child process ended immediately");
}

int bench_child_start(struct bench_child *c, char *const argv[], int cpu, const char *log, struct sl_err *err)
{
	pid_t parent = getpid();
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	bench_cpus(); /* records the set before anything is pinned */
	pid_t pid = fd >= 0 ? fork() : -1;
	if (pid == 0) {
		enter_child(parent, cpu);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	int saved = errno;
	if (fd >= 0)
		close(fd);
	if (pid < 0)
		return sl_errf(err, SL_EIO, "can't start %s: %s", argv[0], strerror(saved));
	return started(c, pid, err);
}

int bench_child_fork(struct bench_child *c, void (*run)(void *arg), void *arg, int cpu, struct sl_err *err)
{
	pid_t parent = getpid();
	bench_cpus();
	pid_t pid = fork();
	if (pid == 0) {
		enter_child(parent, cpu);
		run(arg);
		_exit(0);
	}
	if (pid < 0)
		return sl_errf(err, SL_EIO, "can't fork: %s", strerror(errno));
	return started(c, pid, err);
}

bool bench_child_alive(const struct bench_child *c)
{
	siginfo_t info = {0};
	return c->pid != 0 && waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void bench_child_stop(struct bench_child *c)
{
	if (c->pid == 0)
		return;
	kill(c->pid, SIGTERM);
	uint64_t deadline = clock_now_ns() + STOP_MS * NS_PER_MS;
	while (bench_child_alive(c) && clock_now_ns() < deadline)
		usleep(LOOK_US);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	c->pid = 0;
}

bool bench_accepts(const struct sockaddr *at, socklen_t n)
{
	int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = fd >= 0 ? connect(fd, at, n) : -1;
	if (fd >= 0)
		close(fd);
	return rc == 0;
}

int bench_child_await(const struct bench_child *c, const struct sockaddr *at, socklen_t n, const char *name,
		      const char *log, struct sl_err *err)
{
	uint64_t deadline = clock_now_ns() + UP_S * NS_PER_S;
	while (clock_now_ns() < deadline && bench_child_alive(c)) {
		if (bench_accepts(at, n))
			return 0;
		usleep(LOOK_US);
	}
	return bench_child_no_start(name, log, err);
}

int bench_child_no_start(const char *name, const char *log, struct sl_err *err)
{
	char line[256] = "";
	FILE *f = fopen(log, "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		;
	if (f != NULL)
		fclose(f);
	line[strcspn(line, "\n")] = '\0';
	return sl_errf(err, SL_EIO, "the %s failed to start: %s", name, line);
}

uint64_t bench_child_cpu_ns(const struct bench_child *c)
{
	struct timespec ts;
	if (clock_gettime(c->cpu, &ts) != 0)
		return 0;
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t bench_child_rss(const struct bench_child *c)
{
	char path[64], line[128];
	unsigned long long resident = 0;
	snprintf(path, sizeof path, "/proc/%d/statm", (int)c->pid);
	FILE *f = fopen(path, "r");
	if (f == NULL)
		return 0;
	/* The second number is the count of resident pages. */
	const char *second = fgets(line, sizeof line, f) != NULL ? strchr(line, ' ') : NULL;
	if (second != NULL)
		resident = strtoull(second, NULL, 10);
	fclose(f);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

int bench_listen(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, BACKLOG) == 0 &&
	    getsockname(fd, (struct sockaddr *)&at, &n) == 0) {
		*port = ntohs(at.sin_port);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

uint16_t bench_free_port(void)
{
	uint16_t port = 0;
	int fd = bench_listen(&port);
	if (fd >= 0)
		close(fd);
	return port;
}
