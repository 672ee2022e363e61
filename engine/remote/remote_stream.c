/* SPDX-License-Identifier: Apache-2.0
 *
 * Time limits of a stream: its silence (not while it is paused here), its whole length, the request's deadline. Pace:
 * the request's bucket of `burst` tokens filled at rate_tps, kept as the time at which the next token would be due if
 * none were early (GCRA).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/remote/remote_priv.h"

enum { SOON_QUEUE_BYTES = 128 };

static struct remote_stream *of_call(struct remote_call *c)
{
	return (struct remote_stream *)(void *)((char *)c - offsetof(struct remote_stream, call));
}

/* ---- events ---- */

static void on_event(void *ctx, const char *data, size_t n)
{
	struct remote_seq *s = ctx;
	if (!s->stream->call.failed && !s->answer.complete && !remote_answer_event(&s->answer, data, n))
		remote_call_fail(&s->stream->call, s->answer.fault, s->answer.why);
}

static bool on_data(struct remote_call *c, const char *bytes, size_t n)
{
	struct remote_seq *s = of_call(c)->seq;
	if (s == NULL) /* lingering: what follows the answer's end is not read */
		return true;
	s->byte_ns = clock_now_ns();
	if (sse_read_feed(&s->sse, bytes, n) != 0)
		remote_call_fail(c, PROTO_FAULT_LONG, "a line or an event is too long");
	c->paused = s->answer.queue.len > REMOTE_QUEUE_PAUSE;
	return !c->failed;
}

/* Between two events of a stream those of others empty the cache. */
static void on_soon(const struct remote_call *c, struct remote_soon out[REMOTE_SOON])
{
	const struct remote_seq *s = ((const struct remote_stream *)(const void *)c)->seq;
	_Static_assert(offsetof(struct remote_stream, call) == 0, "a call begins its stream");
	out[0] = (struct remote_soon){c, offsetof(struct remote_call, why)};
	if (s == NULL)
		return;
	out[1] = (struct remote_soon){s, offsetof(struct remote_seq, asked) + offsetof(struct proto_submit, stop_ids)};
	out[2] = (struct remote_soon){&s->sse, sizeof s->sse + offsetof(struct remote_answer, choices) +
						   sizeof *s->answer.choices};
	out[3] = (struct remote_soon){s->answer.form.text.mem, s->answer.form.text.len};
	out[4] = (struct remote_soon){s->answer.queue.mem, SOON_QUEUE_BYTES};
	out[5] = (struct remote_soon){s->at, 1};
}

static void on_progress(struct remote_call *c)
{
	struct remote_seq *s = of_call(c)->seq;
	if (s != NULL)
		remote_seq_advance(s);
}

/* ---- the end of the response ---- */

static void fail_with(struct remote_seq *s, const struct remote_call *c)
{
	s->failing = true;
	remote_failure_of(c, &s->failure);
}

/* Once more on a new connection, if the first one brought nothing. */
static bool try_again(struct remote_seq *s, struct remote_call *c)
{
	if (!remote_fault_retries(c) || !breaker_closed(&s->r->breaker))
		return false;
	c->fresh = true;
	if (remote_call_start(s->r->http, c) != 0)
		return false;
	s->r->stats.upstream.retries++;
	s->byte_ns = clock_now_ns();
	return true;
}

static void on_end(struct remote_call *c)
{
	struct remote_stream *st = of_call(c);
	struct remote_seq *s = st->seq;
	if (s == NULL) {
		remote_stream_free(st);
		return;
	}
	if (c->kind == REMOTE_STREAM && !c->failed && !remote_answer_ended(&s->answer))
		remote_call_fail(c, PROTO_FAULT_CUT, "the stream ended before the answer");
	if (c->failed && remote_answer_ended(&s->answer) && c->kind == REMOTE_STREAM)
		c->failed = false; /* the answer is whole, only its count may be missing */
	if (c->failed) {
		if (try_again(s, c))
			return;
		remote_failed(s->r, false, c->fault, c->why);
		fail_with(s, c);
	} else if (c->kind == REMOTE_WHOLE) {
		remote_worked(s->r, false);
		remote_embed_end(s);
		return;
	}
	s->answer.complete = s->answer.complete || !s->failing;
	remote_seq_advance(s);
}

/* ---- starting and leaving ---- */

void remote_stream_free(struct remote_stream *st)
{
	remote_call_stop(&st->call);
	remote_call_dispose(&st->call);
	list_remove(&st->node);
	if (st->timer != NULL)
		event_free(st->timer);
	buf_dispose(&st->body);
	sl_free(st);
}

static void on_lingered(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	remote_stream_free(ctx);
}

int remote_stream_start(struct remote_seq *s)
{
	struct remote_stream *st = s->stream;
	bool embeds = (s->asked.flags & PROTO_SUBMIT_EMBED) != 0;
	st->call = (struct remote_call){.kind = embeds ? REMOTE_WHOLE : REMOTE_STREAM,
					.path = s->path,
					.body = (const char *)buf_data(&st->body),
					.n_body = st->body.len,
					.on_soon = on_soon,
					.on_data = on_data,
					.on_progress = on_progress,
					.on_end = on_end};
	s->byte_ns = clock_now_ns();
	sse_read_init(&s->sse, REMOTE_EVENT_MAX, on_event, s);
	return remote_call_start(s->r->http, &st->call);
}

void remote_stream_leave(struct remote_seq *s)
{
	static const struct timeval a_while = {.tv_sec = REMOTE_LINGER_MS / 1000};
	struct remote_stream *st = s->stream;
	s->stream = NULL;
	st->seq = NULL;
	/* A response that is let come to its end leaves its connection for others. */
	bool may_linger =
	    st->call.http != NULL && s->answer.complete && !s->failing && !st->call.failed && !st->call.paused;
	if (may_linger)
		st->timer = evtimer_new(s->r->base, on_lingered, st);
	if (st->timer == NULL || event_add(st->timer, &a_while) != 0) {
		remote_stream_free(st);
		return;
	}
	list_push_back(&s->r->lingering, &st->node);
}

/* ---- tokens ---- */

/* How many of at most `most` tokens the request's pace allows now; *due_ns: when there may be more. */
static uint32_t allowed_now(struct remote_seq *s, uint64_t now, uint32_t most, uint64_t *due_ns)
{
	*due_ns = UINT64_MAX;
	if (s->asked.rate_tps <= 0)
		return most;
	uint64_t each = (uint64_t)(1e9 / (double)s->asked.rate_tps) + 1,
		 early = each * (s->asked.burst > 0 ? s->asked.burst - 1 : 0);
	uint32_t n = 0;
	s->pace_ns = s->pace_ns < now ? now : s->pace_ns;
	for (uint64_t at = s->pace_ns; n < most && at <= now + early; at += each)
		n++;
	*due_ns = s->pace_ns + (uint64_t)n * each - early;
	return n;
}

static void count_pace(struct remote_seq *s, uint32_t n)
{
	if (s->asked.rate_tps > 0)
		s->pace_ns += n * ((uint64_t)(1e9 / (double)s->asked.rate_tps) + 1);
}

static void send_frame(struct remote_seq *s, uint32_t most)
{
	struct remote *r = s->r;
	struct remote_frame *f = &r->frame;
	if (remote_answer_look(&s->answer, most, f) != 0)
		return;
	hub_post_tokens_here(r->hub, s->at, &f->tokens);
	remote_answer_drop(&s->answer, f);
	s->credit -= f->tokens.n;
	count_pace(s, f->tokens.n);
	r->stats.steps++;
	r->stats.decode_tokens += f->tokens.n;
	r->models[s->asked.model].figures.decode_tokens += f->tokens.n;
	if (s->first_ns == 0)
		s->first_ns = clock_now_ns();
}

static void send_end(struct remote_seq *s)
{
	uint8_t at = remote_answer_take_end(&s->answer);
	const struct remote_choice *c = &s->answer.choices[at];
	struct eng_event ev = {.kind = ENG_CHOICE,
			       .id = s->node.key,
			       .u.choice = {.choice = at,
					    .finish = c->finish,
					    .stop = c->stop,
					    .stop_at = c->stop_at,
					    .n_completion = c->n_deltas}};
	if (s->asked.n > 1)
		hub_post_here(s->r->hub, &ev);
}

/* Sends what credit and pace allow. Returns when pace allows more. */
static uint64_t send_tokens(struct remote_seq *s, uint64_t now)
{
	enum remote_next next;
	while ((next = remote_answer_next(&s->answer)) != REMOTE_NEXT_NONE) {
		uint64_t due = UINT64_MAX;
		if (next == REMOTE_NEXT_END) {
			send_end(s);
			continue;
		}
		uint32_t n = s->credit > 0 ? allowed_now(s, now, s->credit, &due) : 0;
		if (n == 0)
			return due;
		send_frame(s, n);
	}
	return UINT64_MAX;
}

/* ---- time limits ---- */

static bool is_reading(const struct remote_seq *s)
{
	return s->started && s->stream != NULL && s->stream->call.http != NULL && !s->stream->call.paused;
}

/* The first fault of time, and the next moment to look. */
static bool check_time(struct remote_seq *s, uint64_t now, uint64_t *next)
{
	struct remote *r = s->r;
	uint64_t idle = s->byte_ns + r->cfg.idle_ms * NS_PER_MS, total = s->started_ns + r->cfg.total_ms * NS_PER_MS;
	bool reads = is_reading(s);
	struct remote_call *c = &s->stream->call;
	if (reads && now >= idle)
		remote_call_fail(c, PROTO_FAULT_STALL, "no byte came for too long");
	else if (s->started && !s->failing && !s->answer.complete && now >= total)
		remote_call_fail(c, PROTO_FAULT_SLOW, "the answer takes too long");
	if (reads && idle < *next)
		*next = idle;
	if (s->started && total < *next)
		*next = total > now ? total : *next;
	if (!c->failed || s->failing)
		return true;
	remote_call_stop(c);
	remote_failed(r, false, c->fault, c->why);
	fail_with(s, c);
	return false;
}

/* A timer that fires too early looks again: each byte moves its time, and moving it costs more than looking. */
static void arm(struct remote_seq *s, uint64_t now, uint64_t at)
{
	if (s->armed_ns <= at)
		return;
	s->armed_ns = at;
	uint64_t us = at > now ? (at - now + 999) / 1000 : 0;
	const struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	event_add(s->timer, &tv);
}

/* Reads on, once most of what waited has gone. May come back here. */
static void resume(struct remote_seq *s)
{
	if (s->stream->call.paused && s->answer.queue.len < REMOTE_QUEUE_PAUSE / 2) {
		s->byte_ns = clock_now_ns();
		remote_call_pause(&s->stream->call, false);
	}
}

static bool is_over(const struct remote_seq *s)
{
	return remote_answer_next(&s->answer) == REMOTE_NEXT_NONE && (s->failing || s->answer.complete);
}

void remote_seq_advance(struct remote_seq *s)
{
	uint64_t now = clock_now_ns(), next = s->deadline_ns;
	if (s->started && !check_time(s, now, &next))
		next = s->deadline_ns;
	uint64_t due = send_tokens(s, now);
	next = due < next ? due : next;
	if (is_over(s)) {
		remote_seq_end(s, s->failing ? PROTO_FINISH_ERROR : s->answer.choices[0].finish,
			       s->failing ? &s->failure : NULL);
		return;
	}
	if (now >= s->deadline_ns) {
		remote_seq_end(s, PROTO_FINISH_LENGTH, NULL);
		return;
	}
	arm(s, now, next);
	resume(s);
}
