/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/observe/observe.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "gateway/observe/history.h"
#include "gateway/observe/record.h"
#include "gateway/observe/sinks.h"
#include "gateway/observe/tier_counts.h"
#include "gateway/observe/trace.h"
#include "gateway/observe/tracer.h"

static uint64_t between(uint64_t from_ns, uint64_t to_ns) { return to_ns > from_ns ? to_ns - from_ns : 0; }

uint64_t observed_ttft_ns(const struct observed *o)
{
	/* A token has a time, even if the clock has not moved. */
	return o->first_ns == 0 ? 0 : between(o->started_ns, o->first_ns) + (o->first_ns <= o->started_ns);
}

uint64_t observed_tpot_ns(const struct observed *o)
{
	return o->gaps.n_tokens > 0 ? o->gaps.sum_ns / o->gaps.n_tokens : 0;
}

uint64_t observed_queue_ns(const struct observed *o)
{
	if (!o->has_engine)
		return 0;
	return between(o->started_ns, o->submitted_ns) + o->queue_us * (uint64_t)1000;
}

static bool is_late(const struct observed *o)
{
	uint64_t waited = between(o->started_ns, o->first_ns > 0 ? o->first_ns : o->ended_ns);
	return o->ttft_target_ns > 0 && waited > o->ttft_target_ns;
}

static bool is_slow(const struct observed *o) { return o->itl_target_ns > 0 && observed_tpot_ns(o) > o->itl_target_ns; }

enum observed_verdict observed_judge(const struct observed *o)
{
	if (o->vectors || o->tier == NULL || (o->status >= 400 && o->status < 500))
		return OBSERVED_NOT_JUDGED;
	if (o->failed)
		return OBSERVED_BAD;
	if (!o->has_answer)
		return OBSERVED_NOT_JUDGED;
	if (o->left && o->first_ns == 0)
		return is_late(o) ? OBSERVED_BAD : OBSERVED_NOT_JUDGED;
	return is_late(o) || is_slow(o) ? OBSERVED_BAD : OBSERVED_GOOD;
}

static void count(const struct observed *o, struct latency_cells *cells)
{
	if (!o->has_answer || o->status >= 400)
		return;
	const struct latency_answer a = {.finish = o->finish,
					 .cached = o->cached,
					 .e2e_ns = between(o->started_ns, o->ended_ns),
					 .queue_ns = observed_queue_ns(o),
					 .prefill_ns = o->has_engine ? o->prefill_us * (uint64_t)1000 : 0,
					 .decode_ns = o->has_engine ? o->decode_us * (uint64_t)1000 : 0,
					 .tpot_ns = observed_tpot_ns(o),
					 .prompt = o->n_prompt,
					 .answer = o->n_answer,
					 .longest = o->n_longest,
					 .stopped = o->left};
	latency_end(cells, &a);
}

static atomic_ullong n_first, n_late, ttft_us, n_paced, n_slow, tpot_us;

static void add(atomic_ullong *to, uint64_t n) { atomic_fetch_add_explicit(to, n, memory_order_relaxed); }
static uint64_t get(const atomic_ullong *of) { return atomic_load_explicit(of, memory_order_relaxed); }

static void count_targets(const struct observed *o)
{
	if (o->ttft_target_ns > 0) {
		add(&n_late, is_late(o));
		add(&ttft_us, o->ttft_target_ns / 1000);
		add(&n_first, 1);
	}
	if (o->itl_target_ns > 0 && observed_tpot_ns(o) > 0) {
		add(&n_slow, is_slow(o));
		add(&tpot_us, o->itl_target_ns / 1000);
		add(&n_paced, 1);
	}
}

void observed_targets(struct observed_targets *out)
{
	*out = (struct observed_targets){.n_first = get(&n_first),
					 .n_late = get(&n_late),
					 .ttft_us = get(&ttft_us),
					 .n_paced = get(&n_paced),
					 .n_slow = get(&n_slow),
					 .tpot_us = get(&tpot_us)};
}

void observe_end(const struct observed *o, struct latency_cells *cells, const struct sinks *sinks)
{
	enum observed_verdict v = observed_judge(o);
	if (v != OBSERVED_NOT_JUDGED)
		tier_counts_judged(o->tier, v == OBSERVED_GOOD);
	if (v != OBSERVED_NOT_JUDGED && !o->failed)
		count_targets(o);
	count(o, cells);
	history_answer(o);
	if (sinks != NULL && sinks->records != NULL)
		records_put(sinks->records, o, v);
	if (sinks != NULL && sinks->tracer != NULL && o->trace != NULL && o->trace->sampled)
		tracer_put(sinks->tracer, o, o->trace);
}
