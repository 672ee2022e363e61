/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/grammar_priv.h"

#include <string.h>

static void put(uint32_t *mask, const struct trie *t, const struct trie_node *n)
{
	for (uint32_t i = 0; i < n->n_own; i++) {
		uint32_t id = (uint32_t)t->ids[n->first + i];
		mask[id / 32] |= (uint32_t)1 << (id % 32);
	}
}

/* Depth first over the subtrees of nodes [from, to) with a stack of their ends. */
static int walk(struct grammar *g, const struct trie *t, uint32_t from, uint32_t to, uint32_t config, uint32_t *mask)
{
	struct walk_frame *top = g->walk;
	*top = (struct walk_frame){to, config};
	for (uint32_t i = from; i < to;) {
		while (i == top->end)
			top--;
		const struct trie_node *n = &t->nodes[i];
		uint32_t next = auto_step(&g->a, top->config, n->byte);
		if (next == AUTO_FAIL)
			return auto_fault(&g->a);
		if (next == AUTO_DEAD) {
			i = n->end;
			continue;
		}
		put(mask, t, n);
		i++;
		if (n->end > i)
			*++top = (struct walk_frame){n->end, next};
	}
	return 0;
}

/* How many plain characters c surely takes: then any of its items does. */
static uint32_t cover_of(struct automaton *a, uint32_t c)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < a->configs[c].n; i++) {
		uint32_t one = dfa_cover(&a->dfa, a->items[a->configs[c].from + i].term);
		most = one > most ? one : most;
	}
	return most;
}

int mask_make(struct grammar *g, uint32_t config, uint32_t *mask)
{
	const struct trie *t = &g->vocab->all;
	uint32_t cover = cover_of(&g->a, config);
	for (int i = 0; i < N_SLICES; i++) {
		const struct slice *s = &g->vocab->slices[i];
		if (cover < s->max_chars)
			continue;
		memcpy(mask, s->mask, g->vocab->words * sizeof(*mask));
		return walk(g, &s->rest, 0, s->rest.n_nodes, config, mask);
	}
	memset(mask, 0, g->vocab->words * sizeof(*mask));
	return walk(g, t, 0, t->n_nodes, config, mask);
}
