/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/remake.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/proto/proto.h"
#include "gateway/generation/submit_frame.h"

struct remake {
	struct submit_frame *frame;
	struct proto_submit s;
	uint64_t since_ns;
	bool begun;
	struct remade_choice {
		uint64_t n, sum;         /* tokens in the log, and over their ids */
		uint64_t seen, seen_sum; /* the same of this run */
	} of[PROTO_MAX_CHOICES];
};

struct remake *remake_create(struct submit_frame *frame, const struct proto_submit *s, bool begun, uint64_t now_ns)
{
	struct remake *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	r->frame = submit_frame_ref(frame);
	r->s = *s;
	r->since_ns = now_ns;
	/* They were reported already. */
	r->begun = begun && s->prompt_logprobs == 0;
	return r;
}

void remake_destroy(struct remake *r)
{
	if (r == NULL)
		return;
	submit_frame_unref(r->frame);
	sl_free(r);
}

const struct proto_submit *remake_submitted(const struct remake *r) { return &r->s; }

bool remake_left(const struct remake *r, uint64_t now_ns, struct proto_submit *out)
{
	uint64_t passed_ms = (now_ns - r->since_ns) / NS_PER_MS;
	*out = r->s;
	if (!r->begun || (r->s.deadline_ms > 0 && passed_ms >= r->s.deadline_ms))
		return false;
	if (r->s.deadline_ms > 0)
		out->deadline_ms -= (uint32_t)passed_ms;
	return true;
}

const struct proto_submit *remake_begin(struct remake *r, uint64_t now_ns)
{
	uint64_t passed_ms = (now_ns - r->since_ns) / NS_PER_MS, n = 0;
	if (r->s.deadline_ms > 0 && passed_ms >= r->s.deadline_ms)
		return NULL;
	if (r->s.deadline_ms > 0)
		r->s.deadline_ms -= (uint32_t)passed_ms;
	r->since_ns = now_ns;
	for (int i = 0; i < PROTO_MAX_CHOICES; i++) {
		r->of[i].seen = r->of[i].seen_sum = 0;
		n += r->of[i].n;
	}
	if (r->s.rate_tps > 0 && n < UINT32_MAX - r->s.burst)
		r->s.burst += (uint32_t)n;
	return &r->s;
}

static uint64_t add(uint64_t sum, uint32_t id) { return (sum ^ id) * 0x9E3779B97F4A7C15u + 1; }

bool remake_take(struct remake *r, const struct proto_tokens *m, struct proto_tokens *rest)
{
	struct remade_choice *c = &r->of[m->choice];
	uint16_t k = 0;
	for (uint16_t i = 0; i < m->n; i++) {
		c->seen_sum = add(c->seen_sum, proto_token_at(m, i).id);
		c->seen++;
		if (c->seen == c->n && c->seen_sum != c->sum)
			return false;
		k = (uint16_t)(k + (c->seen <= c->n));
	}
	proto_tokens_skip(m, k, rest);
	if (c->seen > c->n) {
		c->n = c->seen;
		c->sum = c->seen_sum;
	}
	return true;
}

bool remake_is_even(const struct remake *r)
{
	for (int i = 0; i < PROTO_MAX_CHOICES; i++)
		if (r->of[i].seen < r->of[i].n)
			return false;
	return true;
}

bool remake_is_spent(const struct remake *r) { return !r->begun; }
