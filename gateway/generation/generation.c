/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of generations get one token each in a step, so the cost of a token is the cache lines it touches: the
 * fields of that path come first.
 *
 * Credit: at admission the engine may make window_tokens; when the subscriber has advanced by at least half a window,
 * as many again. So the log never holds more than a window for it.
 *
 * Shared: the engine is held to the fastest reader of all, so a slow one delays no other; up to MAX_LAG tokens then
 * wait in the log for the subscriber of the generation that writes it. A generation that joined reads the log by a
 * cursor, its subscriber's; its own log is only a view of what was read last. Its pace reaches the engine through
 * token_reader_moved. It is never fed from gen_advance, whose caller is in the middle of reading.
 *
 * A generation has no owner but its subscriber. When that leaves, it is destroyed at the end of the turn, so callbacks
 * may leave freely.
 */
#include "gateway/generation/generation.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/hand_over.h"
#include "gateway/generation/remake.h"

enum {
	MAX_WINDOW = 1 << 16,
	/* By so many tokens a coalesced request may be ahead of the subscribers of the one it joined. */
	MAX_LAG = 1 << 14,
	/* Tokens that one that joined copies at a time: all that its subscriber has not read are copied again. */
	MAX_VIEW = 64,
};

struct generation {
	/* Of each token. */
	struct gw_thread *t;
	struct subscriber *sub; /* NULL: it has left */
	enum gen_state state;
	bool admitted, joined, fed, follows, paced, may_hedge;
	uint32_t window;
	uint64_t link_id;            /* 0: the link has forgotten it */
	uint64_t credited;           /* tokens the engine may make in all */
	struct token_log *log;       /* &own, or the shared one: a reference */
	struct latency_cells *cells; /* NULL: its gaps are counted nowhere */
	struct observed_gaps gaps;
	struct remake *again;                 /* NULL: it is not made again */
	struct prefetch_hints prefetch_hints; /* of its subscriber */
	struct token_log own;                 /* of one that joined: a copy of tokens read last */
	/* Shared. */
	struct token_reader *reader;     /* of one that joined, until its subscriber has left */
	const struct gen_source *source; /* of one that is fed, until the end */
	void *source_ctx;
	uint64_t reported; /* tokens that the log it joined knows it has */
	uint64_t arrived;  /* of one that joined: tokens whose gap is counted */
	struct gw_deferred feed;
	/* At the beginning and at the end. */
	struct http_hold *hold; /* of the stream that began it; owned until the engine is done */
	struct gw_deferred reap;
	uint64_t queued_ns;
	uint32_t lane;
	unsigned n_remade;
	uint64_t admitted_ns;
	struct hedge *hedge;    /* NULL: it has none */
	struct hand_over *hand; /* NULL: its engine computes its prompt */
	struct prefill_choice prefill;
	struct route_choice route; /* of its sequence; n_candidates 0: there was none */
};

#define STATE(label) \
	METRIC_OF(METRIC_GAUGE, "sluice_generations", "state=\"" label "\"", "Generations that exist, by state")
#define END(label) \
	METRIC_OF(METRIC_COUNTER, "sluice_generations_ended_total", "how=\"" label "\"", "Generations that ended")
/* How many are in each state that is not final, and how many have ended in each that is. */
static struct metric by_state[] = {
    [GEN_SUBMITTED] = STATE("submitted"), [GEN_QUEUED] = STATE("queued"), [GEN_RUNNING] = STATE("running"),
    [GEN_FINISHED] = END("finished"),     [GEN_FAILED] = END("failed"),   [GEN_CANCELLED] = END("cancelled"),
};
METRICS(by_state);
COUNTER(remade, "sluice_generations_remade_total", "Generations made again on another engine after theirs had died");

/* The only place that moves a generation; states only grow, and the last three are final. */
static void gen_set_state(struct generation *g, enum gen_state to)
{
	BUG_IF(g->state >= GEN_FINISHED || to <= g->state, "generation from state %d to %d", g->state, to);
	metric_add(&by_state[g->state], -1);
	g->state = to;
	metric_add(&by_state[to], 1);
}

static bool is_final(const struct generation *g) { return g->state >= GEN_FINISHED; }

/* The subscriber may leave in the call. */
static void tell_progress(struct generation *g)
{
	if (g->sub != NULL)
		g->sub->on_progress(g->sub);
}

/* ---- ends ---- */

/* Nothing more is read. */
static void close_reader(struct generation *g)
{
	if (g->reader != NULL)
		token_reader_close(g->reader);
	g->reader = NULL;
	gw_defer_cancel(&g->feed);
}

/* message: a literal. */
static void fail(struct generation *g, enum proto_error error, const char *message)
{
	struct proto_done done = {.finish = PROTO_FINISH_ERROR,
				  .error = (uint8_t)error,
				  .n_prompt = g->log->queued.n_prompt,
				  .n_completion = (uint32_t)g->log->end,
				  .message = {.at = message, .n = strlen(message)}};
	token_log_end(g->log, &done);
	close_reader(g);
	gen_set_state(g, GEN_FAILED);
	tell_progress(g);
}

struct http_hold *gen_take_hold(struct generation *g)
{
	struct http_hold *hold = g->hold;
	g->hold = NULL;
	return hold;
}

static void end_hand_over(struct generation *g)
{
	hand_over_end(g->hand);
	g->hand = NULL;
}

static void on_stopped(void *hold) { http_release(hold); }

static void forget(struct generation *g)
{
	const struct gen_source *source = g->source;
	end_hand_over(g);
	hedge_lose(g->hedge, true);
	g->source = NULL;
	if (source != NULL)
		source->leave(g->source_ctx, gen_take_hold(g));
	else if (g->link_id != 0 && g->hold != NULL)
		engine_link_abandon(g->t->link, g->link_id, on_stopped, gen_take_hold(g));
	else if (g->link_id != 0)
		engine_link_forget(g->t->link, g->link_id);
	g->link_id = 0;
}

static void generation_free(struct generation *g)
{
	BUG_IF(g->reader != NULL, "a generation is freed in the middle of what it reads");
	gw_defer_cancel(&g->feed);
	end_hand_over(g);
	hedge_destroy(g->hedge);
	if (g->log != &g->own)
		token_log_unref(g->log);
	token_log_dispose(&g->own);
	remake_destroy(g->again);
	sl_free(g);
}

void gen_hold(struct generation *g, struct http_hold *hold)
{
	BUG_IF(g->hold != NULL, "a generation holds two places");
	g->hold = hold;
	if (g->link_id == 0 && g->source == NULL)
		http_release(gen_take_hold(g));
}

static void on_reap(struct gw_deferred *d)
{
	struct generation *g = list_entry(d, struct generation, reap);
	if (g->sub != NULL)
		return;
	BUG_IF(g->link_id != 0 || g->source != NULL || !is_final(g), "a generation in state %d is reaped", g->state);
	generation_free(g);
}

/* ---- the engine's events ---- */

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct generation *g = ctx;
	if (is_final(g))
		return;
	g->queued_ns = gw_now(g->t);
	token_log_queued(g->log, m);
	if (g->state != GEN_SUBMITTED)
		return;
	gen_set_state(g, GEN_QUEUED);
	if (g->sub != NULL)
		g->sub->on_queued(g->sub);
}

/* The gap between two arrivals of one choice's tokens. */
static void observe_gap(struct generation *g, uint8_t choice, uint32_t n_tokens)
{
	uint64_t now = gw_now(g->t), *last = &g->log->choices[choice].token_ns, gap = now - *last;
	if (*last != 0) {
		g->gaps.slow_ns += latency_gap(g->cells, g->paced, gap, n_tokens);
		g->gaps.sum_ns += gap;
		g->gaps.n_tokens += n_tokens;
		g->gaps.n++;
		g->gaps.max_ns = gap > g->gaps.max_ns ? gap : g->gaps.max_ns;
	}
	*last = now;
}

void gen_observe(struct generation *g, struct latency_cells *cells) { g->cells = cells; }
struct observed_gaps gen_gaps(const struct generation *g) { return g->gaps; }

static const char differs_text[] =
    "The engine of this answer stopped, and another one does not continue it with the same tokens.";

static void drop_remake(struct generation *g)
{
	remake_destroy(g->again);
	g->again = NULL;
}

static void stop(struct generation *g, const char *message)
{
	forget(g);
	fail(g, PROTO_ERR_INTERNAL, message);
}

/* The first token has come: how long that took is learned, and the second sequence, if there is one, ends. */
static void first_token(struct generation *g)
{
	int engine = engine_link_engine_of(g->t->link, g->link_id);
	hedge_lose(g->hedge, false);
	if (engine >= 0 && g->hand == NULL)
		hedge_times_add(&engine_link_hedging(g->t->link)->times[engine], clock_now_ns() - g->admitted_ns);
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct generation *g = ctx;
	struct proto_tokens rest = *m;
	if (is_final(g))
		return;
	if (g->state != GEN_RUNNING || m->choice >= g->log->n_choices || m->n_top > g->log->n_top) {
		stop(g, "The engine sent tokens for no request.");
		return;
	}
	if (g->log->end == 0)
		first_token(g);
	if (g->again != NULL && !remake_take(g->again, m, &rest)) {
		stop(g, differs_text);
		return;
	}
	if (!g->fed && rest.n > g->credited - g->log->end) {
		stop(g, "The engine sent tokens for no request.");
		return;
	}
	if (g->again != NULL && remake_is_spent(g->again))
		drop_remake(g);
	if (rest.n == 0)
		return;
	if (token_log_append(g->log, &rest) != 0) {
		stop(g, "The answer outgrew its buffer.");
		return;
	}
	observe_gap(g, rest.choice, rest.n);
	tell_progress(g);
}

static void on_prompt(void *ctx, const struct proto_prompt_logprobs *m)
{
	struct generation *g = ctx;
	if (!is_final(g) && g->sub != NULL && g->sub->on_prompt != NULL)
		g->sub->on_prompt(g->sub, m);
}

static void on_choice(void *ctx, const struct proto_choice *m)
{
	struct generation *g = ctx;
	if (is_final(g) || m->choice >= g->log->n_choices || g->log->choices[m->choice].finish != 0)
		return;
	token_log_choice(g->log, m);
	tell_progress(g);
}

/* Its sequence is over. False: and it was before. */
static bool is_over(struct generation *g)
{
	g->link_id = 0;
	g->source = NULL;
	http_release(gen_take_hold(g));
	return !is_final(g);
}

static int submit(struct generation *g, const struct proto_submit *s);

/* The second sequence becomes its own; the first one, if it is not over, is cancelled. False: there is none. */
static bool adopt(struct generation *g)
{
	uint64_t id = hedge_win(g->hedge);
	if (id == 0)
		return false;
	if (g->link_id != 0)
		engine_link_forget(g->t->link, g->link_id);
	/* The first one would have taken longer still. */
	hedge_times_add(&engine_link_hedging(g->t->link)->times[hedge_told(g->hedge).first],
			clock_now_ns() - g->admitted_ns);
	g->link_id = id;
	g->route.engine = hedge_told(g->hedge).second;
	return true;
}

/* On another engine. False: there is none that can serve it. */
static bool make_again(struct generation *g)
{
	const struct proto_submit *s = g->again != NULL && !is_final(g) ? remake_begin(g->again, clock_now_ns()) : NULL;
	if (s == NULL || !engine_link_serves(g->t->link, s->model) || submit(g, s) != 0)
		return false;
	metric_add(&remade, 1);
	g->n_remade++;
	if (g->lane != 0)
		engine_link_lane(g->t->link, g->link_id, g->lane);
	if (g->admitted)
		engine_link_credit(g->t->link, g->link_id, (uint32_t)g->credited);
	return true;
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct generation *g = ctx;
	struct proto_done done = *m;
	g->link_id = 0;
	end_hand_over(g);
	if ((m->finish == PROTO_FINISH_CANCELLED || m->finish == PROTO_FINISH_ERROR) && adopt(g))
		return;
	hedge_lose(g->hedge, false);
	if (m->finish == PROTO_FINISH_CANCELLED && make_again(g))
		return;
	if (!is_over(g))
		return;
	if (g->again != NULL && m->finish != PROTO_FINISH_CANCELLED && m->finish != PROTO_FINISH_ERROR &&
	    !remake_is_even(g->again)) {
		fail(g, PROTO_ERR_INTERNAL, differs_text);
		return;
	}
	/* Not cancelled from here: an engine that stops cancels what it runs. */
	if (m->finish == PROTO_FINISH_CANCELLED) {
		fail(g, PROTO_ERR_NOT_READY, "The engine is being stopped.");
		return;
	}
	done.message = token_log_keep(g->log, m->message);
	token_log_end(g->log, &done);
	close_reader(g);
	gen_set_state(g, m->finish == PROTO_FINISH_ERROR ? GEN_FAILED : GEN_FINISHED);
	tell_progress(g);
}

static void on_lost(void *ctx)
{
	struct generation *g = ctx;
	g->link_id = 0;
	end_hand_over(g);
	if (adopt(g))
		return;
	hedge_lose(g->hedge, false);
	if (make_again(g))
		return;
	if (is_over(g))
		fail(g, PROTO_ERR_NOT_READY, "The engine stopped unexpectedly. It is being restarted.");
}

static void on_handed(void *ctx, const struct proto_handed *m)
{
	struct generation *g = ctx;
	if (g->hand != NULL)
		hand_over_take(g->hand, m, &g->prefill);
}

static void soon(const void *ctx)
{
	const struct generation *g = ctx;
	__builtin_prefetch(buf_data(&g->log->parts[TOKEN_RECORDS]));
	__builtin_prefetch(buf_data(&g->log->parts[TOKEN_TEXT]));
	prefetch_fetch(&g->prefetch_hints);
}

static const struct link_listener listener = {.on_queued = on_queued,
					      .on_tokens = on_tokens,
					      .on_choice = on_choice,
					      .on_done = on_done,
					      .on_lost = on_lost,
					      .soon = soon,
					      .on_prompt = on_prompt,
					      .on_handed = on_handed};
const struct link_listener gen_told = {
    .on_queued = on_queued, .on_tokens = on_tokens, .on_choice = on_choice, .on_done = on_done, .on_lost = on_lost};

/* ---- the second sequence ---- */

static void on_second_tokens(void *ctx, const struct proto_tokens *m)
{
	adopt(ctx);
	on_tokens(ctx, m);
}

/* It has won if its answer is empty; an end that is none says nothing of the first one. */
static void on_second_done(void *ctx, const struct proto_done *m)
{
	struct generation *g = ctx;
	bool failed = m->finish == PROTO_FINISH_CANCELLED || m->finish == PROTO_FINISH_ERROR;
	if (failed && hedge_is_going(g->hedge)) {
		hedge_fail(g->hedge);
		return;
	}
	adopt(g);
	on_done(g, m);
}

static void on_second_lost(void *ctx)
{
	struct generation *g = ctx;
	if (hedge_is_going(g->hedge))
		hedge_fail(g->hedge);
	else
		on_lost(g);
}

static const struct link_listener second_listener = {
    .on_tokens = on_second_tokens, .on_done = on_second_done, .on_lost = on_second_lost, .soon = soon};

static bool second_left(void *ctx, struct proto_submit *out)
{
	const struct generation *g = ctx;
	return g->again != NULL && !is_final(g) && remake_left(g->again, clock_now_ns(), out);
}

static void begin_hedge(struct generation *g)
{
	struct proto_submit s;
	const struct hedge_of of = {.listener = &second_listener,
				    .ctx = g,
				    .left = second_left,
				    .id = g->link_id,
				    .credit = g->window,
				    .lane = g->lane};
	if (g->may_hedge && g->link_id != 0 && g->hand == NULL && second_left(g, &s) && hedge_fits(&s))
		g->hedge = hedge_begin(g->t, &of);
}

void gen_hedge(struct generation *g) { g->may_hedge = true; }
struct hedge_told gen_hedged(const struct generation *g) { return hedge_told(g->hedge); }

static int submit(struct generation *g, const struct proto_submit *s)
{
	int rc = engine_link_submit(g->t->link, s, &listener, g, &g->link_id);
	if (rc == 0)
		g->route = *engine_link_choice(g->t->link);
	return rc;
}

/* ---- shared ---- */

static void give_credit(struct generation *g, uint32_t n)
{
	/* It has waited for its reader: that gap is not the engine's. */
	for (uint8_t i = 0; g->log->end == g->credited && i < g->log->n_choices; i++)
		g->log->choices[i].token_ns = 0;
	g->credited += n;
	if (g->link_id != 0)
		engine_link_credit(g->t->link, g->link_id, n);
	else if (g->source != NULL)
		g->source->credit(g->source_ctx, n);
}

/* What the engine may still make, seen from whatever sets the pace: its own subscriber, or a reader that is further;
 * but what the subscriber has not read must fit into the log. */
static void credit_ahead(struct generation *g)
{
	if (!g->admitted || is_final(g))
		return;
	uint64_t taken = g->sub->next_token, lead = g->follows ? 0 : taken, most;
	if (token_log_readers(g->log, &most) > 0 || g->follows)
		lead = most > lead ? most : lead;
	if (lead > taken + MAX_LAG)
		lead = taken + MAX_LAG;
	if (lead + g->window / 2 >= g->credited && lead + g->window > g->credited)
		give_credit(g, (uint32_t)(lead + g->window - g->credited));
}

bool gen_is_shared_by_others(const struct generation *g)
{
	uint64_t most;
	return token_log_readers(g->log, &most) > 0;
}

/* The fastest reader has moved, or the last one has left. */
static void on_readers_moved(void *ctx)
{
	struct generation *g = ctx;
	credit_ahead(g);
	if (g->follows && !gen_is_shared_by_others(g))
		tell_progress(g);
}

void gen_remake(struct generation *g, struct submit_frame *frame, const struct proto_submit *s, bool begun)
{
	if (g->again == NULL && g->link_id != 0 && engine_link_n_engines(g->t->link) > 1)
		g->again = remake_create(frame, s, begun, clock_now_ns());
}

const struct route_choice *gen_route(const struct generation *g) { return g->fed || g->joined ? NULL : &g->route; }

const struct prefill_choice *gen_prefill(const struct generation *g) { return &g->prefill; }

unsigned gen_n_remade(const struct generation *g) { return g->n_remade; }

void gen_lane(struct generation *g, uint32_t lane)
{
	g->lane = lane;
	if (g->link_id != 0)
		engine_link_lane(g->t->link, g->link_id, lane);
}

struct prefetch_hints *gen_prefetch(struct generation *g) { return &g->prefetch_hints; }

void gen_share(struct generation *g, struct token_log *log)
{
	g->log = token_log_ref(log);
	token_log_own(log, &g->own, g->t, on_readers_moved, g);
}

void gen_follow_readers(struct generation *g) { g->follows = true; }

void gen_end_shared(struct generation *g, enum proto_finish finish)
{
	static const char gone[] = "The answer that this one shared was ended.";
	struct proto_done done = {.finish = (uint8_t)finish,
				  .n_prompt = g->log->queued.n_prompt,
				  .n_cached = g->log->queued.n_cached,
				  .n_completion = (uint32_t)g->log->end,
				  .message = {"", 0}};
	if (finish == PROTO_FINISH_ERROR) {
		done.error = PROTO_ERR_OVERLOADED;
		done.message = (struct proto_str){gone, sizeof gone - 1};
	}
	if (!g->log->ended)
		token_log_end(g->log, &done);
}

/* Of what is new in the view of the log that it joined. full: what follows waits for its reader, so that gap is not the
 * engine's. */
static void observe_view(struct generation *g, bool full)
{
	struct gen_chunk c;
	if (g->arrived < g->own.first)
		g->arrived = g->own.first;
	while (g->arrived < g->own.end && token_log_run(&g->own, g->arrived, UINT32_MAX, &c)) {
		observe_gap(g, c.choice, c.n_tokens);
		g->arrived += c.n_tokens;
	}
	for (uint8_t i = 0; full && i < g->own.n_choices; i++)
		g->own.choices[i].token_ns = 0;
}

static void tell_news(struct generation *g, bool all, uint32_t most)
{
	observe_view(g, g->own.end - g->sub->next_token >= most);
	if (all)
		on_done(g, &g->own.done);
	else
		tell_progress(g);
}

/* Takes what is new in the log that it joined. */
static void feed(struct generation *g)
{
	while (g->reader != NULL && (g->state == GEN_SUBMITTED || g->state == GEN_RUNNING)) {
		uint32_t most = g->state == GEN_SUBMITTED ? 0 : g->window < MAX_VIEW ? g->window : MAX_VIEW;
		enum token_news news = token_reader_sync(g->reader, g->sub->next_token, most, &g->own);
		if (news == TOKEN_LOST)
			fail(g, PROTO_ERR_OVERLOADED, "This reader was too slow for the answer that it shared.");
		else if (g->state == GEN_SUBMITTED && g->own.is_queued)
			on_queued(g, &g->own.queued);
		else if (news == TOKEN_NOTHING)
			return;
		else
			tell_news(g, news == TOKEN_ALL, most);
	}
}

static void on_feed(struct gw_deferred *d) { feed(list_entry(d, struct generation, feed)); }
static void on_log(void *ctx) { feed(ctx); }

/* ---- subscribers ---- */

/* Without a subscriber yet. */
static struct generation *generation_create(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens)
{
	BUG_IF(window_tokens == 0 || window_tokens > MAX_WINDOW, "a window of %u tokens", window_tokens);
	struct generation *g = sl_zalloc(sizeof *g);
	if (g == NULL)
		return NULL;
	g->t = t;
	g->window = window_tokens;
	g->log = &g->own;
	gw_defer_init(&g->reap, on_reap);
	gw_defer_init(&g->feed, on_feed);
	g->paced = req->rate_tps > 0;
	if (token_log_init(&g->own, req->n, req->n_top_logprobs, req->seed) != 0) {
		generation_free(g);
		return NULL;
	}
	return g;
}

static int begin(struct generation *g, struct subscriber *s, struct generation **out)
{
	BUG_IF(s->gen != NULL, "a subscriber subscribes twice");
	metric_add(&by_state[GEN_SUBMITTED], 1);
	s->gen = g;
	s->next_token = 0;
	g->sub = s;
	*out = g;
	return 0;
}

int gen_join(struct gw_thread *t, struct token_log *log, const struct proto_submit *req, uint32_t window_tokens,
	     struct subscriber *first, struct generation **out)
{
	struct generation *g = generation_create(t, req, window_tokens);
	if (g == NULL)
		return SL_ENOMEM;
	int rc = token_log_read(log, t, on_log, g, &g->reader);
	if (rc != 0) {
		generation_free(g);
		return rc;
	}
	g->joined = true;
	return begin(g, first, out);
}

int gen_start(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens, struct subscriber *first,
	      struct generation **out)
{
	struct generation *g = generation_create(t, req, window_tokens);
	if (g == NULL)
		return SL_ENOMEM;
	int rc = submit(g, req);
	if (rc != 0) {
		generation_free(g);
		return rc;
	}
	return begin(g, first, out);
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
	return begin(g, first, out);
}

void gen_unsubscribe(struct subscriber *s)
{
	struct generation *g = s->gen;
	if (g == NULL)
		return;
	s->gen = NULL;
	g->sub = NULL;
	if (!is_final(g)) {
		forget(g);
		gen_end_shared(g, PROTO_FINISH_ERROR);
		gen_set_state(g, GEN_CANCELLED);
	}
	close_reader(g);
	gw_defer(g->t, &g->reap);
}

void gen_admit(struct generation *g)
{
	if (g->admitted || g->state != GEN_QUEUED)
		return;
	g->admitted = true;
	gen_set_state(g, GEN_RUNNING);
	if (g->joined) {
		gw_defer(g->t, &g->feed);
		return;
	}
	if (g->link_id != 0)
		g->hand = hand_over_begin(g->t, g->link_id, g->again != NULL ? remake_submitted(g->again) : NULL,
					  &g->log->queued, &g->prefill);
	g->admitted_ns = clock_now_ns();
	begin_hedge(g);
	give_credit(g, g->window);
}

bool gen_peek(const struct generation *g, const struct subscriber *s, uint32_t max_tokens, struct gen_chunk *out)
{
	return token_log_run(g->log, s->next_token, max_tokens, out);
}

void gen_token_at(const struct generation *g, uint64_t index, struct gen_token *out)
{
	token_log_token(g->log, index, out);
}

static const struct token_choice *choice_of(const struct generation *g, uint8_t i)
{
	BUG_IF(i >= g->log->n_choices, "choice %d of %d", i, g->log->n_choices);
	return &g->log->choices[i];
}

enum proto_finish gen_choice_end(const struct generation *g, const struct subscriber *s, uint8_t i)
{
	const struct token_choice *c = choice_of(g, i);
	return s->next_token >= c->after ? (enum proto_finish)c->finish : 0;
}

enum proto_length_why gen_choice_why(const struct generation *g, uint8_t i)
{
	return (enum proto_length_why)choice_of(g, i)->why;
}

enum proto_stop gen_choice_stop(const struct generation *g, uint8_t i, uint32_t *at)
{
	const struct token_choice *c = choice_of(g, i);
	*at = c->stop_at;
	return c->finish == PROTO_FINISH_STOP ? (enum proto_stop)c->stop : PROTO_STOP_NONE;
}

void gen_advance(struct subscriber *s, uint32_t n_tokens)
{
	struct generation *g = s->gen;
	uint64_t left = g->log->end - s->next_token;
	BUG_IF(n_tokens > left, "advance by %u of %llu tokens", n_tokens, (unsigned long long)left);
	s->next_token += n_tokens;
	if (!g->joined) {
		token_log_take(g->log, s->next_token);
		credit_ahead(g);
	} else if (g->reader != NULL) {
		if (s->next_token - g->reported > g->window / 4) {
			g->reported = s->next_token;
			token_reader_moved(g->reader, s->next_token);
		}
		/* Not from here: the caller is in the middle of reading. */
		gw_defer(g->t, &g->feed);
	}
}

enum gen_state gen_state(const struct generation *g) { return g->state; }
uint64_t gen_queued_ns(const struct generation *g) { return g->queued_ns; }
const struct proto_queued *gen_queued(const struct generation *g) { return &g->log->queued; }
uint64_t gen_n_tokens(const struct generation *g) { return g->log->end; }
uint64_t gen_seed(const struct generation *g) { return g->log->seed; }

const struct proto_done *gen_done(const struct generation *g)
{
	BUG_IF(g->state != GEN_FINISHED && g->state != GEN_FAILED, "gen_done in state %d", g->state);
	return &g->log->done;
}
