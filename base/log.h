/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging: one line per event on standard error, `time level process: text`. Thread-safe (one write per line). Never
 * log prompts, answers or keys.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* process: its name in every line ("gateway", "engine"); borrowed for ever. */
void log_init(const char *process, enum log_level least);
/* Any thread. */
void log_set_level(enum log_level least);

void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
