/* SPDX-License-Identifier: Apache-2.0
 *
 * Constructors. Each brings its result into canonical form:
 *
 *   CAT     nests to the right; NONE and EPS are removed; adjacent repetitions of the same operand are merged
 *   OR      flat, sorted, without NONE and duplicates; alternatives with the same head share it, so literals become a
 *           trie; sets, and repetitions of the same operand, are merged if their tails are equal
 *   AND     flat, sorted, without ALL and duplicates; sets are merged
 *   REPEAT  starts from 0 copies if the operand is nullable
 *
 * OR and AND build lists on the pool's scratch stack; each list restores the stack.
 */
#include "engine/grammar/rx_priv.h"

#include <stdlib.h>
#include <string.h>

/* Common heads are factored out to this depth; deeper alternatives stay separate. */
enum { MAX_FACTORING = 256 };

static unsigned flags_of(const struct rx_pool *p, rx a) { return p->nodes[a].flags; }

rx rx_bytes(struct rx_pool *p, const struct rx_set *set)
{
	if (set_empty(set))
		return RX_NONE;
	uint32_t words[8];
	memcpy(words, set->bits, sizeof(words));
	unsigned flags = RX_SURE | ((set->bits[2] | set->bits[3]) == 0 ? RX_UTF8 : 0);
	return rx_intern(p, (struct rx_node){.op = OP_SET, .flags = (uint8_t)flags, .b = 8}, words, 8);
}

static struct rx_set set_of(const struct rx_pool *p, rx a)
{
	struct rx_set s;
	memcpy(s.bits, rx_kids(p, rx_at(p, a)), sizeof(s.bits));
	return s;
}

rx rx_literal(struct rx_pool *p, const char *text, size_t n)
{
	rx r = RX_EPS;
	for (size_t i = n; i-- > 0;) {
		struct rx_set s = {{0}};
		set_add(&s, (uint8_t)text[i]);
		r = rx_cat(p, rx_bytes(p, &s), r);
	}
	return r;
}

/* ---- concatenation ---- */

static bool is_op(const struct rx_pool *p, rx a, enum rx_op op) { return p->nodes[a].op == op; }
static rx head_of(const struct rx_pool *p, rx a) { return is_op(p, a, OP_CAT) ? p->nodes[a].a : a; }
static rx tail_of(const struct rx_pool *p, rx a) { return is_op(p, a, OP_CAT) ? p->nodes[a].b : RX_EPS; }

static rx cat_node(struct rx_pool *p, rx a, rx b)
{
	unsigned both = flags_of(p, a) & flags_of(p, b) & (RX_NULLABLE | RX_SURE | RX_UTF8);
	return rx_intern(p, (struct rx_node){.op = OP_CAT, .flags = (uint8_t)both, .a = a, .b = b}, NULL, 0);
}

static uint32_t add_copies(uint32_t a, uint32_t b)
{
	return a == RX_UNBOUNDED || b == RX_UNBOUNDED || a > RX_UNBOUNDED - b ? RX_UNBOUNDED : a + b;
}

/* a{l,m} a{l',m'} is a{l+l',m+m'}, unless a sum is too large to be exact. */
static rx join_repeats(struct rx_pool *p, rx a, rx b)
{
	struct rx_node x = *rx_at(p, a), y = *rx_at(p, head_of(p, b));
	if (x.op != OP_REPEAT || y.op != OP_REPEAT || x.a != y.a)
		return RX_NONE;
	uint32_t least = add_copies(x.b, y.b), most = add_copies(x.c, y.c);
	if (least == RX_UNBOUNDED || (most == RX_UNBOUNDED && x.c != RX_UNBOUNDED && y.c != RX_UNBOUNDED))
		return RX_NONE;
	rx both = rx_repeat(p, x.a, least, most), tail = tail_of(p, b);
	return tail == RX_EPS ? both : cat_node(p, both, tail);
}

/* a is not a CAT. */
static rx cat_one(struct rx_pool *p, rx a, rx b)
{
	if (a == RX_NONE || b == RX_NONE)
		return RX_NONE;
	if (a == RX_EPS || b == RX_EPS)
		return a == RX_EPS ? b : a;
	/* ALL absorbs an adjacent nullable operand, and another ALL. */
	if (b == RX_ALL && rx_has(p, a, RX_NULLABLE))
		return RX_ALL;
	if (a == RX_ALL && (head_of(p, b) == RX_ALL || rx_has(p, b, RX_NULLABLE)))
		return head_of(p, b) == RX_ALL ? b : RX_ALL;
	rx joined = join_repeats(p, a, b);
	return joined != RX_NONE ? joined : cat_node(p, a, b);
}

rx rx_cat(struct rx_pool *p, rx a, rx b)
{
	if (!is_op(p, a, OP_CAT))
		return cat_one(p, a, b);
	size_t base = p->n_scratch;
	unsigned flags = flags_of(p, a) & flags_of(p, b) & (RX_SURE | RX_UTF8);
	for (; is_op(p, a, OP_CAT); a = p->nodes[a].b)
		if (!rx_push(p, p->nodes[a].a))
			return RX_NONE;
	b = cat_one(p, a, b);
	while (p->n_scratch > base)
		b = cat_one(p, p->scratch[--p->n_scratch], b);
	return rx_mark(p, b, flags);
}

rx rx_repeat(struct rx_pool *p, rx a, uint32_t least, uint32_t most)
{
	if (most == 0 || a == RX_EPS)
		return least > most ? RX_NONE : RX_EPS;
	if (least > most)
		return RX_NONE;
	if (a == RX_NONE)
		return least == 0 ? RX_EPS : RX_NONE;
	if (a == RX_ALL)
		return RX_ALL;
	if (rx_has(p, a, RX_NULLABLE))
		least = 0;
	if (least == 1 && most == 1)
		return a;
	if (most == 1)
		return rx_or(p, RX_EPS, a);
	struct rx_node n = *rx_at(p, a);
	if (n.op == OP_REPEAT && n.b <= 1 && n.c == RX_UNBOUNDED)
		return rx_repeat(p, n.a, n.b == 0 || least == 0 ? 0 : least, RX_UNBOUNDED);
	unsigned flags = (n.flags & (RX_SURE | RX_UTF8)) | (least == 0 ? RX_NULLABLE : 0);
	return rx_intern(p, (struct rx_node){.op = OP_REPEAT, .flags = (uint8_t)flags, .a = a, .b = least, .c = most},
			 NULL, 0);
}

rx rx_not(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	if (p->fault != 0)
		return RX_NONE;
	if (n.op == OP_NOT)
		return n.a;
	if (a == RX_NONE || a == RX_ALL)
		return a == RX_NONE ? RX_ALL : RX_NONE;
	unsigned flags = (n.flags & RX_NULLABLE) != 0 ? 0 : RX_NULLABLE;
	return rx_intern(p, (struct rx_node){.op = OP_NOT, .flags = (uint8_t)flags, .a = a}, NULL, 0);
}

/* ---- lists ---- */

static int by_id(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	return a < b ? -1 : a > b;
}

static void sort_ids(uint32_t *ids, size_t n)
{
	if (n > 16) {
		qsort(ids, n, sizeof(*ids), by_id);
		return;
	}
	for (size_t i = 1; i < n; i++) {
		uint32_t v = ids[i];
		size_t at = i;
		for (; at > 0 && ids[at - 1] > v; at--)
			ids[at] = ids[at - 1];
		ids[at] = v;
	}
}

static size_t sort_unique(uint32_t *ids, size_t n)
{
	sort_ids(ids, n);
	size_t to = 0;
	for (size_t i = 0; i < n; i++)
		if (to == 0 || ids[to - 1] != ids[i])
			ids[to++] = ids[i];
	return to;
}

static bool has_id(const uint32_t *ids, size_t n, uint32_t id)
{
	return bsearch(&id, ids, n, sizeof(*ids), by_id) != NULL;
}

/* Does a sorted list contain some x and NOT x? */
static bool has_complement(const struct rx_pool *p, const uint32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_op(p, ids[i], OP_NOT) && has_id(ids, n, p->nodes[ids[i]].a))
			return true;
	return false;
}

/* Pushes the operands of a, or a itself if its operation is another. */
static bool push_flat(struct rx_pool *p, rx a, enum rx_op op)
{
	struct rx_node n = *rx_at(p, a);
	if (n.op != op)
		return rx_push(p, a);
	for (uint32_t i = 0; i < n.b; i++)
		if (!rx_push(p, p->words[n.a + i]))
			return false;
	return true;
}

/* ---- alternatives ---- */

static __thread const struct rx_pool *sorting;

static int by_head(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	uint32_t ha = head_of(sorting, a), hb = head_of(sorting, b);
	return ha != hb ? (ha < hb ? -1 : 1) : a < b ? -1 : a > b;
}

struct merge_key {
	uint32_t kind, of, tail; /* kind 0: set, 1: repetition, 2: other */
};

static struct merge_key key_of(const struct rx_pool *p, rx a)
{
	const struct rx_node *h = rx_at(p, head_of(p, a));
	if (h->op == OP_SET)
		return (struct merge_key){0, 0, tail_of(p, a)};
	if (h->op == OP_REPEAT)
		return (struct merge_key){1, h->a, tail_of(p, a)};
	return (struct merge_key){2, a, 0};
}

static int compare_keys(struct merge_key a, struct merge_key b)
{
	if (a.kind != b.kind)
		return a.kind < b.kind ? -1 : 1;
	if (a.of != b.of)
		return a.of < b.of ? -1 : 1;
	return a.tail < b.tail ? -1 : a.tail > b.tail;
}

static int by_merge_key(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	int c = compare_keys(key_of(sorting, a), key_of(sorting, b));
	if (c != 0)
		return c;
	uint32_t la = rx_at(sorting, head_of(sorting, a))->b, lb = rx_at(sorting, head_of(sorting, b))->b;
	return la != lb ? (la < lb ? -1 : 1) : a < b ? -1 : a > b;
}

static void sort_by(const struct rx_pool *p, uint32_t *ids, size_t n, int (*compare)(const void *, const void *))
{
	sorting = p;
	if (n > 1)
		qsort(ids, n, sizeof(*ids), compare);
}

static rx or_list(struct rx_pool *p, size_t base, unsigned depth);

/* ids[from, to) share their head: head · (tails). */
static rx factor(struct rx_pool *p, size_t from, size_t to, unsigned depth)
{
	size_t base = p->n_scratch;
	rx head = head_of(p, p->scratch[from]);
	for (size_t i = from; i < to; i++)
		if (!rx_push(p, tail_of(p, p->scratch[i])))
			return RX_NONE;
	return cat_one(p, head, or_list(p, base, depth + 1));
}

static size_t factor_heads(struct rx_pool *p, size_t base, size_t n, unsigned depth)
{
	sort_by(p, p->scratch + base, n, by_head);
	size_t to = 0;
	for (size_t i = 0, end; i < n; i = end) {
		rx head = head_of(p, p->scratch[base + i]);
		for (end = i + 1; end < n && head_of(p, p->scratch[base + end]) == head;)
			end++;
		rx r = end - i == 1 ? p->scratch[base + i] : factor(p, base + i, base + end, depth);
		p->scratch[base + to++] = r;
	}
	return to;
}

/* The union of two neighbours in the order of by_merge_key; RX_NONE: they stay separate. */
static rx merge_two(struct rx_pool *p, rx a, rx b)
{
	struct merge_key ka = key_of(p, a), kb = key_of(p, b);
	if (ka.kind == 2 || compare_keys(ka, kb) != 0)
		return RX_NONE;
	struct rx_node x = *rx_at(p, head_of(p, a)), y = *rx_at(p, head_of(p, b));
	if (ka.kind == 1) {
		if (x.c != RX_UNBOUNDED && y.b > x.c + 1)
			return RX_NONE;
		return cat_one(p, rx_repeat(p, x.a, x.b, x.c > y.c ? x.c : y.c), ka.tail);
	}
	struct rx_set s = set_of(p, head_of(p, a)), t = set_of(p, head_of(p, b));
	set_or(&s, &t);
	return cat_one(p, rx_bytes(p, &s), ka.tail);
}

static size_t merge_tails(struct rx_pool *p, size_t base, size_t n)
{
	sort_by(p, p->scratch + base, n, by_merge_key);
	size_t to = 0;
	for (size_t i = 0; i < n; i++) {
		rx a = p->scratch[base + i];
		rx both = to == 0 ? RX_NONE : merge_two(p, p->scratch[base + to - 1], a);
		if (both != RX_NONE)
			p->scratch[base + to - 1] = both;
		else
			p->scratch[base + to++] = a;
	}
	return to;
}

/* EPS in a union: redundant next to a nullable alternative; a{1,m} becomes a{0,m}. */
static size_t place_eps(struct rx_pool *p, size_t base, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rx_has(p, p->scratch[base + i], RX_NULLABLE))
			return n;
	for (size_t i = 0; i < n; i++) {
		struct rx_node x = *rx_at(p, p->scratch[base + i]);
		if (x.op == OP_REPEAT && x.b == 1) {
			p->scratch[base + i] = rx_repeat(p, x.a, 0, x.c);
			return n;
		}
	}
	return rx_push(p, RX_EPS) ? n + 1 : n;
}

static rx or_node(struct rx_pool *p, const uint32_t *ids, size_t n)
{
	unsigned all = RX_SURE | RX_UTF8, any = 0;
	for (size_t i = 0; i < n; i++) {
		all &= flags_of(p, ids[i]);
		any |= flags_of(p, ids[i]);
	}
	unsigned flags = all | (any & RX_NULLABLE);
	return rx_intern(p, (struct rx_node){.op = OP_OR, .flags = (uint8_t)flags, .b = (uint32_t)n}, ids, (uint32_t)n);
}

/* Removes NONE and EPS from a list. *eps: it had EPS; *all: it had ALL. */
static size_t drop_trivial(uint32_t *ids, size_t n, bool *eps, bool *all)
{
	size_t to = 0;
	for (size_t i = 0; i < n; i++) {
		*eps |= ids[i] == RX_EPS;
		*all |= ids[i] == RX_ALL;
		if (ids[i] != RX_NONE && ids[i] != RX_EPS)
			ids[to++] = ids[i];
	}
	return to;
}

/* The union of the flat list on the scratch stack from base on, which is popped. */
static rx or_flat(struct rx_pool *p, size_t base, unsigned depth)
{
	bool eps = false, all = false;
	size_t n = sort_unique(p->scratch + base, p->n_scratch - base);
	n = drop_trivial(p->scratch + base, n, &eps, &all);
	if (all)
		return RX_ALL;
	p->n_scratch = base + n;
	if (n > 1 && depth < MAX_FACTORING)
		n = factor_heads(p, base, n, depth);
	n = merge_tails(p, base, n);
	p->n_scratch = base + n;
	if (eps)
		n = place_eps(p, base, n);
	n = sort_unique(p->scratch + base, n);
	if (p->fault != 0 || n == 0)
		return RX_NONE;
	if (n == 1)
		return p->scratch[base];
	if (has_complement(p, p->scratch + base, n))
		return RX_ALL;
	return or_node(p, p->scratch + base, n);
}

static rx or_list(struct rx_pool *p, size_t base, unsigned depth)
{
	size_t n = p->n_scratch - base, flat = p->n_scratch;
	unsigned flags = RX_SURE | RX_UTF8;
	for (size_t i = 0; i < n; i++) {
		rx a = p->scratch[base + i];
		flags &= flags_of(p, a);
		if (!push_flat(p, a, OP_OR))
			return RX_NONE;
	}
	rx r = or_flat(p, flat, depth);
	p->n_scratch = base;
	return p->fault != 0 ? RX_NONE : rx_mark(p, r, flags);
}

rx rx_or_top(struct rx_pool *p, size_t base) { return or_list(p, base, 0); }

rx rx_or_n(struct rx_pool *p, const rx *of, size_t n)
{
	size_t base = p->n_scratch;
	for (size_t i = 0; i < n; i++)
		if (!rx_push(p, of[i]))
			return RX_NONE;
	return or_list(p, base, 0);
}

rx rx_or(struct rx_pool *p, rx a, rx b)
{
	if (a == b || b == RX_NONE)
		return a;
	if (a == RX_NONE)
		return b;
	return rx_or_n(p, (rx[]){a, b}, 2);
}

/* ---- intersections ---- */

static size_t merge_sets(struct rx_pool *p, size_t base, size_t n)
{
	struct rx_set s = set_all();
	size_t to = 0;
	bool any = false;
	for (size_t i = 0; i < n; i++) {
		rx a = p->scratch[base + i];
		if (is_op(p, a, OP_SET)) {
			struct rx_set t = set_of(p, a);
			set_and(&s, &t);
			any = true;
		} else if (a != RX_ALL) {
			p->scratch[base + to++] = a;
		}
	}
	if (any)
		p->scratch[base + to++] = rx_bytes(p, &s);
	return to;
}

static rx and_node(struct rx_pool *p, const uint32_t *ids, size_t n)
{
	unsigned all = RX_NULLABLE, any = 0;
	for (size_t i = 0; i < n; i++) {
		all &= flags_of(p, ids[i]);
		any |= flags_of(p, ids[i]) & RX_UTF8;
	}
	return rx_intern(p, (struct rx_node){.op = OP_AND, .flags = (uint8_t)(all | any), .b = (uint32_t)n}, ids,
			 (uint32_t)n);
}

static rx and_flat(struct rx_pool *p, size_t base)
{
	size_t n = merge_sets(p, base, p->n_scratch - base);
	n = sort_unique(p->scratch + base, n);
	const uint32_t *ids = p->scratch + base;
	if (p->fault != 0 || n == 0)
		return p->fault != 0 ? RX_NONE : RX_ALL;
	if (ids[0] == RX_NONE || has_complement(p, ids, n))
		return RX_NONE;
	if (n == 1)
		return ids[0];
	if (ids[0] == RX_EPS) {
		for (size_t i = 0; i < n; i++)
			if (!rx_has(p, ids[i], RX_NULLABLE))
				return RX_NONE;
		return RX_EPS;
	}
	enum rx_life life = rx_and_life(p, base, n);
	if (life == RX_DEAD || p->fault != 0)
		return RX_NONE;
	rx r = and_node(p, p->scratch + base, n);
	return life == RX_ALIVE ? rx_mark(p, r, RX_LIVE) : r;
}

rx rx_and_top(struct rx_pool *p, size_t base)
{
	size_t flat = p->n_scratch;
	for (size_t i = base; i < flat; i++)
		if (!push_flat(p, p->scratch[i], OP_AND))
			return RX_NONE;
	rx r = and_flat(p, flat);
	p->n_scratch = base;
	return r;
}

rx rx_and(struct rx_pool *p, rx a, rx b)
{
	size_t base = p->n_scratch;
	return rx_push(p, a) && rx_push(p, b) ? rx_and_top(p, base) : RX_NONE;
}

rx rx_json(struct rx_pool *p, rx a) { return rx_json_node(p, a, JSON_START, 0); }
bool rx_nullable(struct rx_pool *p, rx a) { return rx_has(p, a, RX_NULLABLE); }
