/* SPDX-License-Identifier: Apache-2.0
 *
 * How many characters an expression's strings have. A schema's pattern with minLength and maxLength is the intersection
 * of a language with all texts of some lengths. The lengths decide whether it is empty, without a search through as
 * many states as the text may have characters.
 *
 * A byte that continues a character counts as none.
 */
#include "engine/grammar/rx_priv.h"

#include <string.h>

#include "base/alloc.h"

enum { MAX_DEPTH = 400, MAX_KIDS = 64 };
#define ENDLESS UINT32_MAX

static uint32_t plus(uint32_t a, uint32_t b) { return a > ENDLESS - b ? ENDLESS : a + b; }
static uint32_t times(uint32_t a, uint32_t b)
{
	uint64_t r = (uint64_t)a * b;
	return a == 0 || b == 0 ? 0 : a == ENDLESS || b == ENDLESS || r > ENDLESS ? ENDLESS : (uint32_t)r;
}

/* 0 or 1; -1: mixed, some bytes continue a character and some begin one. */
static int chars_of_set(const struct rx_pool *p, const struct rx_node *n)
{
	uint64_t bits[4];
	memcpy(bits, rx_kids(p, n), sizeof(bits));
	bool begins = (bits[0] | bits[1] | bits[3]) != 0, continues = bits[2] != 0;
	return begins && continues ? -1 : begins;
}

static struct rx_length measure(struct rx_pool *p, rx a, unsigned depth);

static struct rx_length of_cat(struct rx_pool *p, rx a, unsigned depth)
{
	struct rx_length r = {.known = true, .dense = true};
	/* need: of a text that ends within the first operand, or within the rest. */
	struct rx_length rest = measure(p, p->nodes[a].b, depth), first = measure(p, p->nodes[a].a, depth);
	r.least = plus(first.least, rest.least);
	r.most = plus(first.most, rest.most);
	r.need = plus(first.need, rest.least) > rest.need ? plus(first.need, rest.least) : rest.need;
	r.dense = first.dense && rest.dense;
	r.known = first.known && rest.known;
	return r;
}

static struct rx_length of_or(struct rx_pool *p, struct rx_node n, unsigned depth)
{
	struct rx_length r = {.known = true, .dense = true, .least = ENDLESS}, of[MAX_KIDS] = {0};
	if (n.b > MAX_KIDS)
		return (struct rx_length){0};
	for (uint32_t i = 0; i < n.b; i++) {
		struct rx_length one = measure(p, p->words[n.a + i], depth);
		uint32_t at = i;
		for (; at > 0 && of[at - 1].least > one.least; at--)
			of[at] = of[at - 1];
		of[at] = one;
	}
	for (uint32_t i = 0; i < n.b; i++) {
		r.known &= of[i].known;
		r.dense &= of[i].dense && (i == 0 || of[i].least <= plus(r.most, 1));
		r.least = of[i].least < r.least ? of[i].least : r.least;
		r.most = of[i].most > r.most ? of[i].most : r.most;
		r.need = of[i].need > r.need ? of[i].need : r.need;
	}
	return r;
}

/* If the lengths of k copies and of k + 1 adjoin for the smallest k, they adjoin for every larger one. */
static struct rx_length of_repeat(struct rx_pool *p, struct rx_node n, unsigned depth)
{
	struct rx_length one = measure(p, n.a, depth), r = one;
	r.least = times(n.b, one.least);
	r.most = times(n.c, one.most);
	r.need = plus(one.need, times(n.b > 1 ? n.b - 1 : 0, one.least));
	r.dense = one.dense &&
		  (one.least <= 1 || n.b == n.c || plus(times(n.b, one.most), 1) >= times(plus(n.b, 1), one.least));
	return r;
}

static struct rx_length compute(struct rx_pool *p, rx a, unsigned depth)
{
	struct rx_node n = *rx_at(p, a);
	int chars;
	switch ((enum rx_op)n.op) {
	case OP_EPS: return (struct rx_length){.known = true, .dense = true};
	case OP_ALL: return (struct rx_length){.known = true, .dense = true, .most = ENDLESS};
	case OP_SET:
		chars = chars_of_set(p, &n);
		return (struct rx_length){.known = chars >= 0,
					  .dense = true,
					  .least = (uint32_t)(chars > 0),
					  .most = (uint32_t)(chars > 0),
					  .need = (uint32_t)(chars > 0)};
	case OP_CAT: return of_cat(p, a, depth + 1);
	case OP_OR: return of_or(p, n, depth + 1);
	case OP_REPEAT: return of_repeat(p, n, depth + 1);
	default: return (struct rx_length){0};
	}
}

static struct rx_length measure(struct rx_pool *p, rx a, unsigned depth)
{
	if (depth > MAX_DEPTH || !rx_has(p, a, RX_SURE) || p->fault != 0)
		return (struct rx_length){0};
	if (a >= p->n_lengths) {
		struct rx_length *more = sl_realloc_n(p->lengths, p->cap, sizeof(*more));
		if (more == NULL)
			return (struct rx_length){0};
		memset(more + p->n_lengths, 0, (p->cap - p->n_lengths) * sizeof(*more));
		p->lengths = more;
		p->n_lengths = p->cap;
	}
	if (!p->lengths[a].seen) {
		struct rx_length r = compute(p, a, depth);
		r.seen = true;
		if (r.known || depth == 0)
			p->lengths[a] = r;
		return r;
	}
	return p->lengths[a];
}

struct rx_length rx_length(struct rx_pool *p, rx a) { return measure(p, a, 0); }

bool rx_any_of_length(struct rx_pool *p, rx a, uint32_t *least, uint32_t *most)
{
	/* Inside a character, its remaining bytes come first. */
	while (p->nodes[a].op == OP_CAT && p->nodes[p->nodes[a].a].op == OP_SET &&
	       chars_of_set(p, rx_at(p, p->nodes[a].a)) == 0)
		a = p->nodes[a].b;
	struct rx_node n = *rx_at(p, a);
	*least = *most = 0;
	if (a == RX_EPS || (n.op == OP_SET && chars_of_set(p, &n) == 0))
		return true;
	if (p->any_char == RX_NONE)
		return false;
	*least = *most = 1;
	if (a == p->any_char)
		return true;
	if (n.op == OP_REPEAT && n.a == p->any_char) {
		*least = n.b;
		*most = n.c;
		return true;
	}
	*least = 0;
	if (p->optional_char == RX_NONE)
		p->optional_char = rx_or(p, RX_EPS, p->any_char);
	return p->fault == 0 && a == p->optional_char;
}

enum rx_life rx_and_life(struct rx_pool *p, size_t base, size_t n)
{
	uint32_t least = 0, most = ENDLESS, l, m;
	rx other = RX_NONE;
	for (size_t i = 0; i < n; i++) {
		/* The construction uses the scratch stack above this list, which may move. */
		rx kid = p->scratch[base + i];
		if (rx_any_of_length(p, kid, &l, &m)) {
			least = l > least ? l : least;
			most = m < most ? m : most;
		} else if (other == RX_NONE) {
			other = kid;
		} else {
			return RX_LIFE_UNKNOWN;
		}
	}
	if (least > most)
		return RX_DEAD;
	if (other == RX_NONE)
		return RX_ALIVE;
	struct rx_length x = rx_length(p, other);
	if (!x.known)
		return RX_LIFE_UNKNOWN;
	if (x.least > most || x.most < least)
		return RX_DEAD;
	return x.dense || x.least >= least ? RX_ALIVE : RX_LIFE_UNKNOWN;
}
