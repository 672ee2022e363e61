/* SPDX-License-Identifier: Apache-2.0
 *
 * Inherited sockets and the manager's socket, each in a process of its own: descriptors and variables have the numbers
 * and names that the protocols fix.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/serve/activation.h"
#include "cmd/serve/notify.h"

#define CHECK(cond)                                             \
	do {                                                    \
		if (!(cond)) {                                  \
			fprintf(stderr, "line %d\n", __LINE__); \
			_exit(1);                               \
		}                                               \
	} while (0)

static void in_a_process(void (*run)(void))
{
	int status = -1;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		unsetenv("LISTEN_FDS");
		unsetenv("LISTEN_PID");
		unsetenv("LISTEN_FDNAMES");
		unsetenv("NOTIFY_SOCKET");
		unsetenv("WATCHDOG_USEC");
		unsetenv("WATCHDOG_PID");
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void put_env(const char *fds, const char *names)
{
	char pid[16];
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", fds, 1);
	if (names != NULL)
		setenv("LISTEN_FDNAMES", names, 1);
}

/* A listening socket at descriptor `at`; returns its port. */
static unsigned listen_at(int at, int family, const char *host, unsigned port)
{
	struct sockaddr_storage sa = {.ss_family = (sa_family_t)family};
	struct sockaddr_in *v4 = (void *)&sa;
	struct sockaddr_in6 *v6 = (void *)&sa;
	socklen_t len = family == AF_INET ? sizeof *v4 : sizeof *v6;
	int fd = socket(family, SOCK_STREAM, 0), one = 1;
	CHECK(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	CHECK(inet_pton(family, host, family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr) == 1);
	v4->sin_port = htons((uint16_t)port); /* at the same offset in both */
	CHECK(bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, 1) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
	if (fd != at) {
		CHECK(dup2(fd, at) == at);
		close(fd);
	}
	return ntohs(v4->sin_port);
}

static struct activation a;
static struct cmd_options o;
static struct sluice_config cfg;
static struct sl_err err;

static void load(const char *const *sets, size_t n) { CHECK(sluice_config_load(&cfg, NULL, sets, n, &err) == 0); }

/* ---- taking ---- */

static void take_all(void)
{
	listen_at(3, AF_INET, "127.0.0.1", 0);
	listen_at(4, AF_INET, "127.0.0.1", 0);
	put_env("2", "http:admin");
	CHECK(activation_take(&a, &err) == 0 && a.sockets.n == 2);
	CHECK(strcmp(a.names[0], "http") == 0 && strcmp(a.names[1], "admin") == 0);
	for (int fd = 3; fd < 5; fd++)
		CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	CHECK(getenv("LISTEN_FDS") == NULL && getenv("LISTEN_PID") == NULL && getenv("LISTEN_FDNAMES") == NULL);
	activation_dispose(&a);
	CHECK(fcntl(3, F_GETFD) < 0 && fcntl(4, F_GETFD) < 0);
}

static void take_unnamed(void)
{
	listen_at(3, AF_INET, "127.0.0.1", 0);
	put_env("1", NULL);
	CHECK(activation_take(&a, &err) == 0 && a.sockets.n == 1 && strcmp(a.names[0], "unknown") == 0);
}

static void take_none(void)
{
	CHECK(activation_take(&a, &err) == 0 && a.sockets.n == 0);
	listen_at(3, AF_INET, "127.0.0.1", 0);
	put_env("1", "http");
	setenv("LISTEN_PID", "1", 1); /* another process's */
	CHECK(activation_take(&a, &err) == 0 && a.sockets.n == 0);
	CHECK(getenv("LISTEN_FDS") == NULL);
	put_env("0", "");
	CHECK(activation_take(&a, &err) == 0 && a.sockets.n == 0);
}

static void refuse_malformed(void)
{
	static const char *const counts[] = {"", "-1", "x", "1x", " 1", "99999999999999999999", "65"};
	listen_at(3, AF_INET, "127.0.0.1", 0);
	listen_at(4, AF_INET, "127.0.0.1", 0);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		put_env(counts[i], NULL);
		CHECK(activation_take(&a, &err) < 0 && strstr(err.text, "LISTEN_FDS") != NULL);
	}
	put_env("2", "one");
	CHECK(activation_take(&a, &err) == SL_EINVAL && strstr(err.text, "LISTEN_FDNAMES") != NULL);
	put_env("2", "one:two:three");
	CHECK(activation_take(&a, &err) == SL_EINVAL);
	put_env("1", "http");
	setenv("LISTEN_PID", "1x", 1);
	CHECK(activation_take(&a, &err) == SL_EINVAL && strstr(err.text, "LISTEN_PID") != NULL);
}

static void refuse_other_descriptors(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0 && dup2(fd, 3) == 3);
	put_env("1", "http");
	CHECK(activation_take(&a, &err) == SL_EINVAL && strstr(err.text, "listening") != NULL);
	close(3);
	put_env("1", "http");
	CHECK(activation_take(&a, &err) == SL_EINVAL && strstr(err.text, "descriptor 3") != NULL);
}

/* ---- assigning ---- */

static void assign_by_name(void)
{
	char wanted[64];
	unsigned port = listen_at(3, AF_INET, "127.0.0.1", 0);
	load(NULL, 0);
	put_env("1", "http");
	CHECK(activation_take(&a, &err) == 0 && activation_assign(&a, &cfg, &o, &err) == 0);
	snprintf(wanted, sizeof wanted, "gateway.http=127.0.0.1:%u", port);
	CHECK(o.n_sets == 1 && strcmp(o.sets[0], wanted) == 0);
	sluice_config_free(&cfg);
	CHECK(sluice_config_load(&cfg, NULL, o.sets, o.n_sets, &err) == 0 && cfg.gateway.http.port == port);
}

static void assign_by_address(void)
{
	char set[64];
	unsigned port = listen_at(3, AF_INET, "127.0.0.1", 0);
	snprintf(set, sizeof set, "gateway.https=127.0.0.1:%u", port);
	load((const char *const[]){set}, 1);
	put_env("1", "sluice.socket");
	CHECK(activation_take(&a, &err) == 0 && activation_assign(&a, &cfg, &o, &err) == 0 && o.n_sets == 0);
}

static void assign_pairs(void)
{
	char wanted[64];
	unsigned port = listen_at(3, AF_INET, "127.0.0.1", 0);
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (fd < 0) /* a machine without IPv6 */
		return;
	close(fd);
	listen_at(4, AF_INET6, "::1", port);
	load(NULL, 0);
	put_env("2", "http:http");
	CHECK(activation_take(&a, &err) == 0 && activation_assign(&a, &cfg, &o, &err) == 0);
	snprintf(wanted, sizeof wanted, "gateway.http=localhost:%u", port);
	CHECK(o.n_sets == 1 && strcmp(o.sets[0], wanted) == 0);
}

static void refuse_two_ports(void)
{
	listen_at(3, AF_INET, "127.0.0.1", 0);
	listen_at(4, AF_INET, "127.0.0.1", 0);
	load(NULL, 0);
	put_env("2", "http:http");
	CHECK(activation_take(&a, &err) == 0);
	CHECK(activation_assign(&a, &cfg, &o, &err) == SL_EINVAL && strstr(err.text, "http") != NULL);
}

static void refuse_unknown(void)
{
	listen_at(3, AF_INET, "127.0.0.1", 0);
	load(NULL, 0);
	put_env("1", "mail");
	CHECK(activation_take(&a, &err) == 0);
	CHECK(activation_assign(&a, &cfg, &o, &err) == SL_EINVAL && strstr(err.text, "mail") != NULL);
}

static void assign_unix(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	char folder[] = "/tmp/sluice-activation-XXXXXX", wanted[160];
	static const char *const sets[] = {"gateway.listeners.nginx.unix=/run/other.sock"};
	CHECK(mkdtemp(folder) != NULL);
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/s", folder);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(fd, 1) == 0);
	CHECK(fd == 3 || dup2(fd, 3) == 3);
	load(sets, 1);
	put_env("1", "nginx");
	CHECK(activation_take(&a, &err) == 0 && activation_assign(&a, &cfg, &o, &err) == 0);
	snprintf(wanted, sizeof wanted, "gateway.listeners.nginx.unix=%s", sa.sun_path);
	CHECK(o.n_sets == 1 && strcmp(o.sets[0], wanted) == 0);
	/* http can't be one. */
	o.n_sets = a.n_sets = 0;
	snprintf(a.names[0], sizeof a.names[0], "http");
	CHECK(activation_assign(&a, &cfg, &o, &err) == SL_EINVAL);
	unlink(sa.sun_path);
	rmdir(folder);
}

/* ---- the manager ---- */

static int manager(const char *name)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	memcpy(sa.sun_path, name, n);
	if (name[0] == '@')
		sa.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&sa,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'))) == 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static const char *got(int fd)
{
	static char text[512];
	ssize_t n = recv(fd, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void notify_abstract(void)
{
	struct notify n;
	char name[64];
	snprintf(name, sizeof name, "@sluice-test-%d", (int)getpid());
	int fd = manager(name);
	CHECK(notify_open(&n, &err) == 0 && n.fd >= 0 && n.watchdog_ns == 0);
	CHECK(getenv("NOTIFY_SOCKET") == NULL);
	notify_send(&n, "READY=%d", 1);
	CHECK(strcmp(got(fd), "READY=1") == 0);
	notify_status(&n, "Serving");
	notify_status(&n, "Serving");
	CHECK(strcmp(got(fd), "STATUS=Serving") == 0 && strcmp(got(fd), "") == 0);
	notify_reloading(&n);
	CHECK(strncmp(got(fd), "RELOADING=1\nMONOTONIC_USEC=", 27) == 0);
	close(fd);
	notify_send(&n, "READY=1"); /* no manager any more: nothing happens */
	notify_close(&n);
}

static void notify_path(void)
{
	struct notify n;
	char folder[] = "/tmp/sluice-notify-XXXXXX", name[64];
	CHECK(mkdtemp(folder) != NULL);
	snprintf(name, sizeof name, "%s/s", folder);
	int fd = manager(name);
	CHECK(notify_open(&n, &err) == 0);
	notify_send(&n, "STOPPING=1");
	CHECK(strcmp(got(fd), "STOPPING=1") == 0);
	/* A manager that does not read does not stop us. */
	for (int i = 0; i < 100000; i++)
		notify_send(&n, "WATCHDOG=1");
	unlink(name);
	rmdir(folder);
}

static void watchdog(void)
{
	struct notify n;
	char pid[16];
	setenv("WATCHDOG_USEC", "30000000", 1);
	CHECK(notify_open(&n, &err) == 0 && n.watchdog_ns == UINT64_C(30000000000));
	CHECK(n.every_ns == UINT64_C(10000000000) && n.fd == -1 && getenv("WATCHDOG_USEC") == NULL);
	setenv("WATCHDOG_USEC", "30000000", 1);
	setenv("WATCHDOG_PID", "1", 1); /* another process's */
	CHECK(notify_open(&n, &err) == 0 && n.watchdog_ns == 0);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("WATCHDOG_USEC", "1000", 1);
	setenv("WATCHDOG_PID", pid, 1);
	CHECK(notify_open(&n, &err) == 0 && n.watchdog_ns == 1000000 && n.every_ns > 0);
	setenv("WATCHDOG_USEC", "soon", 1);
	CHECK(notify_open(&n, &err) == SL_EINVAL);
	setenv("WATCHDOG_USEC", "0", 1);
	CHECK(notify_open(&n, &err) == SL_EINVAL);
	setenv("NOTIFY_SOCKET", "relative", 1);
	CHECK(notify_open(&n, &err) == SL_EINVAL);
}

#define TEST(name)                        \
	static void test_##name(void **s) \
	{                                 \
		(void)s;                  \
		in_a_process(name);       \
	}
TEST(take_all)
TEST(take_unnamed)
TEST(take_none)
TEST(refuse_malformed)
TEST(refuse_other_descriptors)
TEST(assign_by_name)
TEST(assign_by_address)
TEST(assign_pairs)
TEST(refuse_two_ports)
TEST(refuse_unknown)
TEST(assign_unix)
TEST(notify_abstract)
TEST(notify_path)
TEST(watchdog)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_take_all),          cmocka_unit_test(test_take_unnamed),
	    cmocka_unit_test(test_take_none),         cmocka_unit_test(test_refuse_malformed),
	    cmocka_unit_test(test_assign_by_name),    cmocka_unit_test(test_refuse_other_descriptors),
	    cmocka_unit_test(test_assign_by_address), cmocka_unit_test(test_assign_pairs),
	    cmocka_unit_test(test_refuse_two_ports),  cmocka_unit_test(test_refuse_unknown),
	    cmocka_unit_test(test_assign_unix),       cmocka_unit_test(test_notify_abstract),
	    cmocka_unit_test(test_notify_path),       cmocka_unit_test(test_watchdog),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
