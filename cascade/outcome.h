/* SPDX-License-Identifier: Apache-2.0
 *
 * The log line of an answered request, for `sluice cascade train`, `calibrate` and `report`: JSON, described in
 * etc/cascade.md. It contains no text of a prompt or answer.
 */
#ifndef CASCADE_OUTCOME_H
#define CASCADE_OUTCOME_H

#include "base/buf.h"
#include "cascade/cascade.h"

struct casc_outcome_log {
	const char *id, *tier; /* borrowed, like all pointers here */
	int64_t at_unix_s;
	const struct casc *request;
	float score;
	const struct casc_features *features; /* NULL: not logged */
	const float *trace;                   /* the confidence after each token of the small model */
	uint32_t n_trace;
	uint32_t ttft_ms;
	/* If held: from the first token to the end of the hold, and to the first shown token. */
	double hold_ms, shown_ms;
};

/* Appends the line with its newline. 0; SL_ELIMIT, SL_ENOMEM: nothing was appended. */
int casc_outcome_print(struct sl_buf *out, const struct casc_outcome_log *o);

#endif
