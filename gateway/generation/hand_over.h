/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-over of one generation: its prompt is computed by an engine of role prefill while the sequence of the answer
 * waits on its own engine for the pages. Which engine that is, and whether, prefill_choice.h decides.
 *
 *   begin       a SUBMIT without tokens to the prefill engine, with the handle and a credit; then HAND to the engine that
 *               decodes, before its first credit
 *   lost, done  the prefill engine has ended or given up: HAND says so to the other one, which computes what is missing
 *   handed      the waiting engine has all pages, or goes on without; then the prompt's sequence is cancelled
 *
 * A hand-over ends with its generation at the latest. It never fails a generation. One gateway thread.
 */
#ifndef GATEWAY_HAND_OVER_H
#define GATEWAY_HAND_OVER_H

#include "base/proto/proto.h"
#include "gateway/generation/prefill_choice.h"

struct hand_over;
struct gw_thread;

/* id: of the sequence that is admitted now; s: as it was submitted, or NULL: that is not known any more; q: its QUEUED.
 * NULL: the prompt is computed by its own engine. *out says why in either case. */
struct hand_over *hand_over_begin(struct gw_thread *t, uint64_t id, const struct proto_submit *s,
				  const struct proto_queued *q, struct prefill_choice *out);
/* The waiting engine's report. */
void hand_over_take(struct hand_over *h, const struct proto_handed *m, struct prefill_choice *out);
/* Cancels what is left of it. NULL is allowed. */
void hand_over_end(struct hand_over *h);

#endif
