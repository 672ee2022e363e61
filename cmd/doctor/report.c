/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/doctor/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/text.h"

enum { LINE_MAX = 1024 };

static const char *const level_names[] = {"ok", "warn", "FAIL"};

static void clear(struct report *r)
{
	if (r->shown)
		fputs("\r\033[K", stderr);
	r->shown = false;
}

/* Text of files and servers must not command the terminal. */
static void format(char line[LINE_MAX], const char *fmt, va_list ap)
{
	vsnprintf(line, LINE_MAX, fmt, ap);
	text_one_line(line, '?');
}

void report_add(struct report *r, enum report_level level, const char *topic, const char *fmt, ...)
{
	char line[LINE_MAX];
	va_list ap;
	va_start(ap, fmt);
	format(line, fmt, ap);
	va_end(ap);
	r->n[level]++;
	clear(r);
	if (r->checks != NULL) {
		json_array_append_new(r->checks, json_pack("{s:s,s:s,s:s,s:[]}", "result", level_names[level], "topic",
							   topic, "text", line, "change"));
		return;
	}
	printf("%-5s %-12s %s\n", level_names[level], topic, line);
	fflush(stdout);
}

void report_change(struct report *r, const char *fmt, ...)
{
	char line[LINE_MAX];
	va_list ap;
	va_start(ap, fmt);
	format(line, fmt, ap);
	va_end(ap);
	clear(r);
	if (r->checks != NULL) {
		const json_t *last = json_array_get(r->checks, json_array_size(r->checks) - 1);
		json_array_append_new(json_object_get(last, "change"), json_string(line));
		return;
	}
	printf("      change: %s\n", line);
	fflush(stdout);
}

void report_progress(struct report *r, const char *what)
{
	if (!r->shows)
		return;
	fprintf(stderr, "\r\033[K%s …", what);
	fflush(stderr);
	r->shown = true;
}

int report_end(struct report *r)
{
	clear(r);
	if (r->checks != NULL) {
		json_t *all = json_pack("{s:b,s:o}", "ok", r->n[REPORT_FAIL] == 0, "checks", r->checks);
		char *text = all != NULL ? json_dumps(all, JSON_INDENT(2)) : NULL;
		puts(text != NULL ? text : "{\"ok\":false,\"checks\":[]}");
		sl_free(text);
		json_decref(all);
	} else {
		printf("%zu ok, %zu to look at, %zu wrong\n", r->n[REPORT_OK], r->n[REPORT_WARN], r->n[REPORT_FAIL]);
	}
	return r->n[REPORT_FAIL] > 0;
}
