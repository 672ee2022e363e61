/* SPDX-License-Identifier: Apache-2.0
 *
 * Transitions by one byte. The terminal of every item reads the byte. After a complete terminal come the positions that
 * follow it; after the end of an alternative, those that follow its callers. Rules that are reached are collected and
 * entered by rank, so each is entered once, with all its callers (no rule begins with itself).
 */
#include "engine/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST = 32, FIRST_TABLE = 128, MAX_ITEMS = 1 << 28, TABLE_WORK = 32 };

int auto_fault(const struct automaton *a)
{
	return a->fault != 0 ? a->fault : a->stacks.fault != 0 ? a->stacks.fault : rx_pool_fault(a->dfa.pool);
}

static bool fail(struct automaton *a, int code)
{
	if (a->fault == 0)
		a->fault = code;
	return false;
}

static bool spend(struct automaton *a, uint64_t n)
{
	a->work += n;
	return a->work <= a->allowed || fail(a, SL_ELIMIT);
}

static bool room(struct automaton *a, void **at, size_t need, size_t *cap, size_t each)
{
	if (need <= *cap)
		return true;
	void *more = sl_realloc_n(*at, 2 * need + FIRST, each);
	if (more == NULL)
		return fail(a, SL_ENOMEM);
	*at = more;
	*cap = 2 * need + FIRST;
	return true;
}

/* ---- interning ---- */

static uint32_t hash_of(const struct auto_item *items, size_t n, bool may_end)
{
	uint64_t h = may_end ? 0x1234567 : 1;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ ((uint64_t)items[i].pos << 32 | items[i].term)) * 0x9E3779B97F4A7C15u;
		h = (h ^ h >> 30 ^ ((uint64_t)items[i].count << 32 | items[i].below)) * 0xBF58476D1CE4E5B9u;
		h ^= h >> 29;
	}
	return (uint32_t)(h >> 32);
}

void auto_rehash(struct automaton *a)
{
	memset(a->table, 0, ((size_t)a->table_mask + 1) * sizeof(*a->table));
	for (uint32_t i = 1; i < a->n_configs; i++) {
		const struct auto_config *c = &a->configs[i];
		if (c->is_free)
			continue;
		uint32_t at = hash_of(a->items + c->from, c->n, c->may_end) & a->table_mask;
		while (a->table[at] != 0)
			at = (at + 1) & a->table_mask;
		a->table[at] = i;
	}
}

static bool grow_table(struct automaton *a)
{
	uint32_t mask = 2 * a->table_mask + 1;
	uint32_t *t = sl_zalloc_n((size_t)mask + 1, sizeof(*t));
	if (t == NULL)
		return fail(a, SL_ENOMEM);
	sl_free(a->table);
	a->table = t;
	a->table_mask = mask;
	auto_rehash(a);
	return true;
}

static bool is_config(const struct automaton *a, uint32_t i)
{
	const struct auto_config *c = &a->configs[i];
	return c->n == a->n_found && c->may_end == a->may_end &&
	       memcmp(a->items + c->from, a->found, c->n * sizeof(*a->items)) == 0;
}

static uint32_t new_config(struct automaton *a)
{
	uint32_t c = a->free_configs;
	if (c != 0) {
		a->free_configs = a->configs[c].from;
		return c;
	}
	size_t cap = a->cap_configs;
	if (!room(a, (void **)&a->configs, (size_t)a->n_configs + 1, &cap, sizeof(*a->configs)))
		return AUTO_FAIL;
	a->cap_configs = (uint32_t)cap;
	return a->n_configs++;
}

/* Interns the configuration of the items found, sorted. */
static uint32_t intern(struct automaton *a)
{
	if (a->n_found == 0 && !a->may_end)
		return AUTO_DEAD;
	uint32_t hash = hash_of(a->found, a->n_found, a->may_end), at = hash & a->table_mask;
	for (; a->table[at] != 0; at = (at + 1) & a->table_mask)
		if (is_config(a, a->table[at]))
			return a->table[at];
	if (a->n_items + a->n_found > MAX_ITEMS) {
		fail(a, SL_ELIMIT);
		return AUTO_FAIL;
	}
	if (!room(a, (void **)&a->items, a->n_items + a->n_found, &a->cap_items, sizeof(*a->items)))
		return AUTO_FAIL;
	if (2 * a->n_configs > a->table_mask) {
		if (!grow_table(a))
			return AUTO_FAIL;
		for (at = hash & a->table_mask; a->table[at] != 0;)
			at = (at + 1) & a->table_mask;
	}
	uint32_t c = new_config(a);
	if (c == AUTO_FAIL)
		return AUTO_FAIL;
	if (a->n_found > 0)
		memcpy(a->items + a->n_items, a->found, a->n_found * sizeof(*a->items));
	a->configs[c] =
	    (struct auto_config){.from = (uint32_t)a->n_items, .n = (uint32_t)a->n_found, .may_end = a->may_end};
	a->n_items += a->n_found;
	a->n_live++;
	a->table[at] = c;
	return c;
}

/* ---- a step ---- */

static bool add_item(struct automaton *a, uint32_t pos, uint32_t count, uint32_t term, uint32_t below)
{
	if (!spend(a, 1) || !room(a, (void **)&a->found, a->n_found + 1, &a->cap_found, sizeof(*a->found)))
		return false;
	a->found[a->n_found++] = (struct auto_item){pos, count, term, below};
	return true;
}

/* Keeps the list sorted by descending rank, each rule once. */
static bool add_pending(struct automaton *a, uint32_t rule, uint32_t below)
{
	if (below == STACKS_FAIL || !spend(a, 1))
		return false;
	uint32_t rank = a->gram.rules[rule].rank;
	size_t lo = 0, hi = a->n_pending;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (a->gram.rules[a->pending[mid].rule].rank > rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < a->n_pending && a->pending[lo].rule == rule) {
		a->pending[lo].below = stacks_union(&a->stacks, a->pending[lo].below, below);
		return a->pending[lo].below != STACKS_FAIL;
	}
	if (!room(a, (void **)&a->pending, a->n_pending + 1, &a->cap_pending, sizeof(*a->pending)))
		return false;
	memmove(a->pending + lo + 1, a->pending + lo, (a->n_pending - lo) * sizeof(*a->pending));
	a->pending[lo] = (struct auto_pending){rule, below};
	a->n_pending++;
	return true;
}

/* Begins a position. A call that is the last symbol of an alternative needs no frame: its callers are the rule's. */
static bool enter(struct automaton *a, uint32_t pos, uint32_t count, uint32_t below)
{
	const struct gram_pos *p = &a->gram.pos[pos];
	if ((p->sym & GRAM_RULE) == 0)
		return add_item(a, pos, count, p->sym, below);
	return add_pending(a, p->sym & ~GRAM_RULE,
			   p->next == GRAM_END ? below : stacks_push(&a->stacks, pos, count, below));
}

static bool add_arrival(struct automaton *a, uint32_t next, uint32_t count, uint32_t below)
{
	if (!room(a, (void **)&a->arrivals, a->n_arrivals + 1, &a->cap_arrivals, sizeof(*a->arrivals)))
		return false;
	a->arrivals[a->n_arrivals++] = (struct auto_arrival){next, count, below};
	return true;
}

/* A rule is complete: continues at what follows its callers. */
static bool leave(struct automaton *a, uint32_t below)
{
	struct stack_set *set = &a->stacks.sets[below];
	if (set->seen == a->step)
		return true;
	set->seen = a->step;
	if (!spend(a, set->n))
		return false;
	for (uint32_t i = 0; i < set->n; i++) {
		struct stack_frame f = a->stacks.frames[set->from + i];
		if (f.pos == 0)
			a->may_end = true;
		else if (!add_arrival(a, a->gram.pos[f.pos].next, f.count, f.below))
			return false;
	}
	return true;
}

/* A repetition's copy is complete, after `count` earlier ones. */
static bool end_copy(struct automaton *a, uint32_t rule, uint32_t count, uint32_t below)
{
	const struct gram_rule *r = &a->gram.rules[rule];
	uint32_t enough = r->least > 1 ? r->least : 1;
	if (r->most != RX_UNBOUNDED || count < enough)
		count++;
	for (uint32_t i = 0; count < r->most && i < r->n_body; i++) {
		const struct gram_entry *e = &a->gram.entries[r->body + i];
		if (!enter(a, e->pos, count, below))
			return false;
	}
	return count < r->least || leave(a, below);
}

static bool arrive(struct automaton *a, struct auto_arrival at)
{
	while (at.next != GRAM_END && (at.next & GRAM_LOOP) == 0) {
		if (!enter(a, at.next, at.count, at.below))
			return false;
		const struct gram_pos *p = &a->gram.pos[at.next];
		if (!p->nullable)
			return true;
		at.next = p->next;
	}
	return at.next == GRAM_END ? leave(a, at.below) : end_copy(a, at.next & ~GRAM_LOOP, at.count, at.below);
}

static bool enter_rules(struct automaton *a)
{
	while (a->n_pending > 0) {
		struct auto_pending p = a->pending[--a->n_pending];
		const struct gram_rule *r = &a->gram.rules[p.rule];
		for (uint32_t i = 0; i < r->n_entries; i++) {
			struct gram_entry e = a->gram.entries[r->entries + i];
			if (!enter(a, e.pos, e.count, p.below))
				return false;
		}
	}
	return true;
}

static int by_item(const void *x, const void *y)
{
	const struct auto_item *a = x, *b = y;
	if (a->pos != b->pos)
		return a->pos < b->pos ? -1 : 1;
	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	return a->term < b->term ? -1 : a->term > b->term;
}

static bool merge_items(struct automaton *a)
{
	if (a->n_found < 2)
		return true;
	qsort(a->found, a->n_found, sizeof(*a->found), by_item);
	size_t to = 0;
	for (size_t i = 0; i < a->n_found; i++) {
		if (to == 0 || by_item(&a->found[to - 1], &a->found[i]) != 0) {
			a->found[to++] = a->found[i];
			continue;
		}
		uint32_t both = stacks_union(&a->stacks, a->found[to - 1].below, a->found[i].below);
		if (both == STACKS_FAIL)
			return false;
		a->found[to - 1].below = both;
	}
	a->n_found = to;
	return true;
}

static uint32_t finish(struct automaton *a)
{
	bool ok = true;
	while (ok && a->n_arrivals > 0)
		ok = arrive(a, a->arrivals[--a->n_arrivals]);
	ok = ok && enter_rules(a) && merge_items(a) && auto_fault(a) == 0;
	a->n_arrivals = a->n_pending = 0;
	return ok ? intern(a) : AUTO_FAIL;
}

static void begin_step(struct automaton *a)
{
	a->n_found = a->n_pending = a->n_arrivals = 0;
	a->may_end = false;
	a->step++;
}

/* Bytes that move every item of c as `byte` does have the same successor. */
static void fill_same(struct automaton *a, uint32_t c, uint8_t byte, uint32_t to)
{
	struct auto_config *conf = &a->configs[c];
	struct rx_set same = conf->alive;
	for (uint32_t i = 0; i < conf->n; i++) {
		const struct dfa_state *s = &a->dfa.states[a->items[conf->from + i].term];
		uint32_t t = s->next[byte];
		for (unsigned k = 0; k < 4; k++)
			for (uint64_t w = same.bits[k]; w != 0; w &= w - 1) {
				unsigned b = 64 * k + (unsigned)__builtin_ctzll(w);
				if (s->next[b] != t)
					set_remove(&same, b);
			}
	}
	for (unsigned k = 0; k < 4; k++)
		for (uint64_t w = same.bits[k]; w != 0; w &= w - 1)
			conf->next[64 * k + (unsigned)__builtin_ctzll(w)] = to;
	conf->next[byte] = to;
}

/* Has the mask had its work for now? */
static bool is_due(const struct automaton *a) { return a->work >= a->pause && a->n_done > 0; }

bool auto_spend(struct automaton *a, uint64_t work)
{
	if (!spend(a, work))
		return false;
	a->n_done++;
	return !is_due(a) || fail(a, SL_EAGAIN);
}

uint32_t auto_compute(struct automaton *a, uint32_t c, uint8_t byte)
{
	if (a->configs[c].next == NULL && !auto_expand(a, c))
		return AUTO_FAIL;
	if (a->configs[c].next[byte] != AUTO_UNKNOWN)
		return a->configs[c].next[byte];
	if (is_due(a)) {
		fail(a, SL_EAGAIN);
		return AUTO_FAIL;
	}
	begin_step(a);
	struct auto_config conf = a->configs[c];
	if (!spend(a, conf.n))
		return AUTO_FAIL;
	for (uint32_t i = 0; i < conf.n; i++) {
		struct auto_item it = a->items[conf.from + i];
		uint32_t t = a->dfa.states[it.term].next[byte];
		if (t == DFA_DEAD)
			continue;
		const struct dfa_state *s = &a->dfa.states[t];
		if (s->of != RX_EPS && !add_item(a, it.pos, it.count, t, it.below))
			return AUTO_FAIL;
		if (s->nullable && !add_arrival(a, a->gram.pos[it.pos].next, it.count, it.below))
			return AUTO_FAIL;
	}
	uint32_t to = finish(a);
	if (to == AUTO_FAIL)
		return to;
	fill_same(a, c, byte, to);
	a->n_done++;
	return to;
}

uint32_t auto_with_terms(struct automaton *a, uint32_t c, const uint32_t *terms)
{
	struct auto_config conf = a->configs[c];
	begin_step(a);
	a->may_end = conf.may_end;
	for (uint32_t i = 0; i < conf.n; i++) {
		struct auto_item it = a->items[conf.from + i];
		if (!add_item(a, it.pos, it.count, terms[i], it.below))
			return AUTO_FAIL;
	}
	return finish(a);
}

bool auto_expand(struct automaton *a, uint32_t c)
{
	struct auto_config *conf = &a->configs[c];
	if (conf->next != NULL)
		return true;
	if (is_due(a))
		return fail(a, SL_EAGAIN);
	struct rx_set alive = {{0}};
	for (uint32_t i = 0; i < conf->n; i++) {
		uint32_t t = a->items[conf->from + i].term;
		uint64_t before = a->dfa.pool->work;
		if (!dfa_expand(&a->dfa, t) || !spend(a, a->dfa.pool->work - before))
			return false;
		set_or(&alive, &a->dfa.states[t].alive);
	}
	if (auto_bytes(a) > 2 * a->max_bytes || !spend(a, TABLE_WORK))
		return fail(a, SL_ELIMIT);
	uint32_t *next = sl_alloc(256 * sizeof(*next));
	if (next == NULL)
		return fail(a, SL_ENOMEM);
	for (unsigned b = 0; b < 256; b++)
		next[b] = set_has(&alive, b) ? AUTO_UNKNOWN : AUTO_DEAD;
	conf->alive = alive;
	conf->next = next;
	a->n_done++;
	a->bytes += 256 * sizeof(*next);
	return true;
}

/* ---- lifetime ---- */

static int begin(struct automaton *a, struct rules *r, struct sl_err *err)
{
	a->configs = sl_zalloc_n(FIRST, sizeof(*a->configs));
	a->table = sl_zalloc_n(FIRST_TABLE, sizeof(*a->table));
	if (a->configs == NULL || a->table == NULL)
		return SL_ENOMEM;
	a->cap_configs = FIRST;
	a->table_mask = FIRST_TABLE - 1;
	a->n_configs = 1;
	int rc = stacks_init(&a->stacks, &a->work);
	if (rc == 0)
		rc = gram_compile(r, &a->dfa, &a->gram, err);
	if (rc != 0)
		return rc;
	begin_step(a);
	a->may_end = a->gram.rules[a->gram.start].nullable;
	a->start = add_pending(a, a->gram.start, STACKS_BOTTOM) ? finish(a) : AUTO_FAIL;
	rc = auto_fault(a);
	if (rc == 0)
		a->n_ahead = auto_ahead(a);
	return rc;
}

int auto_init(struct automaton *a, struct rules *r, const struct auto_limits *limits, struct sl_err *err)
{
	*a = (struct automaton){
	    .max_work = limits->work, .allowed = limits->work, .pause = UINT64_MAX, .max_bytes = limits->bytes};
	int rc = dfa_init(&a->dfa, r->pool, limits->search);
	if (rc == 0)
		rc = begin(a, r, err);
	r->pool = NULL;
	if (rc != 0)
		auto_dispose(a);
	return rc;
}

void auto_dispose(struct automaton *a)
{
	for (uint32_t i = 0; i < a->n_configs; i++)
		sl_free(a->configs[i].next);
	struct rx_pool *pool = a->dfa.pool;
	dfa_dispose(&a->dfa);
	rx_pool_destroy(pool);
	gram_dispose(&a->gram);
	stacks_dispose(&a->stacks);
	sl_free(a->configs);
	sl_free(a->items);
	sl_free(a->table);
	sl_free(a->found);
	sl_free(a->pending);
	sl_free(a->arrivals);
	*a = (struct automaton){0};
}

void auto_allow(struct automaton *a, uint64_t work)
{
	a->allowed = work;
	a->dfa.pool->max_work = a->dfa.pool->work + work;
}

void auto_begin(struct automaton *a)
{
	struct rx_pool *p = a->dfa.pool;
	a->work = 0;
	a->fault = a->stacks.fault = p->fault = 0;
	p->n_scratch = 0;
	p->depth = 0;
	auto_allow(a, a->max_work);
	p->pause = a->pause = UINT64_MAX;
	p->n_filled = a->n_done = 0;
}

void auto_pause_after(struct automaton *a, uint64_t work)
{
	a->pause = work;
	a->dfa.pool->pause = work < UINT64_MAX - a->dfa.pool->work ? a->dfa.pool->work + work : UINT64_MAX;
	if (work == 0)
		a->dfa.pool->n_filled = a->n_done = 1;
}

size_t auto_bytes(const struct automaton *a)
{
	return a->bytes + a->dfa.bytes + stacks_bytes(&a->stacks) + a->n_items * sizeof(*a->items) +
	       a->n_configs * (sizeof(*a->configs) + 8) + a->dfa.n * sizeof(*a->dfa.states) +
	       a->dfa.pool->n * (sizeof(struct rx_node) + 12) + a->dfa.pool->n_words * sizeof(uint32_t);
}
