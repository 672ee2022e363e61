/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: interned nodes, their table, shortages.
 */
#include "engine/grammar/rx_priv.h"

#include <string.h>

#include "base/alloc.h"

enum { FIRST_NODES = 256, FIRST_WORDS = 512, FIRST_TABLE = 1024, MEMO = 2048, MAX_NODES = 1 << 28, WORDS_OF_WORK = 16 };

int rx_pool_create(size_t max_nodes, struct rx_pool **out)
{
	struct rx_pool *p = sl_zalloc(sizeof(*p));
	if (p == NULL)
		return SL_ENOMEM;
	p->max = max_nodes > MAX_NODES || max_nodes == 0 ? MAX_NODES : (uint32_t)max_nodes;
	p->max_work = p->pause = UINT64_MAX;
	p->cap = FIRST_NODES;
	p->cap_words = FIRST_WORDS;
	p->table_mask = FIRST_TABLE - 1;
	p->nodes = sl_zalloc_n(p->cap, sizeof(*p->nodes));
	p->words = sl_zalloc_n(p->cap_words, sizeof(*p->words));
	p->table = sl_zalloc_n(FIRST_TABLE, sizeof(*p->table));
	p->memo = sl_zalloc_n(MEMO, sizeof(*p->memo));
	if (p->nodes == NULL || p->words == NULL || p->table == NULL || p->memo == NULL) {
		rx_pool_destroy(p);
		return SL_ENOMEM;
	}
	p->nodes[RX_NONE] = (struct rx_node){.op = OP_NONE, .flags = RX_SURE | RX_UTF8};
	p->nodes[RX_EPS] = (struct rx_node){.op = OP_EPS, .flags = RX_SURE | RX_UTF8 | RX_NULLABLE};
	p->nodes[RX_ALL] = (struct rx_node){.op = OP_ALL, .flags = RX_SURE | RX_UTF8 | RX_NULLABLE};
	p->n = RX_ALL + 1;
	*out = p;
	return 0;
}

void rx_pool_destroy(struct rx_pool *p)
{
	if (p == NULL)
		return;
	sl_free(p->nodes);
	sl_free(p->words);
	sl_free(p->table);
	sl_free(p->memo);
	sl_free(p->scratch);
	sl_free(p->lengths);
	sl_free(p);
}

void rx_pool_allow(struct rx_pool *p, uint64_t work) { p->max_work = p->work + work; }

int rx_pool_fault(const struct rx_pool *p) { return p->fault; }

rx rx_fail(struct rx_pool *p, int code)
{
	if (p->fault == 0)
		p->fault = code;
	return RX_NONE;
}

rx rx_mark(struct rx_pool *p, rx a, unsigned flags)
{
	p->nodes[a].flags |= (uint8_t)flags;
	return a;
}

bool rx_push(struct rx_pool *p, uint32_t word)
{
	if (p->n_scratch == p->cap_scratch) {
		size_t cap = p->cap_scratch == 0 ? 256 : 2 * p->cap_scratch;
		uint32_t *more = sl_realloc_n(p->scratch, cap, sizeof(*more));
		if (more == NULL) {
			rx_fail(p, SL_ENOMEM);
			return false;
		}
		p->scratch = more;
		p->cap_scratch = cap;
	}
	p->scratch[p->n_scratch++] = word;
	return true;
}

/* ---- the table ---- */

static bool has_words(uint8_t op) { return op == OP_SET || op == OP_OR || op == OP_AND; }

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15u;
	return h ^ (h >> 29);
}

static uint32_t hash_of(const struct rx_node *n, const uint32_t *words)
{
	uint64_t h = mix(n->op, n->kind);
	if (has_words(n->op)) {
		for (uint32_t i = 0; i < n->b; i++)
			h = mix(h, words[i]);
	} else {
		h = mix(mix(h, (uint64_t)n->a << 32 | n->b), n->c);
	}
	return (uint32_t)(h >> 32);
}

static bool equal(const struct rx_pool *p, const struct rx_node *a, const struct rx_node *b, const uint32_t *words)
{
	if (a->op != b->op || a->kind != b->kind || a->b != b->b)
		return false;
	if (has_words(a->op))
		return memcmp(p->words + a->a, words, b->b * sizeof(*words)) == 0;
	return a->a == b->a && a->c == b->c;
}

static void rehash(struct rx_pool *p)
{
	for (uint32_t i = RX_ALL + 1; i < p->n; i++) {
		uint32_t at = hash_of(&p->nodes[i], rx_kids(p, &p->nodes[i])) & p->table_mask;
		while (p->table[at] != 0)
			at = (at + 1) & p->table_mask;
		p->table[at] = i;
	}
}

static bool grow_table(struct rx_pool *p)
{
	uint32_t mask = 2 * p->table_mask + 1;
	uint32_t *t = sl_zalloc_n((size_t)mask + 1, sizeof(*t));
	if (t == NULL)
		return false;
	sl_free(p->table);
	p->table = t;
	p->table_mask = mask;
	rehash(p);
	return true;
}

static bool make_room(struct rx_pool *p, uint32_t n_words)
{
	if (p->n == p->cap) {
		struct rx_node *more = sl_realloc_n(p->nodes, 2 * (size_t)p->cap, sizeof(*more));
		if (more == NULL)
			return false;
		p->nodes = more;
		p->cap *= 2;
	}
	if (p->n_words + n_words > p->cap_words) {
		size_t cap = 2 * p->cap_words + n_words;
		uint32_t *more = sl_realloc_n(p->words, cap, sizeof(*more));
		if (more == NULL)
			return false;
		p->words = more;
		p->cap_words = cap;
	}
	return 2 * p->n <= p->table_mask || grow_table(p);
}

/* Eight words count as one node, so that the limit bounds memory. */
static bool is_full(const struct rx_pool *p, uint32_t n_words)
{
	return p->n + (p->n_words + n_words) / 8 >= p->max || p->n_words + n_words > UINT32_MAX;
}

rx rx_intern(struct rx_pool *p, struct rx_node node, const uint32_t *words, uint32_t n)
{
	if (p->fault != 0)
		return RX_NONE;
	if ((p->work += n / WORDS_OF_WORK) > p->max_work)
		return rx_fail(p, SL_ELIMIT);
	uint32_t at = hash_of(&node, words) & p->table_mask;
	for (; p->table[at] != 0; at = (at + 1) & p->table_mask)
		if (equal(p, &p->nodes[p->table[at]], &node, words))
			return rx_mark(p, p->table[at], node.flags);
	if (is_full(p, n))
		return rx_fail(p, SL_ELIMIT);
	uint32_t mask = p->table_mask;
	if (!make_room(p, n))
		return rx_fail(p, SL_ENOMEM);
	if (mask != p->table_mask)
		for (at = hash_of(&node, words) & p->table_mask; p->table[at] != 0;)
			at = (at + 1) & p->table_mask;
	if (n > 0) {
		node.a = (uint32_t)p->n_words;
		memcpy(p->words + p->n_words, words, n * sizeof(*words));
		p->n_words += n;
	}
	p->table[at] = p->n;
	p->nodes[p->n] = node;
	return p->n++;
}

/* ---- packing ---- */

static bool has_two(uint8_t op) { return op == OP_CAT; }
static bool has_one(uint8_t op) { return op == OP_CAT || op == OP_NOT || op == OP_REPEAT || op == OP_JSON; }

void rx_mark_kept(const struct rx_pool *p, uint32_t *marks)
{
	for (rx i = RX_NONE; i <= RX_ALL; i++)
		marks[i] = 1;
	marks[p->any_char] = marks[p->optional_char] = 1;
	for (uint32_t i = p->n; i-- > 0;) {
		const struct rx_node *n = &p->nodes[i];
		if (marks[i] == 0)
			continue;
		if (has_one(n->op))
			marks[n->a] = 1;
		if (has_two(n->op))
			marks[n->b] = 1;
		for (uint32_t k = 0; (n->op == OP_OR || n->op == OP_AND) && k < n->b; k++)
			marks[rx_kids(p, n)[k]] = 1;
	}
}

void rx_pack(struct rx_pool *p, const uint32_t *ids)
{
	uint32_t to = 0;
	size_t words = 0;
	for (uint32_t i = 0; i < p->n; i++) {
		struct rx_node n = p->nodes[i];
		if (ids[i] == UINT32_MAX)
			continue;
		if (has_words(n.op)) {
			memmove(p->words + words, p->words + n.a, n.b * sizeof(*p->words));
			for (uint32_t k = 0; n.op != OP_SET && k < n.b; k++)
				p->words[words + k] = ids[p->words[words + k]];
			n.a = (uint32_t)words;
			words += n.b;
		}
		n.a = has_one(n.op) ? ids[n.a] : n.a;
		n.b = has_two(n.op) ? ids[n.b] : n.b;
		p->nodes[to++] = n;
	}
	p->n = to;
	p->n_words = words;
	p->any_char = ids[p->any_char];
	p->optional_char = ids[p->optional_char];
	memset(p->memo, 0, MEMO * sizeof(*p->memo));
	memset(p->table, 0, ((size_t)p->table_mask + 1) * sizeof(*p->table));
	sl_free(p->lengths);
	p->lengths = NULL;
	p->n_lengths = 0;
	rehash(p);
}
