/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters that a token cannot exhaust. A token of n bytes reads at most n copies, so {l,m} with m of at least n follows
 * the same tokens as {min(l,n),}. States that differ in such counters only share their masks.
 *
 * Only where every operand is sure to have strings (RX_SURE): what is left of an intersection may depend on the bound.
 */
#include "engine/grammar/rx_priv.h"

static bool counts(struct rx_node n, uint32_t least)
{
	return n.op == OP_REPEAT && n.c >= least && (n.c != RX_UNBOUNDED || n.b > least);
}

static rx relax_or(struct rx_pool *p, struct rx_node n, uint32_t bytes)
{
	size_t base = p->n_scratch;
	for (uint32_t i = 0; i < n.b; i++)
		if (!rx_push(p, rx_relax(p, p->words[n.a + i], bytes)))
			return RX_NONE;
	return rx_or_top(p, base);
}

rx rx_relax(struct rx_pool *p, rx a, uint32_t n)
{
	struct rx_node x = *rx_at(p, a);
	if (!rx_has(p, a, RX_SURE))
		return a;
	switch ((enum rx_op)x.op) {
	case OP_CAT: return rx_cat(p, rx_relax(p, x.a, n), x.b);
	case OP_JSON: return rx_mark(p, rx_json_node(p, rx_relax(p, x.a, n), (enum json_phase)x.kind, x.c), RX_SURE);
	case OP_REPEAT: return counts(x, n) ? rx_repeat(p, x.a, x.b < n ? x.b : n, RX_UNBOUNDED) : a;
	case OP_OR: return relax_or(p, x, n);
	default: return a;
	}
}

uint32_t rx_bound(struct rx_pool *p, rx a, uint32_t n)
{
	struct rx_node x = *rx_at(p, a);
	uint32_t least = RX_UNBOUNDED;
	if (!rx_has(p, a, RX_SURE))
		return RX_UNBOUNDED;
	switch ((enum rx_op)x.op) {
	case OP_CAT:
	case OP_JSON: return rx_bound(p, x.a, n);
	case OP_REPEAT: return !counts(x, n) ? RX_UNBOUNDED : x.c == RX_UNBOUNDED ? x.b - 1 : x.c;
	case OP_OR:
		for (uint32_t i = 0; i < x.b; i++) {
			uint32_t one = rx_bound(p, p->words[x.a + i], n);
			least = one < least ? one : least;
		}
		return least;
	default: return RX_UNBOUNDED;
	}
}
