/* SPDX-License-Identifier: Apache-2.0
 *
 * Written here because libsystemd would be needed for two small formats of the environment and one datagram.
 */
#include "cmd/serve/notify.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Without a watchdog: the interval in which a start that makes progress extends the manager's patience. */
#define EVERY_NS (10 * NS_PER_S)

/* All digits, at most `most`. */
static bool parse_number(const char *text, uint64_t most, uint64_t *out)
{
	char *end;
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *out <= most;
}

/* A path, or with @ a name in the abstract namespace. */
static bool parse_address(const char *text, struct notify *n)
{
	size_t len = strlen(text);
	n->to = (struct sockaddr_un){.sun_family = AF_UNIX};
	if ((text[0] != '/' && text[0] != '@') || len < 2 || len >= sizeof n->to.sun_path)
		return false;
	memcpy(n->to.sun_path, text, len);
	n->to_len = (unsigned)(offsetof(struct sockaddr_un, sun_path) + len + (text[0] == '/'));
	if (text[0] == '@')
		n->to.sun_path[0] = '\0';
	return true;
}

static int read_watchdog(struct notify *n, struct sl_err *err)
{
	const char *time = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us, whose;
	if (time == NULL)
		return 0;
	if (pid != NULL && !parse_number(pid, INT_MAX, &whose))
		return sl_errf(err, SL_EINVAL, "WATCHDOG_PID: '%.40s' is not a process", pid);
	if (pid != NULL && whose != (uint64_t)getpid())
		return 0;
	if (!parse_number(time, UINT64_MAX / 1000, &us) || us == 0)
		return sl_errf(err, SL_EINVAL, "WATCHDOG_USEC: '%.40s' is not a time", time);
	n->watchdog_ns = us * 1000;
	n->every_ns = n->watchdog_ns / 3 > 0 ? n->watchdog_ns / 3 : 1;
	return 0;
}

int notify_open(struct notify *n, struct sl_err *err)
{
	const char *socket_name = getenv("NOTIFY_SOCKET");
	*n = (struct notify){.fd = -1, .every_ns = EVERY_NS};
	int rc = read_watchdog(n, err);
	if (rc == 0 && socket_name != NULL && !parse_address(socket_name, n))
		rc = sl_errf(err, SL_EINVAL, "NOTIFY_SOCKET: '%.120s' is neither a path nor an abstract name",
			     socket_name);
	if (rc == 0 && socket_name != NULL) {
		n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (n->fd < 0)
			rc = sl_errf(err, SL_EIO, "NOTIFY_SOCKET: %s", strerror(errno));
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return rc;
}

void notify_close(struct notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

void notify_send(const struct notify *n, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	if (n->fd < 0)
		return;
	va_start(ap, fmt);
	int len = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (len > 0 && (size_t)len < sizeof text)
		(void)sendto(n->fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&n->to, n->to_len);
}

void notify_status(struct notify *n, const char *text)
{
	if (n->fd < 0 || strncmp(n->status, text, sizeof n->status - 1) == 0)
		return;
	snprintf(n->status, sizeof n->status, "%s", text);
	notify_send(n, "STATUS=%s", n->status);
}

void notify_reloading(const struct notify *n)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t); /* the protocol's clock, whatever base/clock.h reads */
	notify_send(n, "RELOADING=1\nMONOTONIC_USEC=%llu",
		    (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000);
}
