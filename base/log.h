/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging: one line per event on standard error, `time level process: text`, or one JSON object. Thread-safe (one write
 * per line). Never log prompts, answers or keys.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* process: its name in every line ("gateway", "engine"); borrowed for ever. */
void log_init(const char *process, enum log_level least);
/* Any thread. */
void log_set_level(enum log_level least);
void log_set_format(enum log_format format);

/* Whether lines of that level are written: for callers with work to do before one. Any thread. */
bool log_takes(enum log_level level);

void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A member of a JSON line beside time, level, process, thread and message. */
struct log_field {
	const char *name; /* a literal of the source */
	const char *text; /* any bytes; NULL: `number` counts */
	double number;
};
/* As log_at; lines of text have no fields. Fields that do not fit into a line are left out, a message that does not is
 * cut. */
void log_fields(enum log_level level, const struct log_field *fields, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
