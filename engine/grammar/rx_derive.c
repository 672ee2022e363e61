/* SPDX-License-Identifier: Apache-2.0
 *
 * Derivatives. Each comes with a set of bytes that certainly have the same derivative, so a state's 256 transitions
 * take one derivative per class of bytes.
 *
 * Recursion is as deep as operators nest (a CAT's spine is a loop). A memo avoids deriving shared operands repeatedly;
 * it may lose entries, which only costs time.
 */
#include "engine/grammar/rx_priv.h"

#include <string.h>

enum { MEMO_MASK = 2047, MAX_DEPTH = 1000 };

static struct rx_memo *memo_of(struct rx_pool *p, rx a, uint8_t byte)
{
	return &p->memo[((a * 0x9E3779B1u) >> 16 ^ byte * 0x85u ^ a) & MEMO_MASK];
}

static rx derive_bytes(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	struct rx_set s;
	memcpy(s.bits, rx_kids(p, rx_at(p, a)), sizeof(s.bits));
	bool has = set_has(&s, byte);
	if (!has)
		set_not(&s);
	*set = s;
	return has ? RX_EPS : RX_NONE;
}

/* d(ab) = d(a) b; if a is nullable, the union of that and d(b). Loops along the spine. */
static rx derive_cat(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	size_t base = p->n_scratch;
	*set = set_all();
	for (bool more = true; more;) {
		struct rx_node n = *rx_at(p, a);
		bool cat = n.op == OP_CAT;
		struct rx_set one;
		rx d = rx_derive_set(p, cat ? n.a : a, byte, &one);
		set_and(set, &one);
		if (d != RX_NONE && !rx_push(p, cat ? rx_cat(p, d, n.b) : d))
			return RX_NONE;
		more = cat && rx_has(p, n.a, RX_NULLABLE);
		a = n.b;
	}
	size_t n = p->n_scratch - base;
	if (n <= 1) {
		p->n_scratch = base;
		return n == 0 ? RX_NONE : p->scratch[base];
	}
	rx r = RX_NONE;
	while (p->n_scratch > base)
		r = rx_or(p, p->scratch[--p->n_scratch], r);
	return r;
}

static rx derive_or(struct rx_pool *p, struct rx_node n, uint8_t byte, struct rx_set *set)
{
	size_t base = p->n_scratch;
	*set = set_all();
	for (uint32_t i = 0; i < n.b; i++) {
		struct rx_set one;
		rx d = rx_derive_set(p, p->words[n.a + i], byte, &one);
		set_and(set, &one);
		if (d != RX_NONE && !rx_push(p, d))
			return RX_NONE;
	}
	size_t found = p->n_scratch - base;
	if (found == 0)
		return RX_NONE;
	if (found == 1)
		return p->scratch[p->n_scratch = base];
	return rx_or_top(p, base);
}

static rx derive_and(struct rx_pool *p, struct rx_node n, uint8_t byte, struct rx_set *set)
{
	size_t base = p->n_scratch;
	*set = set_all();
	for (uint32_t i = 0; i < n.b; i++) {
		struct rx_set one;
		rx d = rx_derive_set(p, p->words[n.a + i], byte, &one);
		set_and(set, &one);
		if (d == RX_NONE) {
			/* The result, whatever the other operands become. */
			*set = one;
			p->n_scratch = base;
			return RX_NONE;
		}
		if (!rx_push(p, d))
			return RX_NONE;
	}
	return rx_and_top(p, base);
}

static rx derive_repeat(struct rx_pool *p, struct rx_node n, uint8_t byte, struct rx_set *set)
{
	rx d = rx_derive_set(p, n.a, byte, set);
	if (d == RX_NONE)
		return RX_NONE;
	uint32_t least = n.b == 0 ? 0 : n.b - 1, most = n.c == RX_UNBOUNDED ? RX_UNBOUNDED : n.c - 1;
	return rx_cat(p, d, rx_repeat(p, n.a, least, most));
}

static rx derive_node(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	struct rx_node n = *rx_at(p, a);
	switch ((enum rx_op)n.op) {
	case OP_CAT: return derive_cat(p, a, byte, set);
	case OP_OR: return derive_or(p, n, byte, set);
	case OP_AND: return derive_and(p, n, byte, set);
	case OP_NOT: return rx_not(p, rx_derive_set(p, n.a, byte, set));
	case OP_REPEAT: return derive_repeat(p, n, byte, set);
	case OP_JSON: return rx_json_derive(p, a, byte, set);
	default: return RX_NONE;
	}
}

rx rx_derive_set(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	*set = set_all();
	if (p->fault != 0)
		return RX_NONE;
	if (a <= RX_ALL)
		return a == RX_ALL ? RX_ALL : RX_NONE;
	if (p->nodes[a].op == OP_SET)
		return derive_bytes(p, a, byte, set);
	struct rx_memo *m = memo_of(p, a, byte);
	if (m->of == a && set_has(&m->set, byte)) {
		*set = m->set;
		return m->is;
	}
	if (p->depth >= MAX_DEPTH || ++p->work > p->max_work)
		return rx_fail(p, SL_ELIMIT);
	p->depth++;
	rx r = derive_node(p, a, byte, set);
	p->depth--;
	if (p->fault != 0)
		return RX_NONE;
	if (rx_has(p, a, RX_SURE))
		rx_mark(p, r, RX_SURE);
	*m = (struct rx_memo){.of = a, .is = r, .byte = byte, .set = *set};
	return r;
}

rx rx_derive(struct rx_pool *p, rx a, uint8_t byte)
{
	struct rx_set set;
	return rx_derive_set(p, a, byte, &set);
}
