/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of all engines and models (error_limit.h), for the whole process: its threads learn from each other's
 * errors. Counters, and one line of the log for each change.
 *
 * Thread: any; one lock, held for a few instructions at a request's begin, first token and end.
 */
#ifndef GATEWAY_ERROR_LIMITS_H
#define GATEWAY_ERROR_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/config/gw_config.h"

/* A request's engine and model, by the engine's number and its own number of the model. */
struct error_limit_key {
	int engine, model;
	const char *engine_name, *model_name; /* for the log */
};

/* Once per process and per test: everything is open and nothing is there. */
void error_limits_clear(void);
/* Is anything limited? */
bool error_limits_any(void);
/* False: *retry_ms, the time after which it would be. */
bool error_limits_admit(const struct error_limit_key *k, uint64_t now_ns, uint64_t *retry_ms);
void error_limits_enter(const struct error_limit_key *k, uint64_t now_ns);
void error_limits_success(const struct error_limit_key *k, uint8_t group, uint64_t now_ns);
void error_limits_error(const struct error_limit_key *k, uint8_t group, bool begun, uint64_t now_ns);
void error_limits_leave(const struct error_limit_key *k, uint64_t held_ns, uint64_t now_ns);

#endif
