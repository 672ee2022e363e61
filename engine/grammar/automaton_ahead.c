/* SPDX-License-Identifier: Apache-2.0
 *
 * Terminals that intersect several languages (a oneOf of patterns) are slow to expand, because each derivative takes
 * one of every operand. Where the first mask needs hundreds of their states, that would take milliseconds. So their
 * nearest states are expanded when the constraint is compiled, which delays no other request. All other states are
 * expanded on demand.
 */
#include "engine/grammar/automaton.h"

enum {
	MOST_WORK = 1 << 16, /* derivatives */
	HEAVY = 6,           /* operands of intersections that make a terminal worth it */
	LOOK = 128,          /* nodes of a terminal that are counted */
};

struct ahead {
	struct automaton *a;
	uint32_t states[AUTO_AHEAD]; /* breadth first */
	uint32_t n, at;
};

/* The number of operands of a's intersections. */
static uint32_t weight(const struct rx_pool *p, rx a, uint32_t *left)
{
	uint32_t sum = 0;
	for (;; a = p->nodes[a].b) {
		if (*left == 0 || rx_has(p, a, RX_SURE))
			return sum;
		--*left;
		if (p->nodes[a].op != OP_CAT)
			break;
		sum += weight(p, p->nodes[a].a, left);
	}
	const struct rx_node *n = rx_at(p, a);
	if (n->op == OP_NOT || n->op == OP_REPEAT || n->op == OP_JSON)
		return sum + weight(p, n->a, left);
	if (n->op != OP_AND && n->op != OP_OR)
		return sum;
	sum += n->op == OP_AND ? n->b : 0;
	for (uint32_t i = 0; i < n->b; i++)
		sum += weight(p, rx_kids(p, n)[i], left);
	return sum;
}

static bool is_heavy(const struct automaton *a, uint32_t s)
{
	uint32_t left = LOOK;
	return weight(a->dfa.pool, a->dfa.states[s].of, &left) >= HEAVY;
}

/* Escapes allow many spellings, which few tokens use. */
static bool is_escape(const struct rx_pool *p, rx a)
{
	while (p->nodes[a].op == OP_CAT)
		a = p->nodes[a].a;
	return p->nodes[a].op == OP_JSON && p->nodes[a].kind >= JSON_ESC;
}

static void add(struct ahead *q, uint32_t s)
{
	struct dfa_state *st = &q->a->dfa.states[s];
	if (st->queued || q->n == AUTO_AHEAD || is_escape(q->a->dfa.pool, st->of))
		return;
	st->queued = true;
	q->states[q->n++] = s;
}

static void add_next(struct ahead *q, uint32_t s)
{
	const uint32_t *next = q->a->dfa.states[s].next;
	for (unsigned b = 0; b < 256; b++)
		if (next[b] != DFA_DEAD && (b == 0 || next[b] != next[b - 1]))
			add(q, next[b]);
}

static void add_terminals(struct ahead *q)
{
	const struct gram *g = &q->a->gram;
	for (uint32_t i = 0; i < g->n_pos; i++)
		if ((g->pos[i].sym & GRAM_RULE) == 0 && is_heavy(q->a, g->pos[i].sym))
			add(q, g->pos[i].sym);
}

uint32_t auto_ahead(struct automaton *a)
{
	struct rx_pool *p = a->dfa.pool;
	struct ahead q = {.a = a};
	uint64_t before = p->max_work;
	add_terminals(&q);
	if (p->work + MOST_WORK < before)
		p->max_work = p->work + MOST_WORK;
	for (; q.at < q.n && auto_bytes(a) < a->max_bytes / 4 && dfa_expand(&a->dfa, q.states[q.at]); q.at++)
		add_next(&q, q.states[q.at]);
	p->max_work = before;
	p->fault = 0;
	p->n_scratch = 0;
	p->depth = 0;
	return q.at;
}
