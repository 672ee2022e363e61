/* SPDX-License-Identifier: Apache-2.0
 *
 * Why requests were refused for load of late, for /health: each reason with how often, how long ago, and the wait that
 * was predicted for the last one. The process's, all threads together; any thread may call.
 */
#ifndef GATEWAY_REFUSALS_H
#define GATEWAY_REFUSALS_H

#include <stdint.h>

#include "base/buf.h"

enum refusal { REFUSED_LATE, REFUSED_FULL, REFUSED_WAITED, REFUSED_PROMPT, REFUSED_DISPLACED, N_REFUSALS };

/* predicted_ms: until the first token, when it was refused. */
void refusals_note(enum refusal why, uint64_t predicted_ms, uint64_t now_ns);
/* Appends a JSON list of the reasons of the last minute. 0, SL_ENOMEM or SL_ELIMIT. */
int refusals_print(struct sl_buf *out, uint64_t now_ns);

#endif
