/* SPDX-License-Identifier: Apache-2.0
 *
 * A round asks for one past after the other, then for one state after the other. One that is new meanwhile is in the
 * next round.
 */
#include "gateway/variant/variant_sync.h"

#include "base/alloc.h"
#include "cache/cache.h"
#include "gateway/loop/random.h"
#include "gateway/loop/thread.h"
#include "gateway/loop/timer.h"
#include "gateway/variant/variant_past.h"
#include "gateway/variant/variant_proc.h"
#include "gateway/variant/variant_state.h"

enum {
	TICK_MS = 250,
	ROOM = 256,  /* states of a round; a configuration has fewer */
	N_WORDS = 7, /* arguments before the sums */
	N_ARGS = N_WORDS + TRIAL_SUMS,
};

static const char tenant[] = "sluice-variants";

struct variant_sync {
	struct gw_thread *t;
	struct gw_timer timer;
	struct cache_op op;
	uint64_t sender;                   /* a random number of this process */
	struct variant_state *round[ROOM]; /* references; [at] is under way, once past_at is n_pasts */
	size_t n, at;
	struct variant_past *pasts[ROOM]; /* likewise */
	size_t n_pasts, past_at;
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
	*word = (struct variant_word){.generation = v[0].i,
				      .rolled = (enum trial_cause)v[1].i,
				      .by_hand = v[2].i != 0,
				      .weight = v[3].i,
				      .past = {v[5].i, v[6].i}};
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
	args[5] = (struct cache_value){.i = word.past.n};
	args[6] = (struct cache_value){.i = word.past.failed};
	for (int i = 0; i < TRIAL_SUMS; i++)
		args[N_WORDS + i] = (struct cache_value){.i = sums.of[i]};
	cache_key_make(&keys[0], CACHE_SHARED, tenant, parts, sizeof *parts);
	cache_key_make(&keys[1], CACHE_SHARED, tenant, parts, sizeof parts);
	cache_eval(s->t->cache, &s->op, &variant_merge, keys, 2, args, N_ARGS, on_merged);
}

static void on_remembered(struct cache_op *op, const struct cache_result *r)
{
	struct variant_sync *s = list_entry(op, struct variant_sync, op);
	struct variant_past *past = s->pasts[s->past_at++];
	const bool well = r->code == 0 && !r->degraded && r->n_values == 2;
	const struct trial_past all =
	    well ? (struct trial_past){r->values[0].i, r->values[1].i} : (struct trial_past){0};
	variant_past_told(past, well ? &all : NULL);
	variant_past_unref(past);
	next(s);
}

/* False: there is nothing to send. */
static bool remember(struct variant_sync *s, struct variant_past *past)
{
	static const char keys_of[] = "sluice-pasts";
	const uint64_t parts[] = {variant_past_key(past), s->sender};
	struct trial_past fresh;
	struct cache_value args[4];
	struct cache_key keys[2];
	int64_t batch;
	if (!variant_past_send(past, &fresh, &batch))
		return false;
	args[0] = (struct cache_value){.i = batch};
	args[1] = (struct cache_value){.i = fresh.n};
	args[2] = (struct cache_value){.i = fresh.failed};
	args[3] = (struct cache_value){.i = TRIAL_PAST_MOST};
	cache_key_make(&keys[0], CACHE_SHARED, keys_of, parts, sizeof *parts);
	cache_key_make(&keys[1], CACHE_SHARED, keys_of, parts, sizeof parts);
	cache_eval(s->t->cache, &s->op, &variant_remember, keys, 2, args, 4, on_remembered);
	return true;
}

static void next(struct variant_sync *s)
{
	for (; s->past_at < s->n_pasts; s->past_at++) {
		if (remember(s, s->pasts[s->past_at]))
			return;
		variant_past_unref(s->pasts[s->past_at]);
	}
	if (s->at < s->n) {
		merge(s, s->round[s->at]);
		return;
	}
	s->n = s->at = s->n_pasts = s->past_at = 0;
	gw_timer_start(&s->t->timers, &s->timer, TICK_MS * NS_PER_MS);
}

static void on_timer(struct gw_timer *timer)
{
	struct variant_sync *s = list_entry(timer, struct variant_sync, timer);
	s->n = variant_states_list(s->round, ROOM);
	s->n_pasts = variant_pasts_list(s->pasts, ROOM);
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
	if (s->past_at < s->n_pasts)
		variant_past_told(s->pasts[s->past_at], NULL);
	else if (s->at < s->n) /* it may have been taken or not: rather evidence lost than counted twice */
		variant_state_told(s->round[s->at], &(struct variant_word){.generation = -1}, NULL, 0);
	for (; s->past_at < s->n_pasts; s->past_at++)
		variant_past_unref(s->pasts[s->past_at]);
	for (; s->at < s->n; s->at++)
		variant_state_unref(s->round[s->at]);
	sl_free(s);
}
