/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits in memory: the same arithmetic as limits_lua.c on integers, line by line where it can be.
 * GCRA: ITU-T I.371 annex A, virtual scheduling; the arrival time is exact, as whole microseconds and a
 * numerator over the rate's limit, so that no rounding adds up.
 *
 * First all items are looked at, then memory is made sure of, then all are written: so nothing is charged
 * when one denies or memory is exhausted. (Holds that have ended are dropped whenever they are seen.)
 *
 * In place of a failing Redis each limit is divided by the number of gateways, but never below one.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/limits_priv.h"

enum { GRACE_MS = 10000, BUDGET_KEEP_MS = 604800000, FIRST_HOLDERS = 4 };
#define DEBT_MAX_US (INT64_C(1) << 50)

struct rate {
	int64_t w, f;
};

struct kept_rate {
	struct rate at;
	int64_t written_us;
};

struct holder {
	uint8_t id[CACHE_ID_LEN];
	int64_t n;
	int64_t until_us;
};

struct pool {
	int64_t used, window, reserved;
	int64_t ends_us;              /* of the window, by the record's own clock */
	int64_t ahead_us, written_us; /* that clock: how far it is ahead, and its time of the last writing */
	int64_t earliest_us;          /* no hold ends before it */
	uint32_t n, cap;
	struct holder holders[];
};

struct item {
	enum cache_limit_type type;
	int64_t limit, burst, period, cost;
	bool ok;
	int64_t retry;
	/* Rates: the arrival time now and as it would be. */
	struct rate at, next;
	/* The others: a copy of the head, rolled to the current window, and what the id holds. */
	int64_t used, window, reserved, own, left;
	int64_t now, ahead, ends; /* the record's own clock */
	uint32_t n;
	bool known;
};

/* ---- rates ---- */

static struct rate span(const struct item *it, int64_t units)
{
	int64_t part = units * (it->period % it->limit);
	return (struct rate){units * (it->period / it->limit) + part / it->limit, part % it->limit};
}

static struct kept_rate *find_rate(struct mem_proc *t, size_t i)
{
	size_t n;
	struct kept_rate *kept = mem_proc_find(t, i, &n);
	return kept != NULL && n == sizeof *kept ? kept : NULL;
}

static void write_rate(const struct mem_proc *t, struct kept_rate *kept, struct rate at)
{
	*kept = (struct kept_rate){at, (int64_t)t->now_us};
}

static struct rate arrival(struct mem_proc *t, size_t i, const struct item *it)
{
	struct kept_rate *kept = find_rate(t, i);
	int64_t now = (int64_t)t->now_us;
	struct rate at = kept != NULL ? kept->at : (struct rate){0, 0};
	if (at.f >= it->limit)
		at = (struct rate){at.w + 1, 0}; /* the limit was another */
	if (kept == NULL || at.w < now)
		return (struct rate){now, 0};
	if (kept->written_us > now) { /* the clock went back */
		at.w -= kept->written_us - now;
		write_rate(t, kept, at);
	}
	return at;
}

static bool fits(const struct item *it, int64_t units, struct rate room)
{
	struct rate s = span(it, units);
	return s.w < room.w || (s.w == room.w && s.f <= room.f);
}

static int64_t left_of_rate(const struct item *it, struct rate at, int64_t now)
{
	struct rate room = span(it, it->burst);
	room.w += now - at.w;
	room.f -= at.f;
	if (room.f < 0) {
		room.w--;
		room.f += it->limit;
	}
	if (room.w < 0)
		return 0;
	double about = (double)room.w * (double)it->limit / (double)it->period;
	int64_t k = about < (double)it->burst ? (int64_t)about : it->burst;
	while (k < it->burst && fits(it, k + 1, room))
		k++;
	while (k > 0 && !fits(it, k, room))
		k--;
	return k;
}

static struct rate later(const struct item *it, struct rate at, int64_t units)
{
	struct rate s = span(it, units);
	at.w += s.w;
	at.f += s.f;
	return at.f < it->limit ? at : (struct rate){at.w + 1, at.f - it->limit};
}

static void look_at_rate(struct mem_proc *t, size_t i, struct item *it)
{
	it->at = it->next = arrival(t, i, it);
	if (it->cost > it->burst) {
		it->ok = false;
		it->retry = -1;
		return;
	}
	struct rate burst = span(it, it->burst);
	it->next = later(it, it->at, it->cost);
	int64_t late = it->next.w - burst.w - (int64_t)t->now_us + (it->next.f > burst.f);
	if (late > 0) {
		it->ok = false;
		it->retry = late;
	}
}

static uint64_t rate_ttl_ms(const struct mem_proc *t, struct rate at)
{
	return ((uint64_t)at.w - t->now_us) / 1000 + GRACE_MS;
}

/* ---- leases and budgets ---- */

static struct pool *find_pool(struct mem_proc *t, size_t i)
{
	size_t n;
	struct pool *p = mem_proc_find(t, i, &n);
	if (p == NULL || n < sizeof *p || n != sizeof *p + p->cap * sizeof *p->holders || p->n > p->cap)
		return NULL;
	return p;
}

static struct holder *find_holder(struct pool *p, const void *id)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (memcmp(p->holders[i].id, id, CACHE_ID_LEN) == 0)
			return &p->holders[i];
	return NULL;
}

/* The record's own clock (cache/limits.h). True: the other one went back. */
static bool read_clock(const struct pool *p, int64_t now, struct item *it)
{
	it->now = now + p->ahead_us;
	it->ahead = p->ahead_us;
	if (it->now >= p->written_us)
		return false;
	it->now = p->written_us;
	it->ahead = p->written_us - now;
	return true;
}

static void drop_ended(struct pool *p, int64_t now)
{
	if (p->n == 0 || p->earliest_us > now)
		return;
	p->earliest_us = INT64_MAX;
	for (uint32_t i = 0; i < p->n;) {
		if (p->holders[i].until_us <= now) {
			p->reserved -= p->holders[i].n;
			p->holders[i] = p->holders[--p->n];
			continue;
		}
		if (p->holders[i].until_us < p->earliest_us)
			p->earliest_us = p->holders[i].until_us;
		i++;
	}
}

static void write_head(struct pool *p, const struct item *it)
{
	p->used = it->used;
	p->window = it->window;
	p->ends_us = it->ends;
	p->ahead_us = it->ahead;
	p->written_us = it->now;
}

/* An earlier window than the stored one counts as that one, until that one's end. */
static void look_at_window(struct item *it, const struct pool *p, int64_t window)
{
	it->window = p->window;
	it->ends = p->ends_us;
	it->used = p->used;
	if (window > it->window || (window < it->window && it->now >= it->ends)) {
		it->used = 0;
		it->window = window;
	}
	if (window == it->window)
		it->ends = (window + 1) * it->period + it->ahead;
}

static void look_at_pool(struct mem_proc *t, size_t i, struct item *it)
{
	static const struct pool none;
	int64_t now = (int64_t)t->now_us, window = it->period > 0 ? now / it->period : 0;
	struct pool *kept = find_pool(t, i);
	const struct pool *p = kept != NULL ? kept : &none;
	bool back = read_clock(p, now, it);
	if (kept != NULL) {
		drop_ended(kept, it->now);
		const struct holder *h = find_holder(kept, t->args[0].p);
		it->reserved = p->reserved;
		it->n = p->n;
		it->known = h != NULL;
		it->own = h == NULL ? 0 : h->n;
	}
	if (window == p->window && p->n == 0) {
		it->now = now;
		it->ahead = 0;
	}
	look_at_window(it, p, window);
	if (back)
		write_head(kept, it);
	it->left = it->limit - it->used - it->reserved;
	if (it->left < 0)
		it->left = 0;
}

/* Room for one more holder. */
static int prepare_pool(struct mem_proc *t, size_t i, const struct item *it, int64_t hold_us)
{
	const struct pool *p = find_pool(t, i);
	uint32_t cap = p == NULL ? FIRST_HOLDERS : p->cap;
	if (p != NULL && !it->known && p->n == cap)
		cap *= 2;
	uint64_t ms = (uint64_t)hold_us / 1000 + GRACE_MS;
	if (it->type == CACHE_BUDGET && it->period > 0) {
		uint64_t rest_ms = (uint64_t)(it->ends - it->now) / 1000 + BUDGET_KEEP_MS;
		ms = rest_ms > ms ? rest_ms : ms;
	}
	bool for_ever = it->type == CACHE_BUDGET && it->period == 0;
	if (p == NULL) /* something else may be there */
		mem_proc_remove(t, i);
	struct pool *edited = mem_proc_edit(t, i, sizeof *edited + cap * sizeof *edited->holders, for_ever ? 0 : ms);
	if (edited == NULL)
		return SL_ENOMEM;
	edited->cap = cap;
	return 0;
}

static void write_pool(struct mem_proc *t, size_t i, const struct item *it, bool keep, int64_t hold_us)
{
	struct pool *p = find_pool(t, i);
	BUG_IF(p == NULL, "a limit's record went while it was held");
	write_head(p, it);
	p->reserved = it->reserved;
	struct holder *h = find_holder(p, t->args[0].p);
	if (!keep) {
		if (h != NULL)
			*h = p->holders[--p->n];
		return;
	}
	if (h == NULL) {
		h = &p->holders[p->n++];
		memcpy(h->id, t->args[0].p, CACHE_ID_LEN);
	}
	h->n = it->own;
	h->until_us = it->now + hold_us;
	if (p->n == 1 || h->until_us < p->earliest_us)
		p->earliest_us = h->until_us;
}

static int64_t left_of_pool(const struct item *it)
{
	int64_t left = it->limit - it->used - it->reserved;
	return left > 0 ? left : 0;
}

/* ---- the two procedures ---- */

static int64_t share(const struct mem_proc *t, int64_t limit)
{
	return limit > 0 && limit / t->share == 0 ? 1 : limit / t->share;
}

static void read_items(const struct mem_proc *t, size_t at, struct item *items)
{
	for (size_t i = 0; i < t->n_keys; i++) {
		const struct cache_value *a = t->args + at + i * ITEM_ARGS;
		items[i] = (struct item){.type = (enum cache_limit_type)a[0].i,
					 .limit = share(t, a[1].i),
					 .burst = share(t, a[2].i),
					 .period = a[3].i,
					 .cost = a[4].i,
					 .ok = true};
	}
}

/* Looks at every item; the units that all budgets can reserve, or -1 when one denies. */
static int64_t look(struct mem_proc *t, struct item *items, int64_t want, int64_t least)
{
	int64_t grant = want;
	bool all = true;
	for (size_t i = 0; i < t->n_keys; i++) {
		struct item *it = &items[i];
		if (it->type == CACHE_RATE) {
			look_at_rate(t, i, it);
		} else {
			look_at_pool(t, i, it);
			bool room = it->known || it->n < CACHE_MAX_HOLDERS;
			int64_t left = room ? it->left : 0;
			if (it->type == CACHE_LEASE) {
				it->ok = room && it->reserved - it->own + it->cost <= it->limit;
				it->retry = it->ok ? 0 : -1;
			} else {
				grant = left < grant ? left : grant;
				it->ok = left >= least;
				if (!it->ok)
					it->retry = it->period > 0 ? it->ends - it->now : -1;
				if (!it->ok && it->limit - it->used - it->own >= least)
					it->retry = 0;
			}
		}
		all = all && it->ok;
	}
	return all ? grant : -1;
}

static bool writes(const struct item *it, int64_t grant)
{
	return it->type == CACHE_RATE ? it->cost > 0 : it->known || it->type == CACHE_LEASE || it->own + grant > 0;
}

static int charge(struct mem_proc *t, struct item *items, int64_t grant, int64_t hold_us)
{
	for (size_t i = 0; i < t->n_keys; i++) {
		const struct item *it = &items[i];
		if (!writes(it, grant))
			continue;
		if (it->type != CACHE_RATE) {
			if (prepare_pool(t, i, it, hold_us) != 0)
				return SL_ENOMEM;
			continue;
		}
		/* Not charged yet: a record that fails to be written must not have been changed. */
		if (find_rate(t, i) == NULL)
			mem_proc_remove(t, i);
		if (mem_proc_edit(t, i, sizeof(struct kept_rate), rate_ttl_ms(t, it->next)) == NULL)
			return SL_ENOMEM;
	}
	for (size_t i = 0; i < t->n_keys; i++) {
		struct item *it = &items[i];
		if (it->type == CACHE_RATE) {
			struct kept_rate *kept = writes(it, grant) ? find_rate(t, i) : NULL;
			it->at = it->next;
			if (kept != NULL)
				write_rate(t, kept, it->at);
			continue;
		}
		int64_t own = it->type == CACHE_LEASE ? it->cost : it->own + grant;
		it->reserved += own - it->own;
		it->own = own;
		if (it->known || own > 0)
			write_pool(t, i, it, true, hold_us);
	}
	return 0;
}

int limits_admit_memory(struct mem_proc *t)
{
	struct item items[CACHE_MAX_KEYS];
	int64_t now = (int64_t)t->now_us, hold_us = t->args[3].i;
	read_items(t, ADMIT_ARGS, items);
	int64_t grant = look(t, items, t->args[1].i, t->args[2].i);
	int rc = grant < 0 ? 0 : charge(t, items, grant, hold_us);
	if (rc != 0)
		return rc;
	(void)mem_proc_answer(t, grant >= 0);
	(void)mem_proc_answer(t, grant < 0 ? 0 : grant);
	for (size_t i = 0; i < t->n_keys; i++) {
		const struct item *it = &items[i];
		bool rate = it->type == CACHE_RATE;
		int64_t reset = rate ? it->at.w - now + (it->at.f > 0) : 0;
		if (it->type == CACHE_BUDGET && it->period > 0)
			reset = it->ends - it->now;
		(void)mem_proc_answer(t, it->ok);
		(void)mem_proc_answer(t, rate ? left_of_rate(it, it->at, now) : left_of_pool(it));
		(void)mem_proc_answer(t, it->retry);
		rc = mem_proc_answer(t, reset);
	}
	return rc;
}

/* A debt is written even where nothing is left of what was charged. */
static int prepare_debt(struct mem_proc *t, size_t i, struct item *it)
{
	struct rate at = later(it, arrival(t, i, it), -it->cost);
	if (at.w > (int64_t)t->now_us + DEBT_MAX_US)
		at = (struct rate){(int64_t)t->now_us + DEBT_MAX_US, 0};
	it->at = at;
	if (find_rate(t, i) == NULL)
		mem_proc_remove(t, i);
	return mem_proc_edit(t, i, sizeof(struct kept_rate), rate_ttl_ms(t, at)) == NULL ? SL_ENOMEM : 0;
}

static void settle_rate(struct mem_proc *t, size_t i, struct item *it)
{
	if (it->cost < 0) {
		struct kept_rate *debt = find_rate(t, i);
		BUG_IF(debt == NULL, "a limit's record went while it was held");
		write_rate(t, debt, it->at);
		return;
	}
	struct rate at = arrival(t, i, it), back = span(it, it->cost);
	at.w -= back.w;
	at.f -= back.f;
	if (at.f < 0) {
		at.w--;
		at.f += it->limit;
	}
	if (at.w < (int64_t)t->now_us)
		at = (struct rate){(int64_t)t->now_us, 0};
	it->at = at;
	struct kept_rate *kept = find_rate(t, i);
	if (it->cost > 0 && kept != NULL) /* nothing there is nothing charged */
		write_rate(t, kept, at);
}

static int64_t settle_pool(struct mem_proc *t, size_t i, struct item *it, int64_t used, int64_t keep_us)
{
	int64_t charged = 0, own = it->own;
	if (it->type == CACHE_BUDGET) {
		charged = used < own + it->left ? used : own + it->left;
		it->used += charged;
		own = own > charged ? own - charged : 0;
	}
	if (keep_us == 0)
		own = 0;
	it->reserved += own - it->own;
	it->own = own;
	write_pool(t, i, it, keep_us > 0, keep_us);
	return charged;
}

int limits_settle_memory(struct mem_proc *t)
{
	struct item items[CACHE_MAX_KEYS];
	int64_t used = t->args[1].i, keep_us = t->args[2].i;
	read_items(t, SETTLE_ARGS, items);
	for (size_t i = 0; i < t->n_keys; i++) {
		if (items[i].type == CACHE_RATE) {
			if (items[i].cost < 0 && prepare_debt(t, i, &items[i]) != 0)
				return SL_ENOMEM;
			continue;
		}
		look_at_pool(t, i, &items[i]);
		if (items[i].known && prepare_pool(t, i, &items[i], keep_us) != 0)
			return SL_ENOMEM;
	}
	int rc = 0;
	for (size_t i = 0; i < t->n_keys; i++) {
		struct item *it = &items[i];
		int64_t charged = 0;
		if (it->type == CACHE_RATE)
			settle_rate(t, i, it);
		else if (it->known)
			charged = settle_pool(t, i, it, used, keep_us);
		(void)mem_proc_answer(t, it->type == CACHE_RATE || it->known);
		(void)mem_proc_answer(t, charged);
		rc = mem_proc_answer(t, it->type == CACHE_RATE ? left_of_rate(it, it->at, (int64_t)t->now_us)
							       : left_of_pool(it));
	}
	return rc;
}
