/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways out of an answer that goes with its exchange: streamed or whole (the third is in answer_log.c).
 *
 * Streaming is pulled: an event is rendered when the transport asks for bytes, into `carry`, from
 * which it may leave in pieces; between two pulls nothing is formatted.
 */
#include "gateway/answer/answer_priv.h"

#include <string.h>

#include "base/clock.h"

void answer_prefetch(struct answer *a, struct answer_run *run)
{
	struct prefetch_hints *f = gen_prefetch(run->gen);
	answer_observe_run(a, run);
	gen_lane(run->gen, answer_lane(a));
	prefetch_add(f, run, sizeof *run);
	prefetch_add(f, a, offsetof(struct answer, own));
	prefetch_add(f, a->choices, sizeof *a->choices);
	if (a->out.stream && !a->out.logged && a->x != NULL) {
		prefetch_add(f, a->x, offsetof(struct exchange, route));
		http_prefetch(a->x->stream, f);
	}
}

/* ---- streamed ---- */

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct answer *a = ctx;
	size_t n = 0;
	while (n < room) {
		/* Rendered where the answer before was, which is in the cache; what finds no room waits. */
		struct sl_buf *from = a->out.carry.len > 0 ? &a->out.carry : &a->app->scratch;
		if (from != &a->out.carry) {
			buf_clear(from, ANSWER_KEEP_CARRY);
			int rc = answer_render(a, from);
			if (rc < 0)
				return rc;
			if (rc == 0)
				break;
			idempotent_keep(a->sharing.idempotent, buf_data(from), from->len);
		}
		size_t take = from->len < room - n ? from->len : room - n;
		if (take > 0)
			memcpy(dst + n, buf_data(from), take);
		buf_consume(from, take);
		n += take;
		if (from != &a->out.carry && from->len > 0 && buf_append(&a->out.carry, buf_data(from), from->len) != 0)
			return SL_ENOMEM;
		if (a->out.carry.len == 0)
			buf_clear(&a->out.carry, 0);
	}
	*end = a->stage == ANSWER_OVER && a->out.carry.len == 0;
	if (n > 0)
		a->out.moved_ns = gw_now(a->app->t);
	if (*end)
		answer_finish(a);
	return (ssize_t)n;
}

static void start_streaming(struct answer *a)
{
	a->out.moved_ns = clock_now_ns();
	exchange_reply_stream(a->x, stream_fields, STREAM_FIELDS, (struct http_source){.pull = pull, .ctx = a});
	http_body_ready(a->x->stream);
}

/* ---- whole ---- */

static void reply_whole(struct answer *a)
{
	enum { FIRST_BYTES = 512 }; /* a short answer with its envelope */
	struct sl_buf out;
	uint8_t *room;
	buf_init(&out, ANSWER_MAX_WHOLE);
	if (buf_reserve(&out, FIRST_BYTES, &room) != 0 || a->format->whole(a, &out) != 0) {
		answer_refuse(a, &answer_too_large, answer_too_large_text);
	} else {
		idempotent_keep(a->sharing.idempotent, buf_data(&out), out.len);
		answer_finish(a);
		exchange_reply(a->x, 200, "application/json", NULL, 0, buf_data(&out), out.len);
	}
	buf_dispose(&out);
}

void answer_gather(struct answer *a)
{
	int rc = answer_collect(a);
	if (rc < 0)
		answer_fail(a, &answer_too_large, answer_too_large_text);
	else if (rc > 0)
		reply_whole(a);
}

void answer_more(struct answer *a)
{
	if (answer_sends_events(a))
		answer_notify(a);
	else
		answer_gather(a);
}

void answer_settled(struct answer *a)
{
	a->settled = true;
	if (a->state != ANSWER_RUNNING || a->sharing.alone)
		return;
	if (answer_sends_events(a))
		answer_notify(a);
	else
		reply_whole(a);
}

/* The way out is open from here on. */
void answer_open(struct answer *a)
{
	const struct gw_config *cfg = a->app->t->cfg;
	if (a->out.log != NULL || (a->out.logged && answer_open_log(a) == 0)) {
		answer_restart_timer(a, answer_sooner(answer_glance_ms(a), cfg->limits.first_token_ms));
		answer_notify(a);
		return;
	}
	if (a->out.background) {
		answer_refuse(a, &answer_no_memory, "Too many background responses.");
		return;
	}
	/* Without room for a log it can't be resumed, and its headers don't offer it. */
	if (a->out.stream) {
		start_streaming(a);
		answer_restart_timer(a, answer_sooner(cfg->heartbeat_ms, cfg->limits.first_token_ms));
	} else {
		answer_restart_timer(a, cfg->limits.first_token_ms);
	}
}
