/* SPDX-License-Identifier: Apache-2.0
 *
 * How many plain characters, whichever they are, an expression certainly accepts. Tokens of at most that many need no
 * check (vocab.h). The number is derived from the expression's form; one that is too low only costs time.
 *
 * Plain: characters that JSON spells only as themselves: from U+0020, except " and \ and U+007F.
 */
#include "engine/grammar/rx_priv.h"

#include <string.h>

enum { MAX_DEPTH = 300 };

static bool takes_tail(struct rx_pool *p, rx a, unsigned from, unsigned to, int more)
{
	struct rx_set done = {{0}};
	for (unsigned b = from; b <= to; b++) {
		if (set_has(&done, b))
			continue;
		struct rx_set same;
		rx d = rx_derive_set(p, a, (uint8_t)b, &same);
		if (more == 0 ? !rx_nullable(p, d) : !takes_tail(p, d, 0x80, 0xBF, more - 1))
			return false;
		set_or(&done, &same);
	}
	return true;
}

static bool takes_lead(struct rx_pool *p, rx a, unsigned lead, unsigned from, unsigned to, int more)
{
	return takes_tail(p, rx_derive(p, a, (uint8_t)lead), from, to, more);
}

static bool takes_leads(struct rx_pool *p, rx a, unsigned from, unsigned to, int more)
{
	struct rx_set done = {{0}};
	for (unsigned b = from; b <= to; b++) {
		if (set_has(&done, b))
			continue;
		struct rx_set same;
		rx d = rx_derive_set(p, a, (uint8_t)b, &same);
		if (!takes_tail(p, d, 0x80, 0xBF, more))
			return false;
		set_or(&done, &same);
	}
	return true;
}

/* Whether every plain character is in a. */
static bool takes_char(struct rx_pool *p, rx a)
{
	if (a == RX_ALL)
		return true;
	if (rx_has(p, a, RX_CHAR_YES | RX_CHAR_NO))
		return rx_has(p, a, RX_CHAR_YES);
	bool yes = takes_tail(p, a, ' ', '!', 0) && takes_tail(p, a, '#', '[', 0) && takes_tail(p, a, ']', '~', 0) &&
		   takes_leads(p, a, 0xC2, 0xDF, 0) && takes_lead(p, a, 0xE0, 0xA0, 0xBF, 1) &&
		   takes_leads(p, a, 0xE1, 0xEC, 1) && takes_lead(p, a, 0xED, 0x80, 0x9F, 1) &&
		   takes_leads(p, a, 0xEE, 0xEF, 1) && takes_lead(p, a, 0xF0, 0x90, 0xBF, 2) &&
		   takes_leads(p, a, 0xF1, 0xF3, 2) && takes_lead(p, a, 0xF4, 0x80, 0x8F, 2);
	rx_mark(p, a, yes ? RX_CHAR_YES : RX_CHAR_NO);
	return yes;
}

/* Marks expressions found to be finite, so shared operands are examined once. */
static bool is_finite(struct rx_pool *p, rx a, unsigned depth)
{
	if (rx_has(p, a, RX_FINITE))
		return true;
	struct rx_node n = *rx_at(p, a);
	bool yes = n.op == OP_NONE || n.op == OP_EPS || n.op == OP_SET || n.op == OP_CAT || n.op == OP_OR ||
		   (n.op == OP_REPEAT && n.c != RX_UNBOUNDED && is_finite(p, n.a, depth + 1));
	if (depth > MAX_DEPTH)
		return false;
	for (uint32_t i = 0; n.op == OP_OR && yes && i < n.b; i++)
		yes = is_finite(p, p->words[n.a + i], depth + 1);
	for (; n.op == OP_CAT && yes; n = *rx_at(p, n.b))
		yes = is_finite(p, n.a, depth + 1) && (rx_at(p, n.b)->op == OP_CAT || is_finite(p, n.b, depth + 1));
	if (yes)
		rx_mark(p, a, RX_FINITE);
	return yes;
}

static bool bounded(struct rx_pool *p, rx a) { return is_finite(p, a, 0); }

bool rx_is_cofinite(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	if (n.op == OP_NOT)
		return bounded(p, n.a);
	for (uint32_t i = 0; n.op == OP_AND && i < n.b; i++)
		if (rx_at(p, p->words[n.a + i])->op != OP_NOT || !bounded(p, rx_at(p, p->words[n.a + i])->a))
			return false;
	return a == RX_ALL || n.op == OP_AND;
}

/* Repetitions of characters intersected with complements of finite languages. A text within the bounds can be continued
 * until it has enough characters and, without an upper bound, until it is longer than all excluded strings. */
static uint32_t cover_and(struct rx_pool *p, struct rx_node n)
{
	uint32_t least = 0, most = RX_UNBOUNDED;
	bool excludes = false;
	for (uint32_t i = 0; i < n.b; i++) {
		rx a = rx_kids(p, &n)[i];
		struct rx_node k = *rx_at(p, a);
		if (k.op == OP_NOT && bounded(p, k.a)) {
			excludes = true;
		} else if (k.op == OP_REPEAT && takes_char(p, k.a)) {
			least = k.b > least ? k.b : least;
			most = k.c < most ? k.c : most;
		} else {
			return 0;
		}
	}
	return least > most || (excludes && most != RX_UNBOUNDED) ? 0 : most;
}

uint32_t rx_cover(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	uint32_t most = 0;
	switch ((enum rx_op)n.op) {
	case OP_ALL: return RX_UNBOUNDED;
	case OP_CAT: return rx_cover(p, n.a);
	case OP_REPEAT: return takes_char(p, n.a) ? n.c : 0;
	case OP_AND: return cover_and(p, n);
	case OP_NOT: return bounded(p, n.a) ? RX_UNBOUNDED : 0;
	case OP_JSON: return n.kind == JSON_START && rx_at(p, n.a)->op != OP_JSON ? rx_cover(p, n.a) : 0;
	case OP_OR:
		for (uint32_t i = 0; i < n.b; i++) {
			uint32_t one = rx_cover(p, rx_kids(p, &n)[i]);
			most = one > most ? one : most;
		}
		return most;
	default: return 0;
	}
}

static bool is_plain_set(const struct rx_pool *p, const struct rx_node *n)
{
	uint64_t bits[4];
	memcpy(bits, rx_kids(p, n), sizeof(bits));
	bits[0] &= ~(((uint64_t)1 << ' ') - 1) & ~((uint64_t)1 << '"');
	bits[1] &= ~((uint64_t)1 << ('\\' - 64)) & ~((uint64_t)1 << 63);
	return (bits[0] | bits[1] | bits[2] | bits[3]) != 0;
}

bool rx_is_plain_bound(struct rx_pool *p, rx a, uint32_t *most)
{
	struct rx_node n = *rx_at(p, a);
	uint32_t least;
	if (n.op != OP_CAT || rx_at(p, n.a)->op != OP_JSON || rx_at(p, n.a)->kind != JSON_START)
		return false;
	const struct rx_node *after = rx_at(p, rx_at(p, n.b)->op == OP_CAT ? rx_at(p, n.b)->a : n.b);
	rx text = rx_at(p, n.a)->a;
	if (after->op != OP_SET || is_plain_set(p, after) || rx_at(p, text)->op == OP_CAT)
		return false;
	return rx_any_of_length(p, text, &least, most);
}
