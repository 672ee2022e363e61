/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines go straight to standard error, which may be full, closed or an unread pipe. Logging must not block a serving
 * loop: a line whose write would block is dropped and counted. The descriptor stays blocking because other processes
 * share it.
 *
 * Thread: any.
 */
#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/metrics.h"

COUNTER(dropped, "sluice_log_lines_dropped_total", "Log lines that standard error did not accept.");

static const char *log_process = "sluice";
static atomic_int log_least = LOG_INFO;

void log_init(const char *process, enum log_level least)
{
	log_process = process;
	log_set_level(least);
}

void log_set_level(enum log_level least) { atomic_store_explicit(&log_least, (int)least, memory_order_relaxed); }

void log_at(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	if ((int)level < atomic_load_explicit(&log_least, memory_order_relaxed))
		return;

	char line[2048];
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %s: ", ts.tv_nsec / 1000000, names[level],
			      log_process);

	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += (size_t)m;
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	/* A pipe is writable when a whole line fits (pipe(7): PIPE_BUF). */
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&fd, 1, 0) != 1 || write(STDERR_FILENO, line, n) != (ssize_t)n)
		metric_add(&dropped, 1);
}
