/* SPDX-License-Identifier: Apache-2.0
 *
 * Generations. The log is a ring of token records and one buffer of text; both are dropped behind
 * the slowest subscriber. Indexes are absolute (token 0 is the answer's first), so cursors never
 * need adjusting.
 *
 * Thousands of generations get one token each in a step, so what a token costs is the cache lines it
 * touches: the fields of that path stand first; the ring has room for a few tokens until a reader
 * is slower than that, and a log that has been emptied begins at its front again, so that a reader
 * who keeps up has the same record and the same bytes used over and over.
 *
 * Credit: at admission the engine may make window_tokens; when the slowest subscriber has advanced
 * by at least half a window, as many again. So the log never holds more than a window.
 *
 * Shared: the engine is held to the fastest reader of all, so that a slow one costs nobody else
 * anything; up to MAX_LAG tokens then wait for it in the ring, or in the shared log, which loses those
 * that are too far behind. One that joined is fed by its own room: its subscriber's pace reaches the
 * engine through twin_moved. It is never fed from gen_advance, whose caller is in the middle of reading.
 *
 * A generation has no owner but its subscribers. When the last leaves it is destroyed at the end of
 * the turn, so callbacks may leave freely.
 */
#include "gateway/generation/generation.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/generation/chat_metrics.h"
#include "gateway/generation/engine_link.h"

enum {
	MAX_WINDOW = 1 << 16,
	/* By so many tokens a coalesced request may be ahead of the subscribers of the one it joined. */
	MAX_LAG = 1 << 14,
	/* A window's text: a token rarely has more than a few bytes, and a stop string's held-back
	 * beginning is released with one. Beyond it the generation fails rather than grow. */
	MAX_TEXT = 4 << 20,
	FIRST_RING = 4, /* a power of two */
};

struct record {
	uint32_t text_end;   /* offset of the token's end in the text, from text_base */
	uint32_t pieces_end; /* the same in the pieces */
	float logprob;
	uint32_t id;
	uint8_t choice;
};

/* A choice: when its last tokens came, and its end, after so many tokens of all. */
struct choice_end {
	uint64_t token_ns; /* 0: none yet, or the engine was out of credit since */
	uint8_t finish;    /* 0: not yet */
	uint8_t why;       /* enum proto_length_why */
	uint64_t after;
};

struct generation {
	/* Of each token. */
	struct gw_thread *t;
	struct list subscribers;
	enum gen_state state;
	uint8_t n_choices, n_top;
	bool admitted;
	uint64_t link_id;    /* 0: the link has forgotten it */
	uint64_t first, end; /* tokens in the ring */
	uint64_t credited;   /* tokens the engine may make in all */
	struct record *ring; /* [ring_size] */
	uint64_t ring_from;  /* the token of the first record */
	uint32_t ring_size;  /* a power of two, grows to the window */
	uint32_t window;
	struct choice_end *ends; /* [n_choices]; &only for one */
	struct choice_end only;
	struct sl_buf text;                   /* of tokens first … end - 1 */
	uint64_t text_base;                   /* absolute offset of the text's first byte, modulo 2^32 in the records */
	struct prefetch_hints prefetch_hints; /* of its subscribers */
	/* Of tokens that tell their pieces and rivals. */
	struct sl_buf pieces; /* of the same tokens, where they were asked for */
	uint64_t pieces_base;
	struct proto_id_f32 *tops; /* [ring_size][n_top] */
	/* Shared. */
	struct shared_log *shared;       /* counted, while it is told; NULL: it is not shared */
	struct shared_reader *reader;    /* of one that joined, until the end */
	const struct gen_source *source; /* of one that is fed, until the end */
	void *source_ctx;
	uint64_t reported; /* how far it has gone, for the one it joined */
	struct gw_deferred feed;
	/* At the beginning and at the end. */
	struct http_hold *hold; /* of the stream that began it; owned until the engine is done */
	struct gw_deferred reap;
	struct proto_queued queued;
	bool joined, fed, follows, paced;
	uint64_t queued_ns;
	struct proto_done done;
	uint64_t seed;
	char *message; /* owned; NULL: done.message is a literal */
};

static struct metric state_gauges[] = {
    [GEN_SUBMITTED] = {.kind = METRIC_GAUGE,
		       .name = "sluice_generations",
		       .labels = "state=\"submitted\"",
		       .help = "Generations that exist, by state"},
    [GEN_QUEUED] = {.kind = METRIC_GAUGE,
		    .name = "sluice_generations",
		    .labels = "state=\"queued\"",
		    .help = "Generations that exist, by state"},
    [GEN_RUNNING] = {.kind = METRIC_GAUGE,
		     .name = "sluice_generations",
		     .labels = "state=\"running\"",
		     .help = "Generations that exist, by state"},
};

static struct metric end_counters[] = {
    [GEN_FINISHED] = {.kind = METRIC_COUNTER,
		      .name = "sluice_generations_ended_total",
		      .labels = "how=\"finished\"",
		      .help = "Generations that ended"},
    [GEN_FAILED] = {.kind = METRIC_COUNTER,
		    .name = "sluice_generations_ended_total",
		    .labels = "how=\"failed\"",
		    .help = "Generations that ended"},
    [GEN_CANCELLED] = {.kind = METRIC_COUNTER,
		       .name = "sluice_generations_ended_total",
		       .labels = "how=\"cancelled\"",
		       .help = "Generations that ended"},
};

void gen_metrics_register(void)
{
	for (int i = GEN_SUBMITTED; i <= GEN_RUNNING; i++)
		metric_register(&state_gauges[i]);
	for (int i = GEN_FINISHED; i <= GEN_CANCELLED; i++)
		metric_register(&end_counters[i]);
}

/* The only place that moves a generation; states only grow, and the last three are final. */
static void gen_set_state(struct generation *g, enum gen_state to)
{
	BUG_IF(g->state >= GEN_FINISHED || to <= g->state, "generation from state %d to %d", g->state, to);
	metric_add(&state_gauges[g->state], -1);
	g->state = to;
	if (to >= GEN_FINISHED)
		metric_add(&end_counters[to], 1);
	else
		metric_add(&state_gauges[to], 1);
}

static bool is_final(const struct generation *g) { return g->state >= GEN_FINISHED; }

/* A subscriber may leave in its own call, not make another leave. */
static void tell_all(struct generation *g, bool queued)
{
	list_each_safe(it, next, &g->subscribers) {
		struct subscriber *s = list_entry(it, struct subscriber, node);
		if (queued)
			s->on_queued(s);
		else
			s->on_progress(s);
	}
}

/* ---- ends ---- */

/* Nothing more is told to those who share it. */
static void end_shared(struct generation *g, const struct proto_done *m)
{
	struct shared_log *log = g->shared;
	g->shared = NULL;
	if (log == NULL)
		return;
	shared_log_end(log, m);
	shared_log_unref(log);
}

/* Nothing more is read. */
static void leave_log(struct generation *g)
{
	if (g->reader != NULL)
		twin_close(g->reader);
	g->reader = NULL;
	gw_defer_cancel(&g->feed);
}

/* message: a literal. */
static void fail(struct generation *g, enum proto_error error, const char *message)
{
	g->done = (struct proto_done){.finish = PROTO_FINISH_ERROR,
				      .error = (uint8_t)error,
				      .n_prompt = g->queued.n_prompt,
				      .n_completion = (uint32_t)g->end,
				      .message = {.at = message, .n = strlen(message)}};
	end_shared(g, &g->done);
	leave_log(g);
	gen_set_state(g, GEN_FAILED);
	tell_all(g, false);
}

static void release(struct generation *g)
{
	http_release(g->hold);
	g->hold = NULL;
}

static void on_stopped(void *hold) { http_release(hold); }

static void forget(struct generation *g)
{
	const struct gen_source *source = g->source;
	struct http_hold *hold = g->hold;
	g->source = NULL;
	if (source != NULL) {
		g->hold = NULL;
		source->leave(g->source_ctx, hold);
	} else if (g->link_id != 0 && g->hold != NULL) {
		engine_link_abandon(g->t->link, g->link_id, on_stopped, g->hold);
		g->hold = NULL;
	} else if (g->link_id != 0) {
		engine_link_forget(g->t->link, g->link_id);
	}
	g->link_id = 0;
}

static void generation_free(struct generation *g)
{
	BUG_IF(g->shared != NULL || g->reader != NULL, "a generation is freed in the middle of what it shares");
	gw_defer_cancel(&g->feed);
	buf_dispose(&g->text);
	buf_dispose(&g->pieces);
	sl_free(g->ring);
	sl_free(g->tops);
	sl_free(g->message);
	if (g->ends != &g->only)
		sl_free(g->ends);
	sl_free(g);
}

void gen_hold(struct generation *g, struct http_hold *hold)
{
	BUG_IF(g->hold != NULL, "a generation holds two places");
	g->hold = hold;
	if (g->link_id == 0 && g->source == NULL)
		release(g);
}

struct http_hold *gen_take_hold(struct generation *g)
{
	struct http_hold *hold = g->hold;
	g->hold = NULL;
	return hold;
}

static void on_reap(struct gw_deferred *d)
{
	struct generation *g = list_entry(d, struct generation, reap);
	if (!list_empty(&g->subscribers))
		return;
	BUG_IF(g->link_id != 0 || g->source != NULL || !is_final(g), "a generation in state %d is reaped", g->state);
	generation_free(g);
}

/* ---- what the engine says ---- */

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct generation *g = ctx;
	if (g->state == GEN_QUEUED || g->state == GEN_RUNNING) {
		g->queued.position = m->position;
		g->queued.predicted_ttft_us = m->predicted_ttft_us;
		g->queued_ns = gw_now(g->t);
	}
	if (g->state != GEN_SUBMITTED)
		return;
	g->queued = *m;
	g->queued_ns = gw_now(g->t);
	if (g->reader != NULL)
		g->seed = twin_seed(g->reader);
	if (g->shared != NULL)
		shared_log_queued(g->shared, m);
	gen_set_state(g, GEN_QUEUED);
	tell_all(g, true);
}

/* ---- the log ---- */

static uint32_t slot_of(const struct generation *g, uint64_t index)
{
	return (uint32_t)(index - g->ring_from) & (g->ring_size - 1);
}

static const struct record *record_at(const struct generation *g, uint64_t index)
{
	return &g->ring[slot_of(g, index)];
}

/* Room for n more tokens. */
static int reserve(struct generation *g, uint32_t n)
{
	if (g->first == g->end)
		g->ring_from = g->end;
	uint32_t held = (uint32_t)(g->end - g->first), size = g->ring_size;
	if (size - held >= n && size > 0)
		return 0;
	for (size = size > 0 ? size : FIRST_RING; size - held < n; size *= 2)
		BUG_IF(size > MAX_WINDOW, "%u tokens in a log and %u more", held, n);
	struct record *ring = sl_zalloc_n(size, sizeof *ring);
	struct proto_id_f32 *tops = g->n_top > 0 ? sl_zalloc_n((size_t)size * g->n_top, sizeof *tops) : NULL;
	if (ring == NULL || (g->n_top > 0 && tops == NULL)) {
		sl_free(ring);
		sl_free(tops);
		return SL_ENOMEM;
	}
	for (uint32_t i = 0; i < held; i++) {
		uint32_t from = slot_of(g, g->first + i);
		ring[i] = g->ring[from];
		if (tops != NULL)
			memcpy(tops + (size_t)i * g->n_top, g->tops + (size_t)from * g->n_top, g->n_top * sizeof *tops);
	}
	sl_free(g->ring);
	sl_free(g->tops);
	g->ring = ring;
	g->tops = tops;
	g->ring_size = size;
	g->ring_from = g->first;
	return 0;
}

static int append(struct generation *g, const struct proto_tokens *m)
{
	int rc = reserve(g, m->n);
	if (rc == 0 && m->text.n > 0)
		rc = buf_append(&g->text, m->text.at, m->text.n);
	if (rc == 0 && m->pieces.all.n > 0)
		rc = buf_append(&g->pieces, m->pieces.all.at, m->pieces.all.n);
	if (rc != 0)
		return rc;
	uint64_t at = g->text_base + g->text.len - m->text.n;
	uint64_t pieces_end = g->pieces_base + g->pieces.len;
	struct proto_str left = m->pieces.all;
	for (uint16_t i = 0; i < m->n; i++) {
		struct proto_token t = proto_token_at(m, i);
		uint32_t slot = slot_of(g, g->end++);
		at += t.n_bytes;
		for (int k = 0; left.n > 0 && k <= m->n_top; k++)
			proto_piece_next(&left);
		for (uint8_t k = 0; k < g->n_top; k++)
			g->tops[(size_t)slot * g->n_top + k] =
			    k < m->n_top ? proto_top_at(m, i, k) : (struct proto_id_f32){.v = -INFINITY};
		g->ring[slot] = (struct record){.text_end = (uint32_t)at,
						.pieces_end = (uint32_t)(pieces_end - left.n),
						.logprob = t.logprob,
						.id = t.id,
						.choice = m->choice};
	}
	return 0;
}

/* The gap between two arrivals of one choice's tokens. A generation that joined another makes none of its own. */
static void observe_gap(struct generation *g, uint8_t choice)
{
	uint64_t now = gw_now(g->t), *last = &g->ends[choice].token_ns;
	if (g->joined)
		return;
	if (*last != 0)
		chat_metrics_itl(now - *last, g->paced);
	*last = now;
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct generation *g = ctx;
	if (is_final(g))
		return;
	if (g->state != GEN_RUNNING || (!g->joined && !g->fed && m->n > g->credited - g->end) ||
	    m->choice >= g->n_choices || m->n_top > g->n_top) {
		forget(g);
		fail(g, PROTO_ERR_INTERNAL, "The engine made tokens that nobody asked for.");
		return;
	}
	if (append(g, m) != 0) {
		forget(g);
		fail(g, PROTO_ERR_INTERNAL, "The answer outgrew its buffer.");
		return;
	}
	observe_gap(g, m->choice);
	if (g->shared != NULL)
		shared_log_tokens(g->shared, m);
	tell_all(g, false);
}

static void on_choice(void *ctx, const struct proto_choice *m)
{
	struct generation *g = ctx;
	if (is_final(g) || m->choice >= g->n_choices || g->ends[m->choice].finish != 0)
		return;
	g->ends[m->choice] = (struct choice_end){.finish = m->finish, .why = m->length_why, .after = g->end};
	if (g->shared != NULL)
		shared_log_choice(g->shared, m);
	tell_all(g, false);
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct generation *g = ctx;
	g->link_id = 0;
	g->source = NULL;
	release(g);
	if (is_final(g))
		return;
	g->done = *m;
	g->done.message = (struct proto_str){"", 0};
	if (m->message.n > 0 && (g->message = sl_strndup(m->message.at, m->message.n)) != NULL)
		g->done.message = (struct proto_str){g->message, m->message.n};
	/* Nobody here cancelled it: an engine that stops cancels what it runs. */
	if (m->finish == PROTO_FINISH_CANCELLED) {
		fail(g, PROTO_ERR_NOT_READY, "The engine is being stopped.");
		return;
	}
	/* With one choice nothing else tells of its end; of several each was told. */
	for (uint8_t i = 0; i < g->n_choices; i++)
		if (g->ends[i].finish == 0)
			g->ends[i] = (struct choice_end){.finish = m->finish, .why = m->length_why, .after = g->end};
	end_shared(g, &g->done);
	leave_log(g);
	gen_set_state(g, m->finish == PROTO_FINISH_ERROR ? GEN_FAILED : GEN_FINISHED);
	tell_all(g, false);
}

static void on_lost(void *ctx)
{
	struct generation *g = ctx;
	g->link_id = 0;
	g->source = NULL;
	release(g);
	if (!is_final(g))
		fail(g, PROTO_ERR_NOT_READY, "The engine stopped unexpectedly. It is being restarted.");
}

static void soon(const void *ctx)
{
	const struct generation *g = ctx;
	__builtin_prefetch(g->ring);
	__builtin_prefetch(buf_data(&g->text));
	prefetch_fetch(&g->prefetch_hints);
}

static const struct link_listener listener = {on_queued, on_tokens, on_choice, on_done, on_lost, NULL, soon};
const struct link_listener gen_told = {on_queued, on_tokens, on_choice, on_done, on_lost, NULL, NULL};

/* ---- shared ---- */

static void give_credit(struct generation *g, uint32_t n)
{
	/* It has waited for its reader: that gap says nothing of the engine. */
	for (uint8_t i = 0; g->end == g->credited && i < g->n_choices; i++)
		g->ends[i].token_ns = 0;
	g->credited += n;
	if (g->link_id != 0)
		engine_link_credit(g->t->link, g->link_id, n);
	else if (g->source != NULL)
		g->source->credit(g->source_ctx, n);
}

/* What the engine may still make, seen from whoever sets the pace: the slowest of its own subscribers,
 * or a coalesced request that is further; but what a subscriber here has not read must fit into the log. */
static void credit_ahead(struct generation *g)
{
	uint64_t lead = g->follows ? 0 : g->first, most;
	if (!g->admitted || is_final(g))
		return;
	if (g->shared != NULL && (shared_log_readers(g->shared, &most) > 0 || g->follows))
		lead = most > lead ? most : lead;
	if (lead > g->first + MAX_LAG)
		lead = g->first + MAX_LAG;
	if (lead + g->window / 2 >= g->credited && lead + g->window > g->credited)
		give_credit(g, (uint32_t)(lead + g->window - g->credited));
}

/* The fastest coalesced request has moved, or the last one has left. */
static void on_twins_moved(void *ctx)
{
	struct generation *g = ctx;
	credit_ahead(g);
	if (g->follows && !gen_is_shared_by_others(g))
		tell_all(g, false);
}

void gen_lane(struct generation *g, uint32_t lane)
{
	if (g->link_id != 0)
		engine_link_lane(g->t->link, g->link_id, lane);
}

struct prefetch_hints *gen_prefetch(struct generation *g) { return &g->prefetch_hints; }

void gen_share(struct generation *g, struct shared_log *log)
{
	g->shared = shared_log_ref(log);
	shared_log_own(log, g->t, g->seed, on_twins_moved, g);
}

bool gen_is_shared_by_others(const struct generation *g)
{
	uint64_t most;
	return g->shared != NULL && shared_log_readers(g->shared, &most) > 0;
}

void gen_follow_twins(struct generation *g) { g->follows = true; }

void gen_end_shared(struct generation *g, enum proto_finish finish)
{
	static const char gone[] = "The answer that this one shared was ended.";
	struct proto_done done = {.finish = (uint8_t)finish,
				  .n_prompt = g->queued.n_prompt,
				  .n_cached = g->queued.n_cached,
				  .n_completion = (uint32_t)g->end,
				  .message = {"", 0}};
	if (finish == PROTO_FINISH_ERROR) {
		done.error = PROTO_ERR_OVERLOADED;
		done.message = (struct proto_str){gone, sizeof gone - 1};
	}
	end_shared(g, &done);
}

static bool has_room(const struct generation *g) { return g->end - g->first < g->window; }

/* As much of the log as there is room for: as if the engine had said it. */
static void feed(struct generation *g)
{
	struct shared_event ev;
	while (g->reader != NULL && (g->state == GEN_SUBMITTED || (g->state == GEN_RUNNING && has_room(g)))) {
		twin_next(g->reader, &ev);
		switch (ev.kind) {
		case TWIN_NOTHING: return;
		case TWIN_QUEUED: on_queued(g, &ev.u.queued); break;
		case TWIN_TOKENS: on_tokens(g, &ev.u.tokens); break;
		case TWIN_CHOICE: on_choice(g, &ev.u.choice); break;
		case TWIN_DONE: on_done(g, &ev.u.done); break;
		case TWIN_LOST:
			fail(g, PROTO_ERR_OVERLOADED, "This reader was too slow for the answer that it shared.");
			break;
		}
	}
}

static void on_feed(struct gw_deferred *d) { feed(list_entry(d, struct generation, feed)); }
static void on_log(void *ctx) { feed(ctx); }

/* ---- subscribers ---- */

/* One that nobody reads yet. */
static struct generation *generation_create(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens)
{
	BUG_IF(window_tokens == 0 || window_tokens > MAX_WINDOW, "a window of %u tokens", window_tokens);
	struct generation *g = sl_zalloc(sizeof *g);
	if (g == NULL)
		return NULL;
	g->t = t;
	g->window = window_tokens;
	list_init(&g->subscribers);
	gw_defer_init(&g->reap, on_reap);
	gw_defer_init(&g->feed, on_feed);
	buf_init(&g->text, MAX_TEXT);
	buf_init(&g->pieces, MAX_TEXT);
	g->n_choices = req->n;
	g->paced = req->rate_tps > 0;
	g->seed = req->seed;
	g->n_top = req->n_top_logprobs;
	g->ends = g->n_choices > 1 ? sl_zalloc_n(g->n_choices, sizeof *g->ends) : &g->only;
	if (g->ends == NULL || reserve(g, 1) != 0) {
		generation_free(g);
		return NULL;
	}
	return g;
}

int gen_join(struct gw_thread *t, struct shared_log *log, const struct proto_submit *req, uint32_t window_tokens,
	     struct subscriber *first, struct generation **out)
{
	struct generation *g = generation_create(t, req, window_tokens);
	if (g == NULL)
		return SL_ENOMEM;
	int rc = twin_read(log, t, on_log, g, &g->reader);
	if (rc != 0) {
		generation_free(g);
		return rc;
	}
	g->joined = true;
	metric_add(&state_gauges[GEN_SUBMITTED], 1);
	gen_subscribe(g, first, 0);
	*out = g;
	return 0;
}

int gen_start(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens, struct subscriber *first,
	      struct generation **out)
{
	struct generation *g = generation_create(t, req, window_tokens);
	if (g == NULL)
		return SL_ENOMEM;
	int rc = engine_link_submit(t->link, req, &listener, g, &g->link_id);
	if (rc != 0) {
		generation_free(g);
		return rc;
	}
	metric_add(&state_gauges[GEN_SUBMITTED], 1);
	gen_subscribe(g, first, 0);
	*out = g;
	return 0;
}

int gen_start_fed(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens,
		  const struct gen_source *source, void *ctx, struct subscriber *first, struct generation **out)
{
	struct generation *g = generation_create(t, req, window_tokens);
	if (g == NULL)
		return SL_ENOMEM;
	g->fed = true;
	g->source = source;
	g->source_ctx = ctx;
	metric_add(&state_gauges[GEN_SUBMITTED], 1);
	gen_subscribe(g, first, 0);
	*out = g;
	return 0;
}

void gen_subscribe(struct generation *g, struct subscriber *s, uint64_t from_token)
{
	BUG_IF(s->gen != NULL, "a subscriber subscribes twice");
	BUG_IF(from_token < g->first || from_token > g->end, "token %llu is not in the log",
	       (unsigned long long)from_token);
	s->gen = g;
	s->next_token = from_token;
	list_push_back(&g->subscribers, &s->node);
}

void gen_unsubscribe(struct subscriber *s)
{
	struct generation *g = s->gen;
	if (g == NULL)
		return;
	s->gen = NULL;
	list_remove(&s->node);
	if (!list_empty(&g->subscribers))
		return;
	if (!is_final(g)) {
		forget(g);
		gen_end_shared(g, PROTO_FINISH_ERROR);
		leave_log(g);
		gen_set_state(g, GEN_CANCELLED);
	}
	gw_defer(g->t, &g->reap);
}

void gen_admit(struct generation *g)
{
	if (g->admitted || g->state != GEN_QUEUED)
		return;
	g->admitted = true;
	gen_set_state(g, GEN_RUNNING);
	if (g->joined)
		gw_defer(g->t, &g->feed);
	else
		give_credit(g, g->window);
}

/* Where token `index` begins in the text and in the pieces. */
static void begins_at(const struct generation *g, uint64_t index, uint32_t *text, uint32_t *pieces)
{
	const struct record *before = record_at(g, index - 1);
	*text = index == g->first ? 0 : before->text_end - (uint32_t)g->text_base;
	*pieces = index == g->first ? 0 : before->pieces_end - (uint32_t)g->pieces_base;
}

bool gen_peek(const struct generation *g, const struct subscriber *s, uint32_t max_tokens, struct gen_chunk *out)
{
	if (s->next_token >= g->end)
		return false;
	uint32_t from, pieces, end = 0, n = 0;
	uint8_t choice = record_at(g, s->next_token)->choice;
	begins_at(g, s->next_token, &from, &pieces);
	for (; n < max_tokens && s->next_token + n < g->end; n++) {
		const struct record *r = record_at(g, s->next_token + n);
		if (r->choice != choice)
			break;
		end = r->text_end - (uint32_t)g->text_base;
	}
	*out = (struct gen_chunk){.first_token = s->next_token,
				  .n_tokens = n,
				  .choice = choice,
				  .n_bytes = end - from,
				  .text = g->text.len > 0 ? (const char *)buf_data(&g->text) + from : ""};
	return true;
}

void gen_token_at(const struct generation *g, uint64_t index, struct gen_token *out)
{
	BUG_IF(index < g->first || index >= g->end, "token %llu is not in the log", (unsigned long long)index);
	const struct record *r = record_at(g, index);
	uint32_t text, pieces;
	begins_at(g, index, &text, &pieces);
	const char *all = g->pieces.len > 0 ? (const char *)buf_data(&g->pieces) : "";
	*out = (struct gen_token){.id = r->id,
				  .logprob = r->logprob,
				  .n_bytes = r->text_end - (uint32_t)g->text_base - text,
				  .pieces = {all + pieces, r->pieces_end - (uint32_t)g->pieces_base - pieces},
				  .tops = g->n_top > 0 ? g->tops + (size_t)slot_of(g, index) * g->n_top : NULL,
				  .n_top = g->n_top};
}

enum proto_finish gen_choice_end(const struct generation *g, const struct subscriber *s, uint8_t i)
{
	BUG_IF(i >= g->n_choices, "choice %d of %d", i, g->n_choices);
	return s->next_token >= g->ends[i].after ? (enum proto_finish)g->ends[i].finish : 0;
}

enum proto_length_why gen_choice_why(const struct generation *g, uint8_t i)
{
	BUG_IF(i >= g->n_choices, "choice %d of %d", i, g->n_choices);
	return (enum proto_length_why)g->ends[i].why;
}

void gen_advance(struct subscriber *s, uint32_t n_tokens)
{
	struct generation *g = s->gen;
	BUG_IF(n_tokens > g->end - s->next_token, "advance by %u of %llu tokens", n_tokens,
	       (unsigned long long)(g->end - s->next_token));
	s->next_token += n_tokens;

	uint64_t slowest = s->next_token;
	list_each(it, &g->subscribers) {
		uint64_t at = list_entry(it, struct subscriber, node)->next_token;
		slowest = at < slowest ? at : slowest;
	}
	if (slowest > g->first) {
		const struct record *last = record_at(g, slowest - 1);
		uint32_t drop = last->text_end - (uint32_t)g->text_base;
		uint32_t pieces = last->pieces_end - (uint32_t)g->pieces_base;
		buf_consume(&g->text, drop);
		buf_consume(&g->pieces, pieces);
		g->text_base += drop;
		g->pieces_base += pieces;
		g->first = slowest;
	}
	if (g->reader == NULL) {
		credit_ahead(g);
		return;
	}
	if (g->first - g->reported > g->window / 4) {
		g->reported = g->first;
		twin_moved(g->reader, g->first);
	}
	/* Not from here: whoever advances is in the middle of reading. */
	if (has_room(g))
		gw_defer(g->t, &g->feed);
}

enum gen_state gen_state(const struct generation *g) { return g->state; }
uint64_t gen_queued_ns(const struct generation *g) { return g->queued_ns; }
const struct proto_queued *gen_queued(const struct generation *g) { return &g->queued; }
uint64_t gen_n_tokens(const struct generation *g) { return g->end; }
uint64_t gen_seed(const struct generation *g) { return g->seed; }

const struct proto_done *gen_done(const struct generation *g)
{
	BUG_IF(g->state != GEN_FINISHED && g->state != GEN_FAILED, "gen_done in state %d", g->state);
	return &g->done;
}
