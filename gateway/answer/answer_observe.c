/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator sees of an answer (gateway/observe): the latency of its first token when that comes, the rest once,
 * at its end for its reader. With several prompts, the engine's times are those of the first, gaps and drafts those of
 * all.
 *
 * A reader that joined another's generation is observed as itself, without the engine's times, which are the other's.
 * An answer that another gateway began has no times here: its record says that it was continued.
 */
#include <string.h>

#include "base/clock.h"
#include "base/flight.h"
#include "base/metrics.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/auth/snapshot.h"
#include "gateway/variant/variant.h"

#define PREFIX(miss)                                                                  \
	METRIC_OF(METRIC_COUNTER, "sluice_prefix_prompts_total", "miss=\"" miss "\"", \
		  "Prompts by why no more of them came from the prefix tree; none: all that can be reused did")
static struct metric prompts[] = {[PROTO_MISS_NONE] = PREFIX("none"),
				  [PROTO_MISS_NEW] = PREFIX("new"),
				  [PROTO_MISS_EVICTED] = PREFIX("evicted"),
				  [PROTO_MISS_PRIVATE] = PREFIX("private"),
				  [PROTO_MISS_SHORT] = PREFIX("short")};
METRICS(prompts);

static const char *variant_name(const struct answer *a) { return a->variant != NULL ? a->variant->cfg->name : ""; }

static struct latency_cells *cells_of(const struct answer *a)
{
	return a->continued == NULL ? latency_of(a->key->tier->name, a->model, variant_name(a)) : NULL;
}

void answer_observe_run(struct answer *a, struct answer_run *run)
{
	if (a->seen.submitted_ns == 0)
		a->seen.submitted_ns = clock_now_ns();
	gen_observe(run->gen, cells_of(a));
}

/* As QUEUED reported it. */
static enum latency_cached cached_of(const struct proto_queued *q)
{
	if (q->n_cached == 0)
		return LATENCY_CACHED_NONE;
	return q->miss_reason == PROTO_MISS_NONE ? LATENCY_CACHED_FULL : LATENCY_CACHED_PART;
}

/* For its copy. */
static void note_first_token(struct answer *a, const struct answer_run *run)
{
	struct gen_chunk chunk;
	struct gen_token t;
	if (a->shadow.variant == NULL || !gen_peek(run->gen, &run->sub, 1, &chunk) || chunk.first_token != 0)
		return;
	gen_token_at(run->gen, 0, &t);
	a->shadow.first_id = t.id;
	a->shadow.has_first = true;
}

void answer_observe_first(struct answer *a, const struct answer_run *run, uint64_t now_ns)
{
	const struct proto_queued *q = gen_queued(run->gen);
	a->first_token_ns = now_ns;
	note_first_token(a, run);
	a->seen.cached = cached_of(q);
	if (!a->sharing.coalesced && a->continued == NULL && q->miss_reason < sizeof prompts / sizeof *prompts)
		metric_add(&prompts[q->miss_reason], 1);
	if (now_ns >= a->started_ns)
		latency_first_token(cells_of(a), a->seen.cached, now_ns - a->started_ns);
}

void answer_observe_keep(struct answer_run *run)
{
	enum gen_state state = gen_state(run->gen);
	const struct route_choice *route = gen_route(run->gen);
	run->told.gaps = gen_gaps(run->gen);
	if (route != NULL)
		run->told.route = *route;
	run->told.prefill = *gen_prefill(run->gen);
	run->told.n_remade = gen_n_remade(run->gen);
	run->told.hedge = gen_hedged(run->gen);
	if (state != GEN_FINISHED && state != GEN_FAILED)
		return;
	const struct proto_done *d = gen_done(run->gen);
	run->told.done = state == GEN_FINISHED;
	run->told.queue_us = d->queue_us;
	run->told.prefill_us = d->prefill_us;
	run->told.decode_us = d->decode_us;
	run->told.n_drafted = d->n_drafted;
	run->told.n_accepted = d->n_accepted;
}

static void add_run(struct observed *o, struct answer_run *run)
{
	if (run->gen != NULL)
		answer_observe_keep(run);
	const struct answer_told *t = &run->told;
	o->gaps.sum_ns += t->gaps.sum_ns;
	o->gaps.slow_ns += t->gaps.slow_ns;
	o->gaps.n += t->gaps.n;
	o->gaps.n_tokens += t->gaps.n_tokens;
	o->gaps.max_ns = t->gaps.max_ns > o->gaps.max_ns ? t->gaps.max_ns : o->gaps.max_ns;
	o->n_drafted += t->n_drafted;
	o->n_accepted += t->n_accepted;
}

static const char *reason_of(const struct answer *a)
{
	const char *by = answer_ended_by(a);
	if (by == NULL && answer_n_choices(a) > 0)
		by = a->choices[0].reason;
	return by != NULL ? by : "stop";
}

/* How it ended: the record's word, and vLLM's reason. */
static void set_end(struct observed *o, const struct answer *a)
{
	if (a->end == ANSWER_FAILED) {
		o->failed = o->status < 400 || o->status >= 500;
		o->finish = LATENCY_ERROR;
		o->ended_by = o->status >= 400 ? "refused" : "error";
		return;
	}
	o->left = a->end == ANSWER_STOPPED;
	o->ended_by = !o->left ? reason_of(a) : a->sharing.superseded ? "superseded" : "client";
	if (o->left)
		o->finish = LATENCY_ABORT;
	else
		o->finish = a->choices[0].reason != NULL && strcmp(a->choices[0].reason, "length") == 0 ? LATENCY_LENGTH
													: LATENCY_STOP;
}

static void set_engine(struct observed *o, const struct answer *a)
{
	const struct answer_told *first = &a->runs[0].told;
	o->has_engine = first->done && !a->sharing.coalesced && a->continued == NULL;
	o->queue_us = first->queue_us;
	o->prefill_us = first->prefill_us;
	o->decode_us = first->decode_us;
}

void answer_remake(const struct answer *a, struct answer_run *run, struct submit_frame *frame,
		   const struct proto_submit *s)
{
	gen_remake(run->gen, frame, s, a->out.logged);
	if (a->key->tier->hedge && a->continued == NULL)
		gen_hedge(run->gen);
	run->told.route = *gen_route(run->gen);
}

static void set_prefill(const struct answer *a, const struct prefill_choice *p, struct observed_route *out)
{
	if (p->why == PREFILL_UNDECIDED)
		return;
	out->prefill = prefill_why_name(p->why);
	out->prefill_engine = p->engine >= 0 ? engine_link_name(a->app->link, p->engine) : NULL;
	out->handed = p->handed ? prefill_end_name(p->end) : NULL;
	out->n_missing = p->n_missing;
	out->n_pages = p->n_pages;
	out->waited_us = p->waited_us;
}

static void set_hedge(const struct answer *a, const struct hedge_told *h, struct observed_route *out)
{
	if (h->end == HEDGE_NONE)
		return;
	out->hedge = hedge_end_name(h->end);
	out->hedge_from = engine_link_name(a->app->link, h->first);
	out->hedge_to = engine_link_name(a->app->link, h->second);
	out->hedge_ms = h->after_ms;
}

void answer_route(struct answer *a, struct observed_route *out)
{
	struct answer_run *first = &a->runs[0];
	if (first->gen != NULL)
		answer_observe_keep(first);
	const struct route_choice *c = &first->told.route;
	*out = (struct observed_route){.engine = NULL};
	if (c->n_candidates == 0 || engine_link_n_engines(a->app->link) < 2)
		return;
	*out = (struct observed_route){.engine = engine_link_name(a->app->link, c->engine),
				       .policy = route_policy_name(c->policy),
				       .n_engines = (unsigned)c->n_candidates,
				       .n_remade = first->told.n_remade,
				       .cost = c->cost,
				       .occupancy = c->parts[GW_ROUTE_OCCUPANCY],
				       .active = c->parts[GW_ROUTE_ACTIVE],
				       .cache = c->parts[GW_ROUTE_CACHE],
				       .queue = c->parts[GW_ROUTE_QUEUE],
				       .recent = c->parts[GW_ROUTE_RECENT],
				       .affinity = c->parts[GW_ROUTE_AFFINITY],
				       .spilled = c->spilled,
				       .cached = c->cached};
	set_prefill(a, &first->told.prefill, out);
	set_hedge(a, &first->told.hedge, out);
}

/* Not a reader of another's generation, nor what a client's own request was wrong in, or a newer one replaced. */
static void note_variant(const struct answer *a, const struct observed *o)
{
	const bool refused = o->status >= 400 && o->status < 500;
	if (a->variant == NULL || a->continued != NULL || a->sharing.coalesced || a->sharing.superseded || refused)
		return;
	const struct variant_answer v = {.trial = {.failed = o->failed,
						   .left = o->left && !o->failed,
						   .ttft_ns = observed_ttft_ns(o),
						   .user = a->variant_user},
					 .end = o->failed                     ? VARIANT_FAILED
						: o->left                     ? VARIANT_LEFT
						: o->finish == LATENCY_LENGTH ? VARIANT_LENGTH
									      : VARIANT_STOP};
	variant_note(a->variant, &v);
	if (a->shadow.variant != NULL && !o->failed && !o->left && o->status == 200)
		shadow_begin(a->app->shadows, &a->shadow, o->n_answer, o->finish == LATENCY_LENGTH);
}

void answer_observe_refused(const struct exchange *x)
{
	const struct variant_answer v = {.trial = {.failed = true, .user = x->variant_user}, .end = VARIANT_FAILED};
	if (x->variant != NULL)
		variant_note(x->variant, &v);
}

/* The tokens of its longest choice. */
static uint32_t longest(const struct answer *a)
{
	uint32_t most = 0;
	for (unsigned i = 0; i < answer_n_choices(a); i++)
		most = a->choices[i].n_tokens > most ? a->choices[i].n_tokens : most;
	return most;
}

void answer_observe_end(struct answer *a)
{
	const struct gw_tier_config *tier = a->key->tier;
	struct sse_usage u = answer_usage(a);
	char line[256];
	struct observed o = {.request_id = a->seen.request_id,
			     .trace = a->seen.trace,
			     .model = a->model,
			     .variant = variant_name(a),
			     .tier = tier->name,
			     .tenant = a->key->tenant,
			     .status = a->seen.status,
			     .cached = a->seen.cached,
			     .has_answer = a->continued == NULL,
			     .continued = a->continued != NULL,
			     .shared = a->sharing.coalesced,
			     .started_ns = a->started_ns,
			     .submitted_ns = a->seen.submitted_ns,
			     .first_ns = a->first_token_ns,
			     .ended_ns = clock_now_ns(),
			     .ttft_target_ns = tier->ttft_target_ms * NS_PER_MS,
			     .itl_target_ns = tier->itl_target_ms * NS_PER_MS,
			     .n_prompt = u.n_prompt,
			     .n_cached = u.n_cached,
			     .n_answer = u.n_completion,
			     .n_longest = longest(a)};
	if (a->seen.elsewhere)
		return;
	if (o.status == 0 && (a->admitted_ns > 0 || a->sharing.superseded))
		o.status = 200;
	for (int i = 0; i < a->n_runs; i++)
		add_run(&o, &a->runs[i]);
	set_engine(&o, a);
	set_end(&o, a);
	if (a->runs[0].cascade != NULL)
		o.switched_ns = cascade_run_switched_ns(a->runs[0].cascade);
	o.cascade = answer_auto_line(a, line, sizeof line);
	answer_route(a, &o.route);
	flight_note(FLIGHT_END, (uint64_t)o.status, o.n_answer, observed_ttft_ns(&o) / 1000,
		    (o.ended_ns - o.started_ns) / 1000, o.failed);
	observe_end(&o, cells_of(a), a->snapshot->sinks);
	note_variant(a, &o);
}
