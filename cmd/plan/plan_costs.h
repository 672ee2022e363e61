/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps of a model cost on this machine, measured.
 */
#ifndef CMD_PLAN_COSTS_H
#define CMD_PLAN_COSTS_H

#include <stdint.h>

#include "base/err.h"
#include "cmd/plan/plan_curve.h"

struct plan_costs {
	struct plan_curve curve;
	struct cost cost; /* the same as an engine learns it */
	double draw_ns;   /* of one token from its logits */
	double kv_bytes;  /* per token */
	int n_ctx;        /* of the model's training */
};

/* Steps of n_threads. n_beside: while another process runs one-row steps on so many threads; 0: alone. *err. The model
 * is loaded anew; a second or two for a small one. */
int plan_costs_measure(const char *path, const char *kv, int n_threads, int n_beside, struct plan_costs *out,
		       struct sl_err *err);

#endif
