/* SPDX-License-Identifier: Apache-2.0
 *
 * Logged outcomes of the cascade (etc/cascade.md), read from JSON Lines.
 */
#ifndef CMD_OUTCOMES_H
#define CMD_OUTCOMES_H

#include "cascade/cascade.h"

enum verdict { VERDICT_NONE = -1, VERDICT_WRONG, VERDICT_RIGHT };

struct outcome {
	float *dense; /* [CASC_N_FEATURES]; NULL: no features */
	uint32_t *grams;
	uint32_t n_grams;
	float *trace;
	uint32_t n_trace;
	int8_t plan, why, escalated;            /* as in cascade.h; -1: unknown */
	int8_t small_right, large_right, right; /* enum verdict */
	double ttft_ms;                         /* below 0: unknown */
	struct casc_cost cost;
};

struct outcomes {
	struct outcome *at;
	size_t n, cap;
};

/* Reads all lines of the file at path ("-": standard input). 0, SL_EIO, SL_EINVAL or SL_ENOMEM; *err is then one line
 * `FILE:LINE: what`. The caller disposes of out after 0. */
int outcomes_read(const char *path, struct outcomes *out, struct sl_err *err);
/* The same behind those that out has; after an error it has none. */
int outcomes_add(const char *path, struct outcomes *out, struct sl_err *err);
void outcomes_dispose(struct outcomes *o);

#endif
