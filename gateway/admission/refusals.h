/* SPDX-License-Identifier: Apache-2.0
 *
 * Recent refusals under load, for /health: for each reason the count, and the age and predicted wait of the last
 * refusal. Process-wide; any thread may call.
 */
#ifndef GATEWAY_REFUSALS_H
#define GATEWAY_REFUSALS_H

#include <stdint.h>

#include "base/buf.h"

enum refusal {
	REFUSED_LATE,
	REFUSED_FULL,
	REFUSED_WAITED,
	REFUSED_PROMPT,
	REFUSED_DISPLACED,
	REFUSED_ERRORS,
	N_REFUSALS
};

/* predicted_ms: the predicted wait for the first token. */
void refusals_note(enum refusal why, uint64_t predicted_ms, uint64_t now_ns);
/* Appends a JSON list of the reasons with a refusal in the last minute. 0, SL_ENOMEM or SL_ELIMIT. */
int refusals_print(struct sl_buf *out, uint64_t now_ns);

#endif
