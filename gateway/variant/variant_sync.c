/* SPDX-License-Identifier: Apache-2.0
 *
 * A round asks for one state after the other. A state that is new meanwhile is in the next round.
 */
#include "gateway/variant/variant_sync.h"

#include "base/alloc.h"
#include "cache/cache.h"
#include "gateway/loop/random.h"
#include "gateway/loop/thread.h"
#include "gateway/loop/timer.h"
#include "gateway/variant/variant_proc.h"
#include "gateway/variant/variant_state.h"

enum {
	TICK_MS = 250,
	ROOM = 256,  /* states of a round; a configuration has fewer */
	N_WORDS = 5, /* arguments before the sums */
	N_ARGS = N_WORDS + TRIAL_SUMS,
};

static const char tenant[] = "sluice-variants";

struct variant_sync {
	struct gw_thread *t;
	struct gw_timer timer;
	struct cache_op op;
	uint64_t sender;                   /* a random number of this process */
	struct variant_state *round[ROOM]; /* references; [at] is under way */
	size_t n, at;
};

static void next(struct variant_sync *s);

static bool read_reply(const struct cache_result *r, struct variant_word *word, struct trial_sums *sums,
		       int64_t *before)
{
	if (r->code != 0 || r->degraded || r->n_values != VARIANT_MERGE_WORDS + TRIAL_SUMS)
		return false;
	const struct cache_value *v = r->values;
	if (v[1].i < TRIAL_ALIKE || v[1].i >= TRIAL_CAUSES)
		return false;
	*word = (struct variant_word){
	    .generation = v[0].i, .rolled = (enum trial_cause)v[1].i, .by_hand = v[2].i != 0, .weight = v[3].i};
	*before = v[4].i;
	for (int i = 0; i < TRIAL_SUMS; i++)
		sums->of[i] = v[VARIANT_MERGE_WORDS + i].i;
	return true;
}

static void on_merged(struct cache_op *op, const struct cache_result *r)
{
	struct variant_sync *s = list_entry(op, struct variant_sync, op);
	struct variant_state *state = s->round[s->at];
	struct variant_word word;
	struct trial_sums sums;
	int64_t before = 0;
	bool well = read_reply(r, &word, &sums, &before);
	variant_state_told(state, well ? &word : NULL, &sums, before);
	variant_state_unref(state);
	s->at++;
	next(s);
}

static void merge(struct variant_sync *s, struct variant_state *state)
{
	const uint64_t parts[] = {variant_state_key(state), s->sender};
	struct variant_word word;
	struct trial_sums sums;
	struct cache_value args[N_ARGS];
	struct cache_key keys[2];
	int64_t batch;
	if (!variant_state_send(state, &word, &sums, &batch))
		BUG("two exchanges of one variant");
	args[0] = (struct cache_value){.i = word.generation};
	args[1] = (struct cache_value){.i = word.rolled};
	args[2] = (struct cache_value){.i = word.by_hand};
	args[3] = (struct cache_value){.i = word.weight};
	args[4] = (struct cache_value){.i = batch};
	for (int i = 0; i < TRIAL_SUMS; i++)
		args[N_WORDS + i] = (struct cache_value){.i = sums.of[i]};
	cache_key_make(&keys[0], CACHE_SHARED, tenant, parts, sizeof *parts);
	cache_key_make(&keys[1], CACHE_SHARED, tenant, parts, sizeof parts);
	cache_eval(s->t->cache, &s->op, &variant_merge, keys, 2, args, N_ARGS, on_merged);
}

static void next(struct variant_sync *s)
{
	if (s->at < s->n) {
		merge(s, s->round[s->at]);
		return;
	}
	s->n = s->at = 0;
	gw_timer_start(&s->t->timers, &s->timer, TICK_MS * NS_PER_MS);
}

static void on_timer(struct gw_timer *timer)
{
	struct variant_sync *s = list_entry(timer, struct variant_sync, timer);
	s->n = variant_states_list(s->round, ROOM);
	next(s);
}

struct variant_sync *variant_sync_create(struct gw_thread *t)
{
	struct variant_sync *s = sl_zalloc(sizeof *s);
	if (s == NULL || !random_u64(&s->sender)) {
		sl_free(s);
		return NULL;
	}
	s->t = t;
	gw_timer_init(&s->timer, on_timer);
	gw_timer_start(&t->timers, &s->timer, 0);
	return s;
}

void variant_sync_destroy(struct variant_sync *s)
{
	if (s == NULL)
		return;
	gw_timer_stop(&s->t->timers, &s->timer);
	cache_cancel(&s->op);
	if (s->at < s->n) /* it may have been taken or not: rather evidence lost than counted twice */
		variant_state_told(s->round[s->at], &(struct variant_word){.generation = -1}, NULL, 0);
	for (; s->at < s->n; s->at++)
		variant_state_unref(s->round[s->at]);
	sl_free(s);
}
