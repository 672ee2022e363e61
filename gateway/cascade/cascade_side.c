/* SPDX-License-Identifier: Apache-2.0
 *
 * One model of a run: its sequence on the engine link, from SUBMIT to the end.
 *
 * If submitting fails, the side fails as if the engine had ended the sequence, but only after the actions in progress
 * (small_failed, large_failed).
 *
 * Credit. The generation's credit (room) counts tokens of both models. Credit can't be withdrawn, and tokens beyond the
 * deciding one are wasted, so a watched small model gets only a few tokens ahead. Before anything is shown, it gets
 * little more than the tokens of the hold, because its steps delay the large model's prompt. A paused model gets none.
 *
 * A large model with a draft gets what is left if the whole draft is accepted, and at least one token: without credit,
 * the engine computes nothing. Once the answer is admitted, a sequence gets credit along with its SUBMIT, so that its
 * prompt is computed as soon as it is tokenized.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "gateway/cascade/cascade_prompt.h"
#include "gateway/cascade/cascade_run_priv.h"
#include "gateway/transport/http.h"

enum {
	WATCH_AHEAD = 8, /* credit of a watched small model: a few engine steps */
	HOLD_AHEAD = 2,  /* credit beyond the hold: covers the delay of further credit */
};

static const char busy[] = "The server is busy.";

static struct engine_link *link_of(const struct cascade_run *r) { return r->t->link; }

/* ---- closing ---- */

void cascade_side_forget(struct cascade_side *s)
{
	if (s->id != 0)
		engine_link_forget(link_of(s->run), s->id);
	s->id = 0;
}

static void on_stopped(void *hold) { http_release(hold); }

void cascade_sides_close(struct cascade_run *r, struct http_hold *hold)
{
	struct cascade_side *s = r->large.id != 0 ? &r->large : &r->small;
	if (s->id != 0 && hold != NULL) {
		engine_link_abandon(link_of(r), s->id, on_stopped, hold);
		s->id = 0;
	} else {
		http_release(hold);
	}
	cascade_side_forget(&r->small);
	cascade_side_forget(&r->large);
}

void cascade_side_set_failed(struct cascade_side *s, uint8_t error, const char *message, size_t n)
{
	struct cascade_run *r = s->run;
	sl_free(r->message);
	r->message = sl_strndup(message, n);
	s->done = (struct proto_done){.finish = PROTO_FINISH_ERROR, .error = error};
	*(s == &r->small ? &r->small_failed : &r->large_failed) = true;
}

void cascade_side_fail(struct cascade_side *s, uint8_t error, const char *message)
{
	cascade_side_forget(s);
	cascade_side_set_failed(s, error, message, strlen(message));
}

/* ---- submitting ---- */

/* Appends what is released, but not delivered: a decision is being stored. */
static int put_released(struct cascade_run *r, struct sl_buf *text)
{
	struct proto_tokens m;
	if (r->small.n_ready == 0)
		return 0;
	cascade_queue_front(&r->small.queue, r->small.n_ready, &m);
	return m.n == r->small.n_ready ? buf_append(text, m.text.at, m.text.n) : SL_ELIMIT;
}

/* The tokenizers differ, so the large model continues after text. */
static int put_kept(struct cascade_run *r, struct proto_submit *s, struct sl_buf *prompt)
{
	struct sl_buf text;
	buf_init(&text, PROTO_MAX_PAYLOAD);
	int rc = r->kept.len > 0 ? buf_append(&text, buf_data(&r->kept), r->kept.len) : 0;
	rc = rc == 0 ? put_released(r, &text) : rc;
	if (rc == 0 && text.len > 0) {
		rc =
		    cascade_prompt_continue(prompt, s->prompt_kind, s->prompt, (const char *)buf_data(&text), text.len);
		s->prompt = (struct proto_str){(const char *)buf_data(prompt), prompt->len};
		s->frame = (struct proto_str){NULL, 0}; /* another prompt */
	}
	buf_dispose(&text);
	return rc;
}

/* The large model verifies n_given tokens and keeps at least n_keep of them. */
static int put_given(struct cascade_run *r, struct proto_submit *s, uint32_t n_given, uint32_t n_keep)
{
	if (n_given > PROTO_MAX_GIVEN || n_given * sizeof(uint32_t) > r->ids.len || n_keep >= r->max_tokens)
		return SL_ELIMIT;
	s->n_given = (uint16_t)n_given;
	s->n_keep = (uint16_t)n_keep;
	s->given = (const uint32_t *)(const void *)buf_data(&r->ids);
	s->max_tokens = r->max_tokens - n_keep;
	return 0;
}

static void watch(const struct cascade_run *r, struct proto_submit *s)
{
	if (r->casc.plan != CASC_PLAN_CHECK && r->casc.plan != CASC_PLAN_RACE)
		return;
	s->flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	if (s->n_top_logprobs < CASC_TOP)
		s->n_top_logprobs = CASC_TOP;
}

static int send_submit(struct cascade_side *side, struct proto_submit *s, uint32_t n_given, uint32_t n_keep)
{
	struct cascade_run *r = side->run;
	uint64_t waited_ms = (clock_now_ns() - r->submitted_ns) / NS_PER_MS;
	struct sl_buf prompt;
	int rc = 0;
	s->model = (uint16_t)side->model;
	s->flags |= PROTO_SUBMIT_WANT_IDS; /* of an upstream: each token by itself, because tokens are counted here */
	side->n_behind = n_given == 0 ? n_keep : 0;
	if (s->deadline_ms > 0)
		s->deadline_ms = waited_ms < s->deadline_ms ? s->deadline_ms - (uint32_t)waited_ms : 1;
	buf_init(&prompt, PROTO_MAX_PAYLOAD);
	if (side == &r->small)
		watch(r, s);
	else if (n_given > 0)
		rc = put_given(r, s, n_given, n_keep);
	else if (n_keep > 0)
		rc = put_kept(r, s, &prompt);
	if (rc == 0 && n_given == 0 && n_keep > 0)
		s->max_tokens = r->max_tokens > n_keep ? r->max_tokens - n_keep : 1;
	if (rc == 0)
		rc = engine_link_submit(link_of(r), s, &cascade_side_listener, side, &side->id);
	if (rc == 0)
		engine_link_lane(link_of(r), side->id, r->lane);
	buf_dispose(&prompt);
	return rc;
}

/* In a repeated run: is it known that this sequence fails or loses? Then it is not submitted. */
static bool skip_known(struct cascade_side *side)
{
	struct cascade_run *r = side->run;
	bool fails;
	if (side == &r->small) {
		if (r->known & CASC_PAST_LARGE_WON)
			return true;
		fails = (r->known & CASC_PAST_SMALL_FAILED) != 0 && r->past.failed == 0;
	} else {
		if ((r->known & CASC_PAST_SMALL_WON) && !r->left_out) {
			r->left_out = true;
			return true;
		}
		fails = (r->known & CASC_PAST_LARGE_LOST) != 0;
	}
	if (fails)
		cascade_side_set_failed(side, PROTO_ERR_OVERLOADED, cascade_run_failed_before,
					strlen(cascade_run_failed_before));
	return fails;
}

void cascade_side_submit(struct cascade_side *side, uint32_t n_given, uint32_t n_keep)
{
	struct cascade_run *r = side->run;
	struct proto_submit s = r->submit;
	if (skip_known(side))
		return;
	if (r->gen == NULL && r->is_queued)
		return; /* the generation is gone */
	if (r->frame == NULL || side->model < 0) {
		cascade_side_set_failed(side, PROTO_ERR_OVERLOADED, busy, strlen(busy));
		return;
	}
	side->lost_prompt += side->n_prompt;
	side->n_prompt = side->made = side->credited = side->n_ready = side->n_sent = side->n_behind = 0;
	side->queued = false;
	if (side->sent_by != NULL)
		memset(side->sent_by, 0, r->n_choices * sizeof *side->sent_by);
	side->verifying = n_given > 0;
	side->most = UINT32_MAX;
	cascade_queue_clear(&side->queue);
	int rc = send_submit(side, &s, n_given, n_keep);
	if (rc == SL_ECLOSED)
		cascade_side_set_failed(side, PROTO_ERR_NOT_READY, cascade_run_gone, strlen(cascade_run_gone));
	else if (rc != 0)
		cascade_side_set_failed(side, PROTO_ERR_OVERLOADED, busy, strlen(busy));
}

/* ---- credit ---- */

/* The credit that s may have now. */
static uint32_t may_make(const struct cascade_side *s)
{
	const struct cascade_run *r = s->run;
	uint32_t before = r->casc.small.shown, most;
	if (s == &r->small) {
		if (r->paused)
			return 0;
		if (!cascade_run_is_watched(r))
			return r->room;
		most = s->made + WATCH_AHEAD;
		if (r->casc.phase != CASC_SHOWN && most > (uint32_t)r->casc.policy.hold_tokens + HOLD_AHEAD)
			most = (uint32_t)r->casc.policy.hold_tokens + HOLD_AHEAD;
		return most < r->room ? most : r->room;
	}
	if (r->casc.phase == CASC_SWITCH)
		before = r->casc.small.made;
	return r->room > before ? r->room - before : 1;
}

void cascade_side_give(struct cascade_side *s)
{
	struct cascade_run *r = s->run;
	if (s->id == 0 || r->room == 0 || r->gen == NULL)
		return;
	uint32_t most = may_make(s);
	/* In batches, but before it runs out. */
	if (most <= s->credited || (cascade_run_is_watched(r) && s->credited - s->made > WATCH_AHEAD / 2))
		return;
	engine_link_credit(link_of(r), s->id, most - s->credited);
	s->credited = most;
}
