/* SPDX-License-Identifier: Apache-2.0
 *
 * What ends between two samples is added up in atomics, which the tick takes. First tokens are counted in buckets of a
 * quarter of an octave, so a percentile is at most 19 % too high.
 */
#include "gateway/observe/history.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/observe/observe.h"

enum { BUCKETS = 80, PER_OCTAVE = 4 }; /* from 1 ms to 15 minutes */

enum sum { ANSWERS, FAILED, REFUSED, GOOD, JUDGED, CASCADED, ESCALATED, N_SUMS };

static struct {
	atomic_uint sums[N_SUMS], ttft[BUCKETS];
} now;

enum figure {
	F_AT,
	F_ANSWERS,
	F_FAILED,
	F_REFUSED,
	F_GOOD,
	F_LARGE,
	F_TTFT_P50,
	F_TTFT_P95,
	F_PROMPT,
	F_ANSWER,
	F_RUNNING,
	F_WAITING,
	F_QUEUED,
	F_KV,
	F_HITS,
	F_PREEMPTIONS,
	N_FIGURES
};
static const char *const names[N_FIGURES] = {
    "at",          "answers_per_s", "failed_per_s",        "refused_per_s", "good_share", "large_share",
    "ttft_p50_ms", "ttft_p95_ms",   "prompt_tokens_per_s", "tokens_per_s",  "running",    "waiting",
    "queued",      "kv_used_share", "prefix_hit_share",    "preemptions"};

static struct {
	pthread_mutex_t lock;
	double at[HISTORY_MOST][N_FIGURES];
	unsigned n, next;
	uint64_t due_ns, last_ns; /* the tick's, as is before */
	struct history_gauges before;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add(enum sum which, bool counts)
{
	if (counts)
		atomic_fetch_add_explicit(&now.sums[which], 1, memory_order_relaxed);
}

static unsigned bucket_of(uint64_t ns)
{
	double octaves = log2((double)ns / NS_PER_MS);
	return octaves <= 0 ? 0 : octaves * PER_OCTAVE >= BUCKETS - 1 ? BUCKETS - 1 : (unsigned)(octaves * PER_OCTAVE);
}

void history_answer(const struct observed *o)
{
	const enum observed_verdict v = observed_judge(o);
	const uint64_t ttft = observed_ttft_ns(o);
	const bool refused = !o->has_answer || o->status >= 400;
	const bool cascaded = o->cascade != NULL && o->cascade[0] != '\0';
	if (o->vectors)
		return;
	add(ANSWERS, !refused);
	add(REFUSED, refused && o->status >= 400);
	add(FAILED, o->failed);
	add(JUDGED, v != OBSERVED_NOT_JUDGED);
	add(GOOD, v == OBSERVED_GOOD);
	add(CASCADED, cascaded);
	add(ESCALATED, cascaded && (o->switched_ns > 0 || strncmp(o->cascade, "large/", 6) == 0));
	if (o->has_answer && ttft > 0)
		atomic_fetch_add_explicit(&now.ttft[bucket_of(ttft)], 1, memory_order_relaxed);
}

/* ---- a sample ---- */

/* The upper end of the bucket that has the answer of that rank; NAN: there is none. */
static double percentile(const unsigned counts[BUCKETS], double share)
{
	unsigned all = 0, below = 0;
	for (int i = 0; i < BUCKETS; i++)
		all += counts[i];
	for (int i = 0; i < BUCKETS; i++) {
		below += counts[i];
		if (all > 0 && below >= share * all)
			return exp2((double)(i + 1) / PER_OCTAVE);
	}
	return NAN;
}

static double share_of(double part, double all) { return all > 0 ? part / all : NAN; }

/* A counter that went back belongs to an engine that has started again. */
static double grown(uint64_t from, uint64_t to) { return (double)(to >= from ? to - from : to); }

static void take_ended(double row[N_FIGURES], double seconds)
{
	unsigned sums[N_SUMS], ttft[BUCKETS];
	for (int i = 0; i < N_SUMS; i++)
		sums[i] = atomic_exchange_explicit(&now.sums[i], 0, memory_order_relaxed);
	for (int i = 0; i < BUCKETS; i++)
		ttft[i] = atomic_exchange_explicit(&now.ttft[i], 0, memory_order_relaxed);
	row[F_ANSWERS] = sums[ANSWERS] / seconds;
	row[F_FAILED] = sums[FAILED] / seconds;
	row[F_REFUSED] = sums[REFUSED] / seconds;
	row[F_GOOD] = share_of(sums[GOOD], sums[JUDGED]);
	row[F_LARGE] = share_of(sums[ESCALATED], sums[CASCADED]);
	row[F_TTFT_P50] = percentile(ttft, 0.5);
	row[F_TTFT_P95] = percentile(ttft, 0.95);
}

static void look_at(double row[N_FIGURES], double seconds, const struct history_gauges *g)
{
	const struct history_gauges *b = &ring.before;
	row[F_PROMPT] = grown(b->prompt_tokens, g->prompt_tokens) / seconds;
	row[F_ANSWER] = grown(b->answer_tokens, g->answer_tokens) / seconds;
	row[F_RUNNING] = g->running;
	row[F_WAITING] = g->waiting;
	row[F_QUEUED] = g->queued;
	row[F_KV] = g->kv_used_permille / 1000.0;
	row[F_HITS] = share_of(grown(b->prefix_hits, g->prefix_hits), grown(b->prefix_queries, g->prefix_queries));
	row[F_PREEMPTIONS] = grown(b->preemptions, g->preemptions);
}

static void keep(const double row[N_FIGURES])
{
	pthread_mutex_lock(&ring.lock);
	memcpy(ring.at[ring.next], row, sizeof ring.at[0]);
	ring.next = (ring.next + 1) % HISTORY_MOST;
	ring.n += ring.n < HISTORY_MOST;
	pthread_mutex_unlock(&ring.lock);
}

void history_tick(uint64_t now_ns, int64_t unix_s, const struct history_gauges *g)
{
	const uint64_t step = HISTORY_STEP_MS * NS_PER_MS;
	double row[N_FIGURES];
	if (now_ns < ring.due_ns)
		return;
	if (ring.last_ns > 0) {
		const double seconds = (double)(now_ns - ring.last_ns) / NS_PER_S;
		row[F_AT] = (double)unix_s;
		take_ended(row, seconds);
		look_at(row, seconds, g);
		keep(row);
	}
	/* In step with the first one, unless samples were missed. */
	ring.due_ns = ring.due_ns > 0 && now_ns - ring.due_ns < step ? ring.due_ns + step : now_ns + step;
	ring.last_ns = now_ns;
	ring.before = *g;
}

/* ---- output ---- */

static int print_value(struct sl_buf *out, enum figure f, double v, bool first)
{
	int rc = first ? 0 : buf_append_str(out, ",");
	if (rc != 0)
		return rc;
	if (isnan(v))
		return buf_append_str(out, "null");
	return f == F_AT ? buf_printf(out, "%.0f", v) : buf_printf(out, "%.4g", v);
}

int history_print(struct sl_buf *out)
{
	pthread_mutex_lock(&ring.lock);
	int rc = buf_printf(out, "{\"object\":\"samples\",\"step_ms\":%d,\"samples\":{", HISTORY_STEP_MS);
	const unsigned from = (ring.next + HISTORY_MOST - ring.n) % HISTORY_MOST;
	for (int f = 0; f < N_FIGURES && rc == 0; f++) {
		rc = buf_printf(out, "%s\"%s\":[", f > 0 ? "," : "", names[f]);
		for (unsigned i = 0; i < ring.n && rc == 0; i++)
			rc = print_value(out, (enum figure)f, ring.at[(from + i) % HISTORY_MOST][f], i == 0);
		if (rc == 0)
			rc = buf_append_str(out, "]");
	}
	if (rc == 0)
		rc = buf_append_str(out, "}}");
	pthread_mutex_unlock(&ring.lock);
	return rc;
}

void history_reset(void)
{
	pthread_mutex_lock(&ring.lock);
	ring.n = ring.next = 0;
	ring.due_ns = ring.last_ns = 0;
	ring.before = (struct history_gauges){0};
	pthread_mutex_unlock(&ring.lock);
	for (int i = 0; i < N_SUMS; i++)
		atomic_store(&now.sums[i], 0);
	for (int i = 0; i < BUCKETS; i++)
		atomic_store(&now.ttft[i], 0);
}
