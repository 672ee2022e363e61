/* SPDX-License-Identifier: Apache-2.0
 *
 * Drops what can be computed again: all transitions, and the configurations, stacks, terminal states and expressions
 * that no sequence's state needs. Objects refer only to older objects, which have lower indices, and packing keeps the
 * order. So one upward pass renumbers everything. Configurations in use keep their index.
 */
#include "engine/grammar/automaton.h"

#include <string.h>

#include "base/alloc.h"

/* Marks of kept objects, later their new indices. */
struct sweep {
	uint32_t *sets, *terms, *nodes;
};

static void free_sweep(struct sweep *s)
{
	sl_free(s->sets);
	sl_free(s->terms);
	sl_free(s->nodes);
}

/* ---- marks ---- */

static void mark_configs(struct automaton *a, struct sweep *s)
{
	for (uint32_t c = 1; c < a->n_configs; c++) {
		const struct auto_config *conf = &a->configs[c];
		for (uint32_t i = 0; conf->refs > 0 && i < conf->n; i++) {
			s->sets[a->items[conf->from + i].below] = 1;
			s->terms[a->items[conf->from + i].term] = 1;
		}
	}
}

static void mark_sets(struct automaton *a, struct sweep *s)
{
	s->sets[STACKS_NONE] = s->sets[STACKS_BOTTOM] = 1;
	for (uint32_t i = a->stacks.n_sets; i-- > 0;) {
		const struct stack_set *set = &a->stacks.sets[i];
		for (uint32_t k = 0; s->sets[i] != 0 && k < set->n; k++)
			s->sets[a->stacks.frames[set->from + k].below] = 1;
	}
}

static void mark_terms(struct automaton *a, struct sweep *s)
{
	s->terms[DFA_DEAD] = 1;
	for (uint32_t i = 0; i < a->gram.n_pos; i++)
		if ((a->gram.pos[i].sym & GRAM_RULE) == 0)
			s->terms[a->gram.pos[i].sym] = 1;
	for (uint32_t i = 0; i < a->dfa.n; i++)
		if (s->terms[i] != 0)
			s->nodes[a->dfa.states[i].of] = 1;
}

/* ---- packing: marks become new indices ---- */

static uint32_t number(uint32_t *marks, uint32_t n)
{
	uint32_t next = 0;
	for (uint32_t i = 0; i < n; i++)
		marks[i] = marks[i] != 0 ? next++ : UINT32_MAX;
	return next;
}

static void pack_terms(struct automaton *a, const struct sweep *s)
{
	struct rx_dfa *d = &a->dfa;
	uint32_t n = 0;
	d->partial = DFA_DEAD; /* states change their numbers */
	sl_free(d->partial_next);
	d->partial_next = NULL;
	for (uint32_t i = 0; i < d->n; i++) {
		struct dfa_state st = d->states[i];
		sl_free(st.next);
		if (s->terms[i] == UINT32_MAX)
			continue;
		d->states[n++] = (struct dfa_state){.of = s->nodes[st.of],
						    .nullable = st.nullable,
						    .life = st.life,
						    .covered = st.covered,
						    .cover = st.cover};
	}
	d->n = n;
	d->bytes = 0;
	memset(d->of_rx, 0, d->n_of_rx * sizeof(*d->of_rx));
	for (uint32_t i = 1; i < n; i++)
		d->of_rx[d->states[i].of] = i;
	for (uint32_t i = 0; i < a->gram.n_pos; i++)
		if ((a->gram.pos[i].sym & GRAM_RULE) == 0)
			a->gram.pos[i].sym = s->terms[a->gram.pos[i].sym];
}

/* Moves the items of kept configurations to the front; the other indices become free. */
static void pack_configs(struct automaton *a, const struct sweep *s)
{
	size_t n = 0;
	a->free_configs = 0;
	a->n_live = 0;
	for (uint32_t c = 1; c < a->n_configs; c++) {
		struct auto_config *conf = &a->configs[c];
		sl_free(conf->next);
		conf->next = NULL;
		conf->mask = conf->relaxed = 0;
		if (conf->refs == 0) {
			*conf = (struct auto_config){.from = a->free_configs, .is_free = true};
			a->free_configs = c;
			continue;
		}
		a->n_live++;
	}
	/* By their items, because reused indices have no such order. */
	struct auto_item *to = a->packed;
	for (uint32_t c = 1; c < a->n_configs; c++) {
		struct auto_config *conf = &a->configs[c];
		for (uint32_t i = 0; !conf->is_free && i < conf->n; i++) {
			struct auto_item it = a->items[conf->from + i];
			it.term = s->terms[it.term];
			it.below = s->sets[it.below];
			to[n + i] = it;
		}
		if (!conf->is_free) {
			conf->from = (uint32_t)n;
			n += conf->n;
		}
	}
	sl_free(a->items);
	a->items = to;
	a->packed = NULL;
	a->n_items = n;
	a->bytes = 0;
}

static size_t kept_items(const struct automaton *a)
{
	size_t n = 0;
	for (uint32_t c = 1; c < a->n_configs; c++)
		n += a->configs[c].refs > 0 ? a->configs[c].n : 0;
	return n;
}

int auto_collect(struct automaton *a)
{
	struct sweep s = {.sets = sl_zalloc_n(a->stacks.n_sets, sizeof(uint32_t)),
			  .terms = sl_zalloc_n(a->dfa.n, sizeof(uint32_t)),
			  .nodes = sl_zalloc_n(a->dfa.pool->n, sizeof(uint32_t))};
	size_t items = kept_items(a);
	a->configs[a->start].refs++;
	items += a->configs[a->start].refs == 1 ? a->configs[a->start].n : 0;
	a->packed = sl_zalloc_n(items + 1, sizeof(*a->packed));
	bool ok = s.sets && s.terms && s.nodes && a->packed;
	if (ok) {
		mark_configs(a, &s);
		mark_sets(a, &s);
		mark_terms(a, &s);
		rx_mark_kept(a->dfa.pool, s.nodes);
		number(s.sets, a->stacks.n_sets);
		number(s.terms, a->dfa.n);
		number(s.nodes, a->dfa.pool->n);
		rx_pack(a->dfa.pool, s.nodes);
		stacks_pack(&a->stacks, s.sets);
		pack_terms(a, &s);
		pack_configs(a, &s);
		a->cap_items = items + 1;
		auto_rehash(a);
	} else {
		sl_free(a->packed);
		a->packed = NULL;
	}
	a->configs[a->start].refs--;
	free_sweep(&s);
	return ok ? 0 : SL_ENOMEM;
}
