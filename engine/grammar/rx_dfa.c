/* SPDX-License-Identifier: Apache-2.0
 *
 * A state becomes usable in two steps: `fill` derives by each class of bytes; `prune` removes transitions to
 * expressions without strings. Only intersections and complements can be empty without being RX_NONE (RX_SURE marks
 * those that can't), so the search behind `prune` is rare. It goes depth first to the nearest nullable state and keeps
 * what it learns about the states on its path.
 */
#include "engine/grammar/rx_dfa.h"

#include <string.h>

#include "base/alloc.h"

int dfa_init(struct rx_dfa *d, struct rx_pool *pool, uint32_t max_search)
{
	*d = (struct rx_dfa){.pool = pool, .cap = 64, .max_search = max_search};
	d->states = sl_zalloc_n(d->cap, sizeof(*d->states));
	if (d->states == NULL)
		return SL_ENOMEM;
	d->states[DFA_DEAD] = (struct dfa_state){.life = LIFE_DEAD};
	d->n = 1;
	return 0;
}

void dfa_dispose(struct rx_dfa *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		sl_free(d->states[i].next);
	sl_free(d->states);
	sl_free(d->partial_next);
	sl_free(d->of_rx);
	sl_free(d->path);
	*d = (struct rx_dfa){0};
}

static bool grow_map(struct rx_dfa *d)
{
	uint32_t n = d->pool->cap;
	uint32_t *more = sl_realloc_n(d->of_rx, n, sizeof(*more));
	if (more == NULL)
		return false;
	memset(more + d->n_of_rx, 0, (n - d->n_of_rx) * sizeof(*more));
	d->of_rx = more;
	d->n_of_rx = n;
	return true;
}

static bool grow_states(struct rx_dfa *d)
{
	struct dfa_state *more = sl_realloc_n(d->states, 2 * (size_t)d->cap, sizeof(*more));
	if (more == NULL)
		return false;
	d->states = more;
	d->cap *= 2;
	return true;
}

/* Is it known without a search to have a string? */
static bool is_live(struct rx_pool *p, rx a)
{
	const uint8_t known = RX_SURE | RX_LIVE | RX_NULLABLE;
	/* A long literal is known at its head: to walk it from every state is quadratic. */
	for (; !rx_has(p, a, known) && p->nodes[a].op == OP_CAT; a = p->nodes[a].b)
		if (!is_live(p, p->nodes[a].a))
			return false;
	if (rx_has(p, a, known))
		return true;
	/* A spelling is kept only if it can become a character, and any number of texts have that character. */
	return rx_is_cofinite(p, p->nodes[a].op == OP_JSON ? p->nodes[a].a : a);
}

uint32_t dfa_state(struct rx_dfa *d, rx of)
{
	if (of == RX_NONE || d->pool->fault != 0)
		return DFA_DEAD;
	if ((of >= d->n_of_rx && !grow_map(d)) || (d->n == d->cap && !grow_states(d))) {
		rx_fail(d->pool, SL_ENOMEM);
		return DFA_DEAD;
	}
	if (d->of_rx[of] != 0)
		return d->of_rx[of];
	bool nullable = rx_nullable(d->pool, of), sure = is_live(d->pool, of);
	d->states[d->n] =
	    (struct dfa_state){.of = of, .nullable = nullable, .life = nullable || sure ? LIFE_LIVE : LIFE_UNKNOWN};
	return d->of_rx[of] = d->n++;
}

/* What begins an operand of a union; RX_NONE: more than one byte set, or none. */
static rx head_of(const struct rx_pool *p, rx kid)
{
	rx head = rx_at(p, kid)->op == OP_CAT ? rx_at(p, kid)->a : kid;
	return rx_at(p, head)->op == OP_SET ? head : RX_NONE;
}

static struct rx_set set_of(const struct rx_pool *p, rx set)
{
	struct rx_set s;
	memcpy(s.bits, rx_kids(p, rx_at(p, set)), sizeof(s.bits));
	return s;
}

/* Texts that begin with different bytes, like those of a list of words. */
static bool begin_apart(const struct rx_pool *p, const rx *kids, uint32_t n)
{
	struct rx_set seen = {{0}};
	for (uint32_t i = 0; i < n; i++) {
		rx head = head_of(p, kids[i]);
		if (head == RX_NONE && kids[i] != RX_EPS)
			return false;
		struct rx_set s = head != RX_NONE ? set_of(p, head) : (struct rx_set){{0}}, both = s;
		set_and(&both, &seen);
		if (!set_empty(&both))
			return false;
		set_or(&seen, &s);
	}
	return true;
}

/* Of such texts, the rest after each byte: no derivation is needed. */
static void fill_rests(struct rx_dfa *d, rx of, const rx *kids, uint32_t n, uint32_t *next)
{
	struct rx_pool *p = d->pool;
	const bool sure = rx_has(p, of, RX_SURE);
	memset(next, 0, 256 * sizeof(*next));
	for (uint32_t i = 0; i < n && p->fault == 0; i++) {
		if (kids[i] == RX_EPS)
			continue;
		struct rx_set s = set_of(p, head_of(p, kids[i]));
		rx rest = rx_at(p, kids[i])->op == OP_CAT ? rx_at(p, kids[i])->b : RX_EPS;
		uint32_t to = dfa_state(d, sure ? rx_mark(p, rest, RX_SURE) : rest);
		for (unsigned k = 0; k < 4; k++)
			for (uint64_t w = s.bits[k]; w != 0; w &= w - 1)
				next[64 * k + (unsigned)__builtin_ctzll(w)] = to;
	}
	p->n_filled++;
	if ((p->work += 1 + n / 4) > p->max_work)
		rx_fail(p, SL_ELIMIT);
}

/* Has the mask had its work for now? What is derived stays, so every attempt gets further. */
static bool is_due(const struct rx_pool *p) { return p->n_filled > 0 && p->work >= p->pause; }

/* The transitions by the bytes left. */
static void fill_derivatives(struct rx_dfa *d, rx of, uint32_t *next, struct rx_set *left)
{
	for (unsigned i = 0; i < 4; i++) {
		while (left->bits[i] != 0) {
			unsigned b = 64 * i + (unsigned)__builtin_ctzll(left->bits[i]);
			struct rx_set same;
			if (is_due(d->pool))
				rx_fail(d->pool, SL_EAGAIN);
			uint32_t to = dfa_state(d, rx_derive_set(d->pool, of, (uint8_t)b, &same));
			if (d->pool->fault != 0)
				return;
			set_and(&same, left);
			set_add(&same, b);
			for (unsigned k = i; k < 4; k++) {
				left->bits[k] &= ~same.bits[k];
				for (uint64_t w = same.bits[k]; w != 0; w &= w - 1)
					next[64 * k + (unsigned)__builtin_ctzll(w)] = to;
			}
			d->pool->n_filled++;
		}
	}
}

static void fill_next(struct rx_dfa *d, rx of, uint32_t *next, struct rx_set *left)
{
	const struct rx_node *n = rx_at(d->pool, of);
	const bool is_or = n->op == OP_OR;
	const rx *kids = is_or ? rx_kids(d->pool, n) : &of;
	if (begin_apart(d->pool, kids, is_or ? n->b : 1))
		fill_rests(d, of, kids, is_or ? n->b : 1, next);
	else
		fill_derivatives(d, of, next, left);
}

static void drop_partial(struct rx_dfa *d, bool frees)
{
	if (frees)
		sl_free(d->partial_next);
	d->partial_next = NULL;
	d->partial = DFA_DEAD;
}

static bool fill(struct rx_dfa *d, uint32_t s)
{
	if (d->states[s].filled)
		return true;
	struct rx_set left = d->partial == s ? d->left : set_all();
	uint32_t *next = d->partial == s ? d->partial_next : sl_alloc(256 * sizeof(*next));
	if (next == NULL) {
		rx_fail(d->pool, SL_ENOMEM);
		return false;
	}
	if (d->partial == s)
		drop_partial(d, false);
	fill_next(d, d->states[s].of, next, &left);
	if (d->pool->fault != 0) {
		drop_partial(d, true);
		d->partial = s;
		d->partial_next = next;
		d->left = left;
		return false;
	}
	d->states[s].next = next;
	d->states[s].filled = true;
	d->bytes += 256 * sizeof(*next);
	return true;
}

/* ---- search for a string ---- */

static bool push_path(struct rx_dfa *d, size_t n, uint32_t s)
{
	if (2 * n + 2 > d->cap_path) {
		size_t cap = d->cap_path == 0 ? 128 : 2 * d->cap_path;
		uint32_t *more = sl_realloc_n(d->path, cap, sizeof(*more));
		if (more == NULL) {
			rx_fail(d->pool, SL_ENOMEM);
			return false;
		}
		d->path = more;
		d->cap_path = cap;
	}
	d->path[2 * n] = s;
	d->path[2 * n + 1] = 0;
	d->states[s].seen = d->searches;
	return true;
}

static void mark_path(struct rx_dfa *d, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d->states[d->path[2 * i]].life = LIFE_LIVE;
}

/* The next successor of the path's last state that the search has not visited; DFA_DEAD: none left. */
static uint32_t next_unseen(struct rx_dfa *d, size_t n)
{
	const uint32_t *next = d->states[d->path[2 * n - 2]].next;
	for (uint32_t *b = &d->path[2 * n - 1]; *b < 256;) {
		uint32_t t = next[(*b)++];
		if (d->states[t].life != LIFE_DEAD && d->states[t].seen != d->searches)
			return t;
	}
	return DFA_DEAD;
}

/* No visited state leads to a nullable one. The search's id identifies them. */
static void mark_dead(struct rx_dfa *d)
{
	for (uint32_t i = 1; i < d->n; i++)
		if (d->states[i].seen == d->searches)
			d->states[i].life = LIFE_DEAD;
}

/* Does s have a string? */
static bool search(struct rx_dfa *d, uint32_t s)
{
	uint32_t visited = 1;
	size_t n = 1;
	d->searches++;
	if (!push_path(d, 0, s))
		return false;
	while (n > 0) {
		if (!fill(d, d->path[2 * n - 2]))
			return false;
		uint32_t t = next_unseen(d, n);
		if (t == DFA_DEAD) {
			n--;
			continue;
		}
		if (d->states[t].life == LIFE_LIVE) {
			mark_path(d, n);
			return true;
		}
		if (++visited > d->max_search) {
			rx_fail(d->pool, SL_ELIMIT);
			return false;
		}
		if (!push_path(d, n++, t))
			return false;
	}
	mark_dead(d);
	return false;
}

/* The expression's form decides where it can; a search would follow every spelling of a character. */
static bool decide(struct rx_dfa *d, rx a)
{
	struct rx_pool *p = d->pool;
	for (; p->nodes[a].op == OP_CAT; a = p->nodes[a].b)
		if (!dfa_is_live(d, dfa_state(d, p->nodes[a].a)))
			return false;
	struct rx_node n = *rx_at(p, a);
	/* After whole characters there are few states; inside a character, each has its own language to search. */
	if (n.op == OP_JSON && dfa_is_live(d, dfa_state(d, rx_json_sample(p, a))))
		return true;
	if (n.op == OP_JSON)
		return dfa_is_live(d, dfa_state(d, rx_json_text(p, a)));
	for (uint32_t i = 0; n.op == OP_OR && i < n.b; i++)
		if (dfa_is_live(d, dfa_state(d, p->words[n.a + i])))
			return true;
	if (n.op == OP_OR)
		return false;
	uint32_t s = dfa_state(d, a);
	return d->states[s].life == LIFE_UNKNOWN ? search(d, s) : d->states[s].life == LIFE_LIVE;
}

bool dfa_is_live(struct rx_dfa *d, uint32_t s)
{
	if (d->states[s].life == LIFE_UNKNOWN) {
		bool live = decide(d, d->states[s].of);
		if (d->pool->fault == 0)
			d->states[s].life = live ? LIFE_LIVE : LIFE_DEAD;
	}
	return d->states[s].life == LIFE_LIVE;
}

bool dfa_expand(struct rx_dfa *d, uint32_t s)
{
	if (d->states[s].pruned)
		return true;
	if (!fill(d, s))
		return false;
	struct rx_set alive = {{0}};
	for (unsigned b = 0; b < 256; b++) {
		uint32_t t = d->states[s].next[b];
		if (t == DFA_DEAD)
			continue;
		bool live = dfa_is_live(d, t);
		/* Undecided: the transition stays unresolved until the next attempt. */
		if (d->pool->fault != 0)
			return false;
		if (live)
			set_add(&alive, b);
		else
			d->states[s].next[b] = DFA_DEAD;
	}
	d->states[s].alive = alive;
	d->states[s].pruned = true;
	return true;
}

uint32_t dfa_cover(struct rx_dfa *d, uint32_t s)
{
	if (!d->states[s].covered) {
		d->states[s].cover = rx_cover(d->pool, d->states[s].of);
		d->states[s].covered = true;
	}
	return d->states[s].cover;
}

bool rx_is_none(struct rx_pool *p, rx a, size_t max_states)
{
	struct rx_dfa d;
	if (a == RX_NONE || rx_has(p, a, RX_SURE | RX_NULLABLE) || p->fault != 0)
		return a == RX_NONE && p->fault == 0;
	if (dfa_init(&d, p, max_states > UINT32_MAX ? UINT32_MAX : (uint32_t)max_states) != 0)
		return false;
	uint32_t s = dfa_state(&d, a);
	bool none = !dfa_is_live(&d, s) && d.states[s].life == LIFE_DEAD;
	/* A search that was too long is not the pool's fault; exhausting its total work is. */
	if (p->fault == SL_ELIMIT && p->work <= p->max_work)
		p->fault = 0;
	dfa_dispose(&d);
	return none;
}
