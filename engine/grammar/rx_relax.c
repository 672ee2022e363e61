/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters that a token cannot exhaust. A token of n bytes reads at most n copies, so {l,m} with m >= n accepts the
 * same tokens as {min(l,n),}. States that differ only in such counters share their masks.
 *
 * This requires that every operand is certain to have strings (RX_SURE). Otherwise the rest of an intersection may
 * depend on the bound.
 */
#include "engine/grammar/rx_priv.h"

/* An intersection of texts of bounded length with expressions. After any text, the expressions need at most `need` more
 * characters, and can also end after any larger number of them. So an upper bound m matters within n bytes only if m -
 * n or, with a lower bound l, m - l is less than `need`. */
struct spare {
	uint32_t need, least;
	bool known;
};

static struct spare spare_of(struct rx_pool *p, struct rx_node n)
{
	uint32_t l, m;
	struct spare s = {.known = true};
	for (uint32_t i = 0; i < n.b; i++) {
		rx kid = p->words[n.a + i];
		if (rx_any_of_length(p, kid, &l, &m)) {
			s.least = l > s.least ? l : s.least;
			continue;
		}
		/* The minimum that two of them need together is unknown. */
		struct rx_length x = rx_length(p, kid);
		s.known &= x.known && s.need == 0;
		s.need = x.need;
	}
	return s;
}

/* The bound of kid that n bytes cannot reach, minus `need`; RX_UNBOUNDED: it has no such bound. */
static uint32_t spare_bound(const struct rx_pool *p, struct spare s, rx kid, uint32_t n)
{
	const struct rx_node *k = rx_at(p, kid);
	if (!s.known || k->op != OP_REPEAT || k->a != p->any_char || k->c == RX_UNBOUNDED || k->c < s.need)
		return RX_UNBOUNDED;
	uint32_t left = k->c - s.need;
	return left >= n && left >= s.least ? left : RX_UNBOUNDED;
}

static bool counts(const struct rx_pool *p, rx a, uint32_t least)
{
	const struct rx_node *n = rx_at(p, a);
	return n->op == OP_REPEAT && rx_has(p, a, RX_SURE) && rx_has(p, a, RX_UTF8) && n->c >= least &&
	       (n->c != RX_UNBOUNDED || n->b > least);
}

static rx relax_or(struct rx_pool *p, struct rx_node n, uint32_t bytes)
{
	size_t base = p->n_scratch;
	for (uint32_t i = 0; i < n.b; i++)
		if (!rx_push(p, rx_relax(p, p->words[n.a + i], bytes)))
			return RX_NONE;
	return rx_or_top(p, base);
}

static rx relax_and(struct rx_pool *p, struct rx_node n, uint32_t bytes)
{
	struct spare s = spare_of(p, n);
	rx r = RX_ALL;
	for (uint32_t i = 0; i < n.b; i++) {
		rx kid = p->words[n.a + i];
		if (spare_bound(p, s, kid, bytes) != RX_UNBOUNDED)
			kid = rx_repeat(p, p->any_char, rx_at(p, kid)->b, RX_UNBOUNDED);
		r = rx_and(p, r, kid);
	}
	return r;
}

rx rx_relax(struct rx_pool *p, rx a, uint32_t n)
{
	struct rx_node x = *rx_at(p, a);
	unsigned sure = x.flags & RX_SURE;
	switch ((enum rx_op)x.op) {
	case OP_CAT: return rx_cat(p, rx_relax(p, x.a, n), x.b);
	case OP_JSON: return rx_mark(p, rx_json_node(p, rx_relax(p, x.a, n), (enum json_phase)x.kind, x.c), sure);
	case OP_REPEAT: return counts(p, a, n) ? rx_repeat(p, x.a, x.b < n ? x.b : n, RX_UNBOUNDED) : a;
	case OP_OR: return relax_or(p, x, n);
	case OP_AND: return relax_and(p, x, n);
	default: return a;
	}
}

static uint32_t bound_and(struct rx_pool *p, struct rx_node n, uint32_t bytes)
{
	struct spare s = spare_of(p, n);
	uint32_t least = RX_UNBOUNDED;
	for (uint32_t i = 0; i < n.b; i++) {
		uint32_t one = spare_bound(p, s, p->words[n.a + i], bytes);
		least = one < least ? one : least;
	}
	return least;
}

uint32_t rx_bound(struct rx_pool *p, rx a, uint32_t n)
{
	struct rx_node x = *rx_at(p, a);
	uint32_t least = RX_UNBOUNDED;
	switch ((enum rx_op)x.op) {
	case OP_CAT:
	case OP_JSON: return rx_bound(p, x.a, n);
	case OP_REPEAT: return !counts(p, a, n) ? RX_UNBOUNDED : x.c == RX_UNBOUNDED ? x.b - 1 : x.c;
	case OP_AND: return bound_and(p, x, n);
	case OP_OR:
		for (uint32_t i = 0; i < x.b; i++) {
			uint32_t one = rx_bound(p, p->words[x.a + i], n);
			least = one < least ? one : least;
		}
		return least;
	default: return RX_UNBOUNDED;
	}
}
