/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits as operations: checks the numbers, packs them as arguments and reads the answers. limits_lua.c defines their
 * meaning.
 */
#include "cache/limits.h"

#include <math.h>
#include <string.h>

#include "cache/limits_priv.h"
#include "cache/priv.h"

/* A rate's times stay below now + 2^50 us (larger debts are cut), so every sum stays below 2^53. */
#define SPAN_MAX ((double)(INT64_C(1) << 50))

static bool in(int64_t x, int64_t least, int64_t most) { return x >= least && x <= most; }

static bool is_sane(const struct cache_limit *l, bool settling)
{
	if (l->key.kind != CACHE_LIMIT)
		return false;
	switch (l->type) {
	case CACHE_RATE:
		return in(l->limit, 1, CACHE_RATE_MAX) && in(l->burst, 1, CACHE_RATE_MAX) &&
		       in(l->cost, settling ? -CACHE_RATE_MAX : 0, CACHE_RATE_MAX) &&
		       in(l->period_us, 1, CACHE_PERIOD_MAX) &&
		       (double)l->burst * (double)l->period_us / (double)l->limit < SPAN_MAX &&
		       fabs((double)l->cost) * (double)l->period_us / (double)l->limit < SPAN_MAX;
	case CACHE_LEASE: return in(l->limit, 0, CACHE_UNITS_MAX) && (settling || in(l->cost, 1, CACHE_UNITS_MAX));
	case CACHE_BUDGET: return in(l->limit, 0, CACHE_UNITS_MAX) && in(l->period_us, 0, CACHE_PERIOD_MAX);
	}
	return false;
}

static bool all_sane(const struct cache_limit *items, size_t n, bool settling)
{
	if (n == 0 || n > CACHE_MAX_KEYS)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!is_sane(&items[i], settling))
			return false;
		for (size_t j = 0; j < i; j++)
			if (strcmp(items[i].key.text, items[j].key.text) == 0)
				return false;
	}
	return true;
}

static void pack(const struct cache_limit *items, size_t n, struct cache_key *keys, struct cache_value *args)
{
	for (size_t i = 0; i < n; i++, args += ITEM_ARGS) {
		const struct cache_limit *l = &items[i];
		bool rate = l->type == CACHE_RATE;
		keys[i] = l->key;
		args[0].i = l->type;
		args[1].i = l->limit;
		args[2].i = rate ? l->burst : 0;
		args[3].i = l->type == CACHE_LEASE ? 0 : l->period_us;
		args[4].i = l->type == CACHE_BUDGET ? 0 : l->cost;
	}
}

void cache_admit(struct cache_client *cl, struct cache_op *op, const uint8_t id[CACHE_ID_LEN],
		 const struct cache_limit *items, size_t n, int64_t want, int64_t least, int64_t ttl_us,
		 cache_done *done)
{
	if (!all_sane(items, n, false) || !in(want, 0, CACHE_UNITS_MAX) || !in(least, 0, want) ||
	    !in(ttl_us, 1, CACHE_PERIOD_MAX)) {
		client_end_early(cl, op, SL_EINVAL, done);
		return;
	}
	struct cache_key keys[CACHE_MAX_KEYS];
	struct cache_value args[ADMIT_ARGS + ITEM_ARGS * CACHE_MAX_KEYS] = {
	    {.p = id, .n = CACHE_ID_LEN}, {.i = want}, {.i = least}, {.i = ttl_us}};
	pack(items, n, keys, args + ADMIT_ARGS);
	cache_eval(cl, op, &cache_proc_admit, keys, n, args, ADMIT_ARGS + ITEM_ARGS * n, done);
}

void cache_settle(struct cache_client *cl, struct cache_op *op, const uint8_t id[CACHE_ID_LEN],
		  const struct cache_limit *items, size_t n, int64_t used, int64_t keep_us, bool local,
		  cache_done *done)
{
	if (!all_sane(items, n, true) || !in(used, 0, CACHE_UNITS_MAX) || !in(keep_us, 0, CACHE_PERIOD_MAX)) {
		client_end_early(cl, op, SL_EINVAL, done);
		return;
	}
	struct cache_key keys[CACHE_MAX_KEYS];
	struct cache_value args[SETTLE_ARGS + ITEM_ARGS * CACHE_MAX_KEYS] = {
	    {.p = id, .n = CACHE_ID_LEN}, {.i = used}, {.i = keep_us}};
	pack(items, n, keys, args + SETTLE_ARGS);
	(local ? cache_eval_local : cache_eval)(cl, op, &cache_proc_settle, keys, n, args, SETTLE_ARGS + ITEM_ARGS * n,
						done);
}

/* Whether r holds that many numbers and nothing else. */
static bool is_shaped(const struct cache_result *r, size_t fixed, size_t each, size_t *n)
{
	if (r->n_values <= fixed || (r->n_values - fixed) % each != 0)
		return false;
	for (size_t i = 0; i < r->n_values; i++)
		if (r->values[i].p != NULL)
			return false;
	*n = (r->n_values - fixed) / each;
	return *n <= CACHE_MAX_KEYS;
}

void cache_admission_read(const struct cache_result *r, struct cache_admission *out)
{
	*out = (struct cache_admission){.code = r->code, .degraded = r->degraded};
	if (r->code < 0)
		return;
	if (!is_shaped(r, ADMIT_VALUES, ADMIT_EACH, &out->n)) {
		out->n = 0;
		out->code = SL_EPROTO;
		return;
	}
	out->admitted = r->values[0].i != 0;
	out->granted = r->values[1].i;
	const struct cache_value *v = r->values + ADMIT_VALUES;
	for (size_t i = 0; i < out->n; i++, v += ADMIT_EACH)
		out->each[i] = (struct cache_limit_result){
		    .ok = v[0].i != 0, .remaining = v[1].i, .retry_after_us = v[2].i, .reset_us = v[3].i};
}

void cache_settlement_read(const struct cache_result *r, struct cache_settlement *out)
{
	*out = (struct cache_settlement){.code = r->code, .degraded = r->degraded};
	if (r->code < 0)
		return;
	if (!is_shaped(r, 0, SETTLE_EACH, &out->n)) {
		out->n = 0;
		out->code = SL_EPROTO;
		return;
	}
	const struct cache_value *v = r->values;
	for (size_t i = 0; i < out->n; i++, v += SETTLE_EACH) {
		out->each[i].known = v[0].i != 0;
		out->each[i].charged = v[1].i;
		out->each[i].remaining = v[2].i;
	}
}
