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
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/metrics.h"
#include "base/utf8.h"

COUNTER(dropped, "sluice_log_lines_dropped_total", "Log lines that standard error did not accept.");

/* A pipe is writable when a whole line fits (pipe(7): PIPE_BUF is 4096). */
enum { TEXT_LINE = 2048, JSON_LINE = 4096, MESSAGE_MOST = 2048, MESSAGE_ROOM = 1024 };

static const char *log_process = "sluice";
static atomic_int log_form = LOG_TEXT;

atomic_int log_least[LOG_N_SUBSYSTEMS] = {LOG_INFO, LOG_INFO, LOG_INFO, LOG_INFO, LOG_INFO,
					  LOG_INFO, LOG_INFO, LOG_INFO, LOG_INFO};

const char *const log_level_names[] = {"debug", "info", "warn", "error", NULL};
const char *const log_subsystem_names[] = {"general",   "step",   "cache", "cascade", "routing",
					   "admission", "access", "store", "admin",   NULL};

void log_init(const char *process, enum log_level least)
{
	log_process = process;
	log_set_level(least);
}

void log_set_level(enum log_level least)
{
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		atomic_store_explicit(&log_least[i], (int)least, memory_order_relaxed);
}

void log_set_levels(const struct log_levels *l)
{
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		atomic_store_explicit(&log_least[i], l->least[i], memory_order_relaxed);
}

void log_get_levels(struct log_levels *out)
{
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		out->least[i] = (uint8_t)atomic_load_explicit(&log_least[i], memory_order_relaxed);
}

void log_set_format(enum log_format format) { atomic_store_explicit(&log_form, (int)format, memory_order_relaxed); }

static size_t print_time(char *out, size_t room)
{
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(out, room, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(out + n, room - n, ".%03ldZ", ts.tv_nsec / 1000000);
}

static void emit(const char *line, size_t n)
{
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&fd, 1, 0) != 1 || write(STDERR_FILENO, line, n) != (ssize_t)n)
		metric_add(&dropped, 1);
}

static void emit_text(enum log_level level, const char *fmt, va_list ap)
{
	char line[TEXT_LINE];
	size_t n = print_time(line, sizeof line);
	n += (size_t)snprintf(line + n, sizeof line - n, " %s %s: ", log_level_names[level], log_process);
	int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	if (m < 0)
		return;
	n += (size_t)m;
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	emit(line, n);
}

/* ---- JSON ---- */

/* A line in the making; what does not fit before `end` is not written. */
struct json_line {
	char bytes[JSON_LINE];
	size_t n, end;
};

static bool put(struct json_line *l, const char *bytes, size_t n)
{
	if (n > l->end - l->n)
		return false;
	memcpy(l->bytes + l->n, bytes, n);
	l->n += n;
	return true;
}

static bool put_text(struct json_line *l, const char *text) { return put(l, text, strlen(text)); }

/* One character of a string, *at of n bytes, which advances. A byte that is no UTF-8 becomes U+FFFD. */
static bool put_character(struct json_line *l, const uint8_t *s, size_t n, size_t *at)
{
	char escaped[8];
	uint32_t cp;
	int m = utf8_decode(s + *at, n - *at, &cp);
	const size_t from = *at;
	*at += m > 0 ? (size_t)m : 1;
	if (m <= 0)
		return put(l, "\xef\xbf\xbd", 3);
	if (cp >= 0x20 && cp != '"' && cp != '\\' && cp != 0x7f)
		return put(l, (const char *)s + from, (size_t)m);
	snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)cp);
	return put_text(l, escaped);
}

/* The bytes at the beginning of s that stand in a string as they are. */
static size_t plain_prefix(const char *s, size_t n)
{
	size_t k = 0;
	while (k < n && s[k] >= 0x20 && s[k] < 0x7f && s[k] != '"' && s[k] != '\\')
		k++;
	return k;
}

/* Cut at a whole character where the room ends, with space for the closing quote. */
static bool put_string(struct json_line *l, const char *text)
{
	size_t n = strlen(text), at = 0;
	bool whole = put(l, "\"", 1) && l->n < l->end;
	if (!whole)
		return false;
	l->end--;
	while (at < n && whole) {
		size_t plain = plain_prefix(text + at, n - at), room = l->end - l->n;
		put(l, text + at, plain < room ? plain : room);
		at += plain;
		whole = plain <= room && (at == n || put_character(l, (const uint8_t *)text, n, &at));
	}
	l->end++;
	put(l, "\"", 1);
	return whole;
}

static void put_field(struct json_line *l, const struct log_field *f)
{
	char number[40] = "";
	const size_t before = l->n;
	if (f->text == NULL)
		snprintf(number, sizeof number, "%.15g", f->number);
	bool whole = put_text(l, ",\"") && put_text(l, f->name) && put_text(l, "\":") &&
		     (f->text != NULL ? put_string(l, f->text) : put_text(l, number));
	if (!whole)
		l->n = before;
}

static void emit_json(enum log_level level, const struct log_field *fields, size_t n, const char *fmt, va_list ap)
{
	char time[40], head[160], message[MESSAGE_MOST];
	struct json_line l = {.end = JSON_LINE - MESSAGE_ROOM};
	print_time(time, sizeof time);
	snprintf(head, sizeof head, "{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"thread\":%d", time,
		 log_level_names[level], log_process, (int)gettid());
	if (vsnprintf(message, sizeof message, fmt, ap) < 0)
		return;
	message[utf8_whole_prefix((const uint8_t *)message, strlen(message))] = '\0';
	put_text(&l, head);
	for (size_t i = 0; i < n; i++)
		put_field(&l, &fields[i]);
	l.end = JSON_LINE - 2;
	put_text(&l, ",\"message\":");
	put_string(&l, message);
	l.end = JSON_LINE;
	put_text(&l, "}\n");
	emit(l.bytes, l.n);
}

static void emit_line(enum log_level level, const struct log_field *fields, size_t n, const char *fmt, va_list ap)
{
	if (atomic_load_explicit(&log_form, memory_order_relaxed) == LOG_JSON)
		emit_json(level, fields, n, fmt, ap);
	else
		emit_text(level, fmt, ap);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit_line(level, NULL, 0, fmt, ap);
	va_end(ap);
}

void log_write_fields(enum log_level level, const struct log_field *fields, size_t n, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit_line(level, fields, n, fmt, ap);
	va_end(ap);
}
