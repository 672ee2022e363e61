/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench engine`: the engine through engine/engine.h, in scenarios that each answer one question. Prompts are
 * random tokens, so any model file of the right shape will do. Arrival times are nanoseconds from the start of a run.
 * The main thread submits; the engine's threads record the times of events.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/config/cmd.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/kv/prefix.h"
#include "engine/sched/sched.h"

enum { MAX_REQUESTS = 4096, MAX_ANSWER = 8192, WAIT_S = 900 };

struct request {
	uint64_t at_ns; /* from the start of the run */
	uint64_t tenant;
	uint32_t weight, n_prompt, n_tokens;
	uint8_t priority;
	int32_t *ids; /* owned */
	/* Times of its events. */
	uint64_t submitted, queued, first, done;
	double predicted_ns;
	uint32_t n_cached, n_made;
	uint64_t *times; /* [n_tokens], owned */
	bool ended, failed;
};

struct bench {
	struct engine *e;
	struct eng_config cfg;
	struct eng_model_config model;
	pthread_mutex_t lock;
	pthread_cond_t news;
	int state;
	char reason[PROTO_MAX_MESSAGE + 1];
	struct request r[MAX_REQUESTS];
	uint32_t n, n_ended;
	int n_vocab;
	uint64_t random;
	bool json, first_line;
};

static uint32_t draw(struct bench *b, uint32_t below)
{
	b->random = b->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(b->random >> 33) % below;
}

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct bench *b = ctx;
	uint64_t now = clock_now_ns();
	pthread_mutex_lock(&b->lock);
	struct request *r = ev->kind == ENG_MODEL ? NULL : &b->r[ev->id - 1];
	switch (ev->kind) {
	case ENG_MODEL:
		b->state = ev->u.model.state;
		snprintf(b->reason, sizeof b->reason, "%.*s", (int)ev->u.model.reason.n, ev->u.model.reason.at);
		break;
	case ENG_QUEUED:
		if (r->queued != 0)
			break; /* a later prediction for a waiting request */
		r->queued = now;
		r->predicted_ns = ev->u.queued.predicted_ttft_us * 1e3;
		break;
	case ENG_TOKENS:
		if (r->first == 0)
			r->first = now;
		for (int i = 0; i < ev->u.tokens.n && r->n_made < r->n_tokens; i++)
			r->times[r->n_made++] = now;
		break;
	case ENG_DONE:
		r->done = now;
		r->n_cached = ev->u.done.n_cached;
		r->failed = ev->u.done.finish == PROTO_FINISH_ERROR;
		r->ended = true;
		b->n_ended++;
		break;
	default: break;
	}
	pthread_cond_signal(&b->news);
	pthread_mutex_unlock(&b->lock);
}

/* Waits for an event, with the lock held. False: the deadline has passed. */
static bool wait_news(struct bench *b, uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();
	if (now >= deadline_ns)
		return false;
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	uint64_t ns = (uint64_t)ts.tv_nsec + (deadline_ns - now);
	ts.tv_sec += (time_t)(ns / NS_PER_S);
	ts.tv_nsec = (long)(ns % NS_PER_S);
	pthread_cond_timedwait(&b->news, &b->lock, &ts);
	return true;
}

static int open_engine(struct bench *b, bool prefix_cache)
{
	struct sl_err err = {0};
	b->cfg.no_prefix_cache = !prefix_cache;
	b->state = PROTO_MODEL_LOADING;
	if (engine_create(&b->cfg, on_event, b, &b->e, &err) != 0)
		return bench_complain(1, "%s", err.text);
	uint64_t deadline = clock_now_ns() + WAIT_S * NS_PER_S;
	pthread_mutex_lock(&b->lock);
	while (b->state == PROTO_MODEL_LOADING && wait_news(b, deadline))
		;
	bool ready = b->state == PROTO_MODEL_READY;
	pthread_mutex_unlock(&b->lock);
	return ready ? 0 : bench_complain(1, "%s", b->reason);
}

static void close_engine(struct bench *b)
{
	engine_destroy(b->e);
	b->e = NULL;
}

static void forget(struct bench *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		sl_free(b->r[i].ids);
		sl_free(b->r[i].times);
		b->r[i] = (struct request){0};
	}
	b->n = b->n_ended = 0;
}

/* Adds a request of n_prompt random tokens; the first n_shared are those of request `like`. */
static struct request *add(struct bench *b, uint64_t at_ns, uint32_t n_prompt, uint32_t n_tokens,
			   const struct request *like, uint32_t n_shared)
{
	BUG_IF(b->n == MAX_REQUESTS, "bench: too many requests");
	struct request *r = &b->r[b->n++];
	*r = (struct request){.at_ns = at_ns,
			      .tenant = 1,
			      .weight = PROTO_DEFAULT_WEIGHT,
			      .n_prompt = n_prompt,
			      .n_tokens = n_tokens,
			      .ids = sl_zalloc_n(n_prompt, sizeof *r->ids),
			      .times = sl_zalloc_n(n_tokens, sizeof *r->times)};
	BUG_IF(r->ids == NULL || r->times == NULL, "bench: out of memory");
	for (uint32_t i = 0; i < n_prompt; i++)
		r->ids[i] = i < n_shared && like != NULL ? like->ids[i] : (int32_t)draw(b, (uint32_t)b->n_vocab);
	return r;
}

static int submit(struct bench *b, uint32_t i)
{
	struct request *r = &b->r[i];
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .prompt_kind = PROTO_PROMPT_TOKENS,
				   .flags = PROTO_SUBMIT_IGNORE_EOS,
				   .tenant = r->tenant,
				   .top_p = 1,
				   .max_tokens = r->n_tokens,
				   .prompt = {(const char *)r->ids, r->n_prompt * 4}};
	req.weight = r->weight;
	req.priority = r->priority;
	r->submitted = clock_now_ns();
	int rc = engine_submit(b->e, i + 1, &req);
	if (rc == 0)
		engine_credit(b->e, i + 1, r->n_tokens);
	return rc;
}

/* Submits each request at its time, waits until those from `awaited` on have ended, and cancels the rest. 0: all
 * awaited requests succeeded. */
static int run_until(struct bench *b, uint32_t from, uint32_t awaited)
{
	uint64_t begin = clock_now_ns(), deadline = begin + WAIT_S * NS_PER_S;
	uint32_t next = from;
	pthread_mutex_lock(&b->lock);
	uint32_t done = awaited;
	while (clock_now_ns() < deadline) {
		while (done < b->n && b->r[done].ended)
			done++;
		if (done == b->n)
			break;
		uint64_t due = next < b->n ? begin + b->r[next].at_ns : deadline;
		if (next < b->n && clock_now_ns() >= due) {
			pthread_mutex_unlock(&b->lock);
			int rc = submit(b, next++);
			pthread_mutex_lock(&b->lock);
			if (rc != 0)
				break;
			continue;
		}
		wait_news(b, due);
	}
	bool all = done == b->n;
	for (uint32_t i = awaited; i < b->n && all; i++)
		all = !b->r[i].failed;
	pthread_mutex_unlock(&b->lock);
	for (uint32_t i = 0; i < awaited; i++)
		engine_cancel(b->e, i + 1);
	pthread_mutex_lock(&b->lock);
	while (b->n_ended < next && wait_news(b, deadline))
		;
	pthread_mutex_unlock(&b->lock);
	return all ? 0 : bench_complain(1, "a request failed or took too long");
}

static int run(struct bench *b, uint32_t from) { return run_until(b, from, 0); }

static void line(struct bench *b, const char *what, double value, const char *unit)
{
	if (b->json)
		printf("%s\"%s\":%.6g", b->first_line ? "" : ",", what, value);
	else
		printf("  %-46s %12.4g %s\n", what, value, unit);
	b->first_line = false;
	fflush(stdout);
}

static double ttft_ms(const struct request *r) { return (double)(r->first - r->submitted) / 1e6; }

/* ---- scenarios ---- */

/* 200 requests that share a prefix of 1,500 tokens, all at once and one after another. */
static int shared_prefix(struct bench *b)
{
	enum { N = 200, SHARED = 1500, OWN = 20 };
	static double x[N];
	int rc = open_engine(b, true);
	for (int way = 0; way < 2 && rc == 0; way++) {
		forget(b);
		uint64_t prompt = 0, cached = 0;
		const struct request *first = NULL;
		for (int i = 0; i < N && rc == 0; i++) {
			struct request *r = add(b, 0, SHARED + OWN, 4, first, SHARED);
			first = first == NULL ? r : first;
			if (way == 1) /* each after the end of the previous one */
				rc = run(b, (uint32_t)i);
		}
		if (way == 0)
			rc = run(b, 0);
		for (int i = 0; i < N; i++) {
			prompt += b->r[i].n_prompt;
			cached += b->r[i].n_cached;
			x[i] = ttft_ms(&b->r[i]);
		}
		line(b, way == 0 ? "at_once_cached_percent" : "one_by_one_cached_percent",
		     100.0 * (double)cached / (double)prompt, "%");
		if (way == 1) {
			double miss = x[0], hit = percentile(x + 1, N - 1, 50);
			line(b, "miss_ttft_ms", miss, "ms");
			line(b, "hit_ttft_ms", hit, "ms (median)");
			line(b, "miss_over_hit", miss / hit, "times");
		}
	}
	close_engine(b);
	forget(b);
	return rc;
}

/* Cost of the prefix tree for requests that share nothing: the same requests with and without it, alternating. */
static int no_sharing(struct bench *b)
{
	enum { ROUNDS = 7, N = 24 };
	static double with[ROUNDS], without[ROUNDS], ratio[ROUNDS];
	int rc = 0;
	for (int round = 0; round < ROUNDS && rc == 0; round++) {
		for (int k = 0; k < 2 && rc == 0; k++) {
			bool cache = (k + round) % 2 == 0;
			rc = open_engine(b, cache);
			forget(b);
			for (int i = 0; i < N; i++)
				add(b, 0, 300, 24, NULL, 0);
			uint64_t begin = clock_now_ns();
			if (rc == 0)
				rc = run(b, 0);
			*(cache ? &with[round] : &without[round]) = (double)(clock_now_ns() - begin);
			if (b->e != NULL)
				close_engine(b);
		}
		ratio[round] = with[round] / without[round];
	}
	line(b, "tree_cost_percent", 100 * (percentile(ratio, ROUNDS, 50) - 1), "% (median of pairs)");
	forget(b);
	return rc;
}

/* A 30,000-token prompt among 16 streams, compared with the same streams without it. Tokens get slower as an answer
 * grows, so the gaps before the same tokens are compared. */
static int long_prompt(struct bench *b)
{
	enum { STREAMS = 16, TOKENS = 2500, LONG = 30000 };
	static double gaps[2][STREAMS * TOKENS];
	static uint64_t alone[STREAMS][TOKENS];
	size_t n[2] = {0};
	int rc = open_engine(b, true);
	for (int way = 0; way < 2 && rc == 0; way++) {
		forget(b);
		b->random = 7;
		for (int i = 0; i < STREAMS; i++)
			add(b, 0, 64, TOKENS, NULL, 0);
		if (way == 1)
			add(b, 6 * NS_PER_S, LONG, 1, NULL, 0);
		rc = run(b, 0);
		for (int i = 0; i < STREAMS && way == 0; i++)
			memcpy(alone[i], b->r[i].times, sizeof alone[i]);
	}
	const struct request *r = &b->r[STREAMS];
	for (int i = 0; i < STREAMS && rc == 0; i++) {
		const uint64_t *t = b->r[i].times;
		for (uint32_t k = 1; k < b->r[i].n_made; k++) {
			if (t[k - 1] <= r->submitted || t[k] >= r->first)
				continue;
			gaps[0][n[0]++] = (double)(alone[i][k] - alone[i][k - 1]) / 1e6;
			gaps[1][n[1]++] = (double)(t[k] - t[k - 1]) / 1e6;
		}
	}
	double p99 = percentile(gaps[0], n[0], 99), p99_beside = percentile(gaps[1], n[1], 99);
	line(b, "long_prompt_ttft_s", ttft_ms(r) / 1e3, "s");
	line(b, "gaps_compared", (double)n[1], "");
	line(b, "itl_p50_alone_ms", percentile(gaps[0], n[0], 50), "ms");
	line(b, "itl_p50_beside_ms", percentile(gaps[1], n[1], 50), "ms");
	line(b, "itl_p99_alone_ms", p99, "ms");
	line(b, "itl_p99_beside_ms", p99_beside, "ms");
	line(b, "itl_p99_raised_by_ms", p99_beside - p99, "ms");
	line(b, "itl_target_ms", b->cfg.itl_target_ms, "ms");
	close_engine(b);
	forget(b);
	return rc;
}

/* One tenant of the given priority and weight floods the engine while a tenant of priority 0 and weight 100 sends an
 * occasional request. */
static int beside_a_flood(struct bench *b, uint8_t priority, uint32_t weight)
{
	enum { N = 10, PROMPT = 500, FLOOD = 120 };
	double idle[N], busy[N];
	int rc = open_engine(b, true);
	forget(b);
	for (int i = 0; i < N && rc == 0; i++) {
		add(b, 0, PROMPT, 2, NULL, 0);
		rc = run(b, (uint32_t)i);
		idle[i] = ttft_ms(&b->r[i]);
	}
	forget(b);
	double each_s = percentile(idle, N, 50) / 1e3;
	for (int i = 0; i < FLOOD; i++) {
		struct request *r = add(b, 0, PROMPT, 64, NULL, 0);
		r->tenant = 2;
		r->weight = weight;
		r->priority = priority;
	}
	for (int i = 0; i < N; i++)
		add(b, (uint64_t)((2 + 2.5 * i) * each_s * 1e9), PROMPT, 2, NULL, 0);
	if (rc == 0)
		rc = run_until(b, 0, FLOOD);
	/* The flood must have lasted to the end. */
	int n_while = 0, n_left = 0;
	for (int i = 0; i < FLOOD; i++)
		n_left += b->r[i].n_made < b->r[i].n_tokens;
	for (int i = 0; i < N && n_left > 0; i++)
		busy[n_while++] = ttft_ms(&b->r[FLOOD + i]);
	double p99 = percentile(idle, N, 99), p99_busy = percentile(busy, (size_t)n_while, 99);
	line(b, "asked_during_flood", n_while, "requests");
	line(b, "idle_ttft_p99_ms", p99, "ms");
	line(b, "flood_ttft_p50_ms", percentile(busy, (size_t)n_while, 50), "ms");
	line(b, "flood_ttft_p99_ms", p99_busy, "ms");
	line(b, "flood_over_idle", p99_busy / p99, "times");
	struct proto_stats stats;
	engine_stats(b->e, &stats);
	line(b, "decode_step_ms", stats.us_per_decode_step / 1e3, "ms");
	close_engine(b);
	forget(b);
	return rc;
}

static int fair_share(struct bench *b) { return beside_a_flood(b, 0, 10); }

/* The tiers free and paid of etc/sluice.yaml. */
static int fair_tiers(struct bench *b) { return beside_a_flood(b, 1, PROTO_DEFAULT_WEIGHT); }

/* Predicted and actual times to first token, for random arrivals below the engine's capacity. */
static int prediction(struct bench *b)
{
	/* The first requests are not counted: from them the engine learns its costs. */
	enum { WARM = 12, FIRST = 100, N = 300 };
	static double off[N];
	int rc = open_engine(b, true);
	forget(b);
	for (int i = 0; i < WARM; i++)
		add(b, 0, 50 + draw(b, 500), 16, NULL, 0);
	uint64_t begin = clock_now_ns();
	if (rc == 0)
		rc = run(b, 0);
	double each_ns = (double)(clock_now_ns() - begin) / WARM / 0.7, at = 0;
	forget(b);
	for (int i = 0; i < N; i++) {
		at += -log((draw(b, 1000000) + 1) / 1000001.0) * each_ns;
		struct request *r = add(b, (uint64_t)at, 50 + draw(b, 500), 4 + draw(b, 24), NULL, 0);
		r->tenant = 1 + draw(b, 3);
	}
	if (rc == 0)
		rc = run(b, 0);
	for (int i = FIRST; i < N; i++) {
		double truth = (double)(b->r[i].first - b->r[i].queued);
		off[i - FIRST] = fabs(b->r[i].predicted_ns - truth) / truth;
	}
	line(b, "prediction_off_p50_percent", 100 * percentile(off, N - FIRST, 50), "%");
	line(b, "prediction_off_p90_percent", 100 * percentile(off, N - FIRST, 90), "%");
	close_engine(b);
	forget(b);
	return rc;
}

/* ---- planning: cost of the scheduler and of the tree, relative to this model's decode step ---- */

static void look_nowhere(void *ctx, struct sched_seq *s, struct sched_look *out)
{
	(void)ctx;
	(void)s;
	(void)out;
}

static uint32_t own_pages(void *ctx, const struct sched_seq *s)
{
	(void)ctx;
	return s->n_pages;
}

/* Microseconds of a plan for 256 decoding sequences and n_waiting waiting ones. */
static double plan_us(int n_waiting)
{
	enum { RUNNING = 256, PLANS = 400 };
	static double x[PLANS];
	struct sched_config cfg = {.step_tokens = 128,
				   .max_sequences = RUNNING,
				   .kv = kv_groups_one(16, 1),
				   .n_pages = 100000,
				   .age_ns = 2 * NS_PER_S,
				   .starve_ns = 3600 * NS_PER_S,
				   .paused_ns = NS_PER_S,
				   .itl_target_ns = 50 * NS_PER_MS};
	struct sched *sc;
	struct sched_tenants tenants;
	struct cost cost;
	struct sched_seq *seqs = sl_zalloc_n(RUNNING + (size_t)n_waiting, sizeof *seqs);
	if (seqs == NULL || sched_create(&cfg, &sc) != 0 || sched_tenants_init(&tenants) != 0)
		return 0;
	cost_init(&cost, 1e6, 1e5);
	for (int i = 0; i < RUNNING + n_waiting; i++) {
		struct sched_seq *s = &seqs[i];
		bool runs = i < RUNNING;
		*s = (struct sched_seq){.order = (uint64_t)i,
					.served_ns = NS_PER_S,
					.credit = true,
					.width = 1,
					.tenant = sched_tenant_enter(&tenants, (uint64_t)i % 64 + 1, 0),
					.priority = (uint8_t)(i % 3),
					.started = runs,
					.prefilling = !runs,
					.n_past = runs ? 500 : 0,
					.n_pages = runs ? 32 : 0,
					.n_left = runs ? 1 : 100 + (uint32_t)i % 900};
		if (s->tenant == NULL || sched_add(sc, s, NS_PER_S) != 0)
			return 0;
	}
	const struct sched_owner owner = {.look = look_nowhere, .pages_back = own_pages};
	for (int i = 0; i < PLANS; i++) {
		struct sched_plan plan;
		uint64_t begin = clock_now_ns();
		sched_plan(sc, &owner, &cost, 50000, NS_PER_S + (uint64_t)i * 10 * NS_PER_MS, &plan);
		for (uint32_t k = 0; k < plan.n_run; k++)
			sched_update(sc, plan.run[k], NS_PER_S);
		x[i] = (double)(clock_now_ns() - begin) / 1e3;
	}
	for (int i = 0; i < RUNNING + n_waiting; i++) {
		sched_remove(sc, &seqs[i]);
		sched_tenant_leave(&tenants, seqs[i].tenant);
	}
	sched_destroy(sc);
	sched_tenants_dispose(&tenants);
	sl_free(seqs);
	return percentile(x, PLANS, 50);
}

/* Microseconds to look up 8,000 tokens in a tree with n_others other pages. */
static double lookup_us(int n_others)
{
	enum { TOKENS = 8000, LOOKS = 200, PAGE = 16 };
	static double x[LOOKS];
	static int32_t tokens[TOKENS], pages[TOKENS / PAGE + 1];
	struct sl_err err;
	const struct kn_ops *ops = kn_select("cpu-ref", &err);
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	struct kn_backend *backend;
	struct kv_pool *pool;
	struct prefix_tree *tree;
	if (ops == NULL || ops->open(&kc, &backend, &err) != 0 ||
	    kv_pool_create(ops, backend, KN_F32, n_others + TOKENS / PAGE + 8, PAGE, 1, 1, 1, &pool, &err) != 0 ||
	    prefix_create(pool, TOKENS / PAGE + 1, &tree) != 0)
		return 0;
	for (int round = 0; round <= n_others / (TOKENS / PAGE); round++) {
		struct prefix_path path = {0};
		uint32_t n_pages, n = TOKENS;
		for (int i = 0; i < TOKENS; i++)
			tokens[i] = round * 31 + i * 7;
		prefix_begin(tree, 1, tokens, n, n, &path, pages, &n_pages);
		for (; n_pages < TOKENS / PAGE; n_pages++)
			if (prefix_page_alloc(tree, &pages[n_pages]) != 0)
				break;
		prefix_computed(tree, &path, tokens, n_pages * PAGE, pages);
		prefix_end(tree, &path, tokens, n_pages * PAGE, pages);
		for (uint32_t k = 0; k < n_pages; k++)
			kv_page_unref(pool, pages[k]);
	}
	for (int i = 0; i < LOOKS; i++) {
		struct prefix_match m;
		uint64_t begin = clock_now_ns();
		prefix_lookup(tree, 1, tokens, TOKENS, &m);
		x[i] = (double)(clock_now_ns() - begin) / 1e3;
	}
	prefix_destroy(tree);
	kv_pool_destroy(pool);
	ops->close(backend);
	return percentile(x, LOOKS, 50);
}

/* Microseconds of a step of 32 decodes. */
static int decode_us(struct bench *b, double *out)
{
	enum { STREAMS = 32, TOKENS = 60 };
	static double x[STREAMS * TOKENS];
	size_t n = 0;
	int rc = open_engine(b, true);
	forget(b);
	for (int i = 0; i < STREAMS; i++)
		add(b, 0, 100, TOKENS, NULL, 0);
	if (rc == 0)
		rc = run(b, 0);
	uint64_t all_run = 0;
	for (int i = 0; i < STREAMS; i++)
		all_run = b->r[i].first > all_run ? b->r[i].first : all_run;
	for (int i = 0; i < STREAMS; i++)
		for (uint32_t k = 1; k < b->r[i].n_made; k++)
			if (b->r[i].times[k - 1] > all_run)
				x[n++] = (double)(b->r[i].times[k] - b->r[i].times[k - 1]) / 1e3;
	*out = percentile(x, n, 50);
	close_engine(b);
	forget(b);
	return rc;
}

static int planning(struct bench *b)
{
	double step;
	int rc = decode_us(b, &step);
	if (rc != 0)
		return rc;
	static const int waiting[] = {0, 100, 1000, 10000};
	line(b, "decode_step_of_32_us", step, "us");
	for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
		char name[64];
		double us = plan_us(waiting[i]);
		snprintf(name, sizeof name, "plan_256_running_%d_waiting_us", waiting[i]);
		line(b, name, us, "us");
		if (i == 3)
			line(b, "plan_share_of_step_percent", 100 * us / step, "%");
	}
	for (int others = 0; others <= 20000; others += 20000) {
		char name[64];
		double us = lookup_us(others);
		snprintf(name, sizeof name, "lookup_8000_tokens_among_%d_pages_us", others);
		line(b, name, us, "us");
		if (others > 0)
			line(b, "lookup_share_of_step_percent", 100 * us / step, "%");
	}
	return 0;
}

/* ---- the command ---- */

static const struct {
	const char *name;
	int (*run)(struct bench *b);
} scenarios[] = {{"shared-prefix", shared_prefix},
		 {"no-sharing", no_sharing},
		 {"long-prompt", long_prompt},
		 {"fair-share", fair_share},
		 {"fair-tiers", fair_tiers},
		 {"prediction", prediction},
		 {"planning", planning}};

int bench_engine(int argc, char **argv)
{
	const char *path = NULL, *only = NULL;
	double threads = 0, itl = 50, step_tokens = 256, sequences = 32;
	bool json = false, found = false;
	const struct bench_option options[] = {
	    {"--scenario", NULL, &only, NULL, 0, 0},          {"--threads", &threads, NULL, NULL, 0, 1024},
	    {"--itl-target", &itl, NULL, NULL, 0, 10000},     {"--step-tokens", &step_tokens, NULL, NULL, 1, 8192},
	    {"--sequences", &sequences, NULL, NULL, 1, 1024}, {"--json", NULL, NULL, &json, 0, 0},
	};
	struct model_info info;
	int rc = bench_parse_model(argc, argv, options, sizeof options / sizeof *options, &path, &info);
	if (rc != 0)
		return rc;
	struct bench *b = sl_zalloc(sizeof *b);
	if (b == NULL)
		return bench_complain(1, "out of memory");
	log_init("bench", LOG_ERROR);
	b->model = (struct eng_model_config){.name = "model", .path = path};
	b->cfg = (struct eng_config){.models = &b->model,
				     .n_models = 1,
				     .backend = "auto",
				     .n_threads = (int)threads,
				     .n_text_workers = 1,
				     .page_tokens = 16,
				     .kv_bytes = 4ull << 30,
				     .max_sequences = (int)sequences,
				     .max_waiting = MAX_REQUESTS,
				     .step_tokens = (int)step_tokens,
				     .max_prompt_bytes = 1 << 20,
				     .itl_target_ms = (int)itl};
	b->n_vocab = info.arch.n_vocab;
	b->random = 1;
	b->json = json;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->news, NULL);
	if (!json)
		bench_header();
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios && rc == 0; i++) {
		if (only != NULL && strcmp(only, scenarios[i].name) != 0)
			continue;
		if (json)
			printf("%s\"%s\":{", found ? "," : "{", scenarios[i].name);
		else
			printf("%s\n", scenarios[i].name);
		found = b->first_line = true;
		rc = scenarios[i].run(b);
		if (json)
			putchar('}');
	}
	if (json && found)
		puts("}");
	pthread_cond_destroy(&b->news);
	pthread_mutex_destroy(&b->lock);
	sl_free(b);
	return found ? rc : bench_complain(CMD_EXIT_USAGE, "no scenario %s", only);
}
