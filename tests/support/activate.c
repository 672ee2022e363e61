/* SPDX-License-Identifier: Apache-2.0
 *
 * activate [NAME=PORT|NAME=/PATH]… -- COMMAND…: a service manager in small. Listens on 127.0.0.1:PORT, or on a unix
 * socket, for each name and starts the command with these sockets from descriptor 3 on (sd_listen_fds(3)), a notify
 * socket and a watchdog of two seconds (sd_notify(3)). Prints `started PID`, each line of each report, and `exited
 * STATUS`. SIGUSR1 restarts the command while the sockets stay open; SIGHUP, SIGUSR2 and SIGTERM go to it, and after
 * SIGTERM this program ends with it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8, FIRST = 3 };

static int sockets[MOST], n_sockets, manager;
static char names[256], notify_name[64];

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "activate: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

/* Out of the way of the numbers that the command gets. */
static int move_up(int fd)
{
	int up = fcntl(fd, F_DUPFD_CLOEXEC, FIRST + 2 * MOST);
	if (up < 0)
		fail("descriptor");
	close(fd);
	return up;
}

static int listen_tcp(const char *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	sa.sin_port = htons((uint16_t)atoi(port));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0 || listen(fd, 64) != 0)
		fail(port);
	return fd;
}

static int listen_unix(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0 || listen(fd, 64) != 0)
		fail(path);
	return fd;
}

static void open_socket(const char *text)
{
	const char *where = strchr(text, '=');
	size_t used = strlen(names);
	if (where == NULL || n_sockets == MOST)
		fail(text);
	snprintf(names + used, sizeof names - used, "%s%.*s", used > 0 ? ":" : "", (int)(where - text), text);
	sockets[n_sockets++] = move_up(where[1] == '/' ? listen_unix(where + 1) : listen_tcp(where + 1));
}

static void open_manager(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int n = snprintf(notify_name, sizeof notify_name, "@sluice-activate-%d", (int)getpid());
	memcpy(sa.sun_path + 1, notify_name + 1, (size_t)n - 1);
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (fd < 0 ||
	    bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) != 0)
		fail("notify socket");
	manager = move_up(fd);
}

static _Noreturn void run(char **argv)
{
	char pid[16], count[16];
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < n_sockets; i++)
		if (dup2(sockets[i], FIRST + i) < 0)
			fail("dup2");
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	snprintf(count, sizeof count, "%d", n_sockets);
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", count, 1);
	setenv("LISTEN_FDNAMES", names, 1);
	setenv("NOTIFY_SOCKET", notify_name, 1);
	setenv("WATCHDOG_USEC", "2000000", 1);
	setenv("WATCHDOG_PID", pid, 1);
	if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
		execvp(argv[0], argv);
	fail(argv[0]);
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0)
		run(argv);
	say("started %d\n", (int)pid);
	return pid;
}

static void print_report(void)
{
	char text[1024];
	ssize_t n = recv(manager, text, sizeof text - 1, MSG_DONTWAIT);
	text[n > 0 ? n : 0] = '\0';
	if (n > 0)
		say("%s\n", text);
}

int main(int argc, char **argv)
{
	sigset_t set;
	bool again = false, over = false;
	int i = 1;
	for (; i < argc && strcmp(argv[i], "--") != 0; i++)
		open_socket(argv[i]);
	if (i + 1 >= argc) {
		fprintf(stderr, "usage: activate [NAME=PORT|NAME=/PATH]... -- COMMAND...\n");
		return 64;
	}
	open_manager();
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, SFD_CLOEXEC);
	pid_t pid = start(argv + i + 1);
	for (;;) {
		struct pollfd fds[] = {{.fd = manager, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
		struct signalfd_siginfo info;
		int status;
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents != 0)
			print_report();
		if (fds[1].revents == 0 || read(signals, &info, sizeof info) != (ssize_t)sizeof info)
			continue;
		if (info.ssi_signo != SIGCHLD) {
			again = info.ssi_signo == SIGUSR1;
			over = info.ssi_signo == SIGTERM;
			kill(pid, again ? SIGTERM : (int)info.ssi_signo);
			continue;
		}
		if (waitpid(pid, &status, WNOHANG) != pid)
			continue;
		while (poll(fds, 1, 0) == 1)
			print_report();
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		say("exited %d\n", code);
		if (!again || over)
			return code;
		again = false;
		pid = start(argv + i + 1);
	}
}
