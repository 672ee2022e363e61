/* SPDX-License-Identifier: Apache-2.0
 *
 * What the supervisor reports to a service manager, with a shell script as its child and this test as the manager.
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

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cmd/serve/supervise.h"

static int manager = -1;
static bool refuse_reload;

static int reload(void *ctx, struct sl_err *err)
{
	(void)ctx;
	return refuse_reload ? sl_errf(err, SL_EINVAL, "wrong") : 0;
}

/* The supervisor in a process of its own, with a watchdog of 30 ms. */
static pid_t start(const char *script, uint64_t hang_ms)
{
	static int serial;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	char name[64];
	int n = snprintf(name, sizeof name, "@sluice-supervise-%d-%d", (int)getpid(), serial++);
	memcpy(sa.sun_path + 1, name + 1, (size_t)n - 1);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(manager >= 0);
	assert_int_equal(
	    bind(manager, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	struct notify notify;
	struct sl_err err;
	log_init("test", LOG_ERROR + 1);
	setenv("NOTIFY_SOCKET", name, 1);
	setenv("WATCHDOG_USEC", "30000", 1);
	if (notify_open(&notify, &err) != 0)
		_exit(99);
	const char *argv[] = {"bash", "-c", script, "a", NULL};
	const struct supervise_child child = {.name = "a", .argv = argv};
	const struct supervise_config cfg = {.exe = "/bin/bash",
					     .children = &child,
					     .n_children = 1,
					     .hang_ms = hang_ms,
					     .first_beat_ms = 60000,
					     .backoff_min_ms = 600000,
					     .backoff_max_ms = 600000,
					     .healthy_ms = 600000,
					     .drain_ms = 7000,
					     .on_reload = reload,
					     .notify = &notify};
	_exit(supervise(&cfg));
}

/* The next message within that time; "" if there is none. */
static const char *next(int ms)
{
	static char text[512];
	struct pollfd p = {.fd = manager, .events = POLLIN};
	ssize_t n = poll(&p, 1, ms) == 1 ? recv(manager, text, sizeof text - 1, 0) : 0;
	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* Skips messages up to one that begins so. */
static const char *find(const char *start)
{
	const char *text;
	do {
		text = next(20000);
		if (text[0] == '\0')
			fail_msg("no %s", start);
	} while (strncmp(text, start, strlen(start)) != 0);
	return text;
}

static void end(pid_t pid)
{
	int status;
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(manager);
}

#define PRELUDE "fd=$2; trap 'exit 0' TERM; "
/* Beats 20 ms apart. */
#define LIVE "while :; do eval \"printf a >&$fd\"; sleep 0.02; done"

static void reports_a_life(void **unused)
{
	(void)unused;
	refuse_reload = false;
	pid_t pid = start(PRELUDE "sleep 0.1; eval \"printf r >&$fd\"; " LIVE, 60000);
	assert_string_equal(find("STATUS="), "STATUS=Waiting for a");
	assert_non_null(strstr(find("EXTEND_TIMEOUT_USEC="), "USEC=30000"));
	find("READY=1");
	assert_string_equal(find("STATUS="), "STATUS=Serving");
	for (int i = 0; i < 3; i++)
		find("WATCHDOG=1");
	kill(pid, SIGHUP);
	find("RELOADING=1\nMONOTONIC_USEC=");
	find("READY=1");
	kill(pid, SIGTERM);
	/* drain_ms for each child, and once more for replaced processes */
	assert_string_equal(find("STOPPING=1"), "STOPPING=1\nEXTEND_TIMEOUT_USEC=14000000");
	end(pid);
}

static void a_refused_reload_ends_too(void **unused)
{
	(void)unused;
	refuse_reload = true;
	pid_t pid = start(PRELUDE "eval \"printf r >&$fd\"; " LIVE, 60000);
	find("READY=1");
	kill(pid, SIGHUP);
	find("RELOADING=1");
	find("READY=1");
	end(pid);
}

/* A child that crashed waits for its restart: only that much is known, and the manager must not be kept content. */
static void no_child_no_watchdog(void **unused)
{
	(void)unused;
	pid_t pid = start(PRELUDE "eval \"printf r >&$fd\"; sleep 0.2; exit 1", 60000);
	find("READY=1");
	find("WATCHDOG=1");
	find("STATUS=Waiting for a"); /* restarted at once */
	find("STATUS=Serving");
	find("STATUS=Waiting for a"); /* in ten minutes */
	const char *text = next(300);
	assert_string_equal(text, "");
	end(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reports_a_life),
	    cmocka_unit_test(a_refused_reload_ends_too),
	    cmocka_unit_test(no_child_no_watchdog),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
