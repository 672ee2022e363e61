/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging: one line per event on standard error, `time level process: text`, or one JSON object. Thread-safe (one write
 * per line). Never log prompts, answers or keys.
 *
 * Each subsystem has a level of its own, which changes at run time. A source file belongs to the subsystem that it
 * names in LOG_SUBSYSTEM before it includes this header, and to LOG_GENERAL if it names none. A line below the level
 * costs one load and one branch: its arguments are not evaluated.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* What log.levels names (log_subsystem_names has the same order). */
enum log_subsystem {
	LOG_GENERAL,   /* everything else: processes, links, models, memory, records */
	LOG_STEP,      /* the engine's steps: batches, pre-emptions */
	LOG_CACHE,     /* where prompts leave the prefix cache */
	LOG_CASCADE,   /* the cascade's plans and switches */
	LOG_ROUTING,   /* the model that a request gets */
	LOG_ADMISSION, /* answers refused, displaced and cut under load */
	LOG_ACCESS,    /* one line a request */
	LOG_STORE,     /* the store's link */
	LOG_ADMIN,     /* administrators' actions */
	LOG_N_SUBSYSTEMS
};

extern const char *const log_subsystem_names[LOG_N_SUBSYSTEMS + 1]; /* ends with NULL, as does the next */
extern const char *const log_level_names[];

/* enum log_level of each subsystem. */
struct log_levels {
	uint8_t least[LOG_N_SUBSYSTEMS];
};

/* process: its name in every line ("gateway", "engine"); borrowed for ever. */
void log_init(const char *process, enum log_level least);
/* Of all subsystems. Any thread, as the next three. */
void log_set_level(enum log_level least);
void log_set_levels(const struct log_levels *l);
void log_get_levels(struct log_levels *out);
void log_set_format(enum log_format format);

/* For log_takes only. */
extern atomic_int log_least[LOG_N_SUBSYSTEMS];

static inline bool log_takes_of(enum log_subsystem of, enum log_level level)
{
	return (int)level >= atomic_load_explicit(&log_least[of], memory_order_relaxed);
}

/* A member of a JSON line beside time, level, process, thread and message. */
struct log_field {
	const char *name; /* a literal of the source */
	const char *text; /* any bytes; NULL: `number` counts */
	double number;
};
/* Write a line whatever the levels are; use the macros. Lines of text have no fields. Fields that do not fit into a
 * line are left out, a message that does not is cut. */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_write_fields(enum log_level level, const struct log_field *fields, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#ifndef LOG_SUBSYSTEM
#define LOG_SUBSYSTEM LOG_GENERAL
#endif

/* Whether this file's lines of that level are written: for callers with work to do before one. */
#define log_takes(level) log_takes_of(LOG_SUBSYSTEM, level)
/* A file's line in another subsystem. */
#define log_of(of, level, ...)                         \
	do {                                           \
		if (log_takes_of(of, level))           \
			log_write(level, __VA_ARGS__); \
	} while (0)
#define log_at(level, ...) log_of(LOG_SUBSYSTEM, level, __VA_ARGS__)
#define log_fields(level, ...)                                \
	do {                                                  \
		if (log_takes(level))                         \
			log_write_fields(level, __VA_ARGS__); \
	} while (0)

#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
