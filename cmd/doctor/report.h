/* SPDX-License-Identifier: Apache-2.0
 *
 * What doctor found: one line for each check as it ends, or one JSON object at the end.
 *
 *   ok    ports        127.0.0.1:8080 is free
 *   FAIL  certificate  /etc/ssl/llm/cert.pem expired on 2026-01-01
 *         change: gateway.cert: a valid certificate, then SIGHUP to `sluice serve`
 */
#ifndef CMD_DOCTOR_REPORT_H
#define CMD_DOCTOR_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum report_level { REPORT_OK, REPORT_WARN, REPORT_FAIL };

struct report {
	json_t *checks; /* NULL: lines are printed */
	bool shows;     /* progress, on a terminal */
	bool shown;     /* a line of it stands there */
	size_t n[3];    /* by level */
};

void report_add(struct report *r, enum report_level level, const char *topic, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A line to change, of the check that was added last. */
void report_change(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What is going on, until the next line. */
void report_progress(struct report *r, const char *what);
/* The summary. The exit status. */
int report_end(struct report *r);

#endif
