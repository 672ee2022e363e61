/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/prefill_choice.h"

#include "base/proto/proto.h"

enum prefill_why prefill_choose(const struct gw_prefill *p, const struct prefill_question *q)
{
	bool busy = q->n_running >= p->busy && q->n_missing >= p->busy_tokens;
	if (!q->fits)
		return PREFILL_UNFIT;
	if (q->n_missing < p->tokens && !busy)
		return PREFILL_SHORT;
	if (!q->has_engine)
		return PREFILL_NONE;
	if (q->n_queued >= p->queue)
		return PREFILL_QUEUE;
	return q->priority >= p->local_priority && q->n_queued > 0 ? PREFILL_TIER : PREFILL_APART;
}

const char *prefill_why_name(enum prefill_why why)
{
	static const char *const names[PREFILL_WHYS] = {"undecided", "apart", "short", "queue",
							"tier",      "none",  "unfit", "refused"};
	return names[why];
}

const char *prefill_end_name(uint8_t end)
{
	static const char *const names[PROTO_HANDED_WHYS] = {"all",     "late", "ended", "full",
							     "foreign", "room", "gone",  "unfit"};
	return end < PROTO_HANDED_WHYS ? names[end] : "unknown";
}
