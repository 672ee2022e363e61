/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the mask of a configuration. It starts from a set of tokens that are certainly permitted: a slice of the
 * vocabulary or the tokens of a class of text, if there is one. It then walks the trie of all other tokens. A subtree
 * is permitted as a whole if all texts up to its height are known to be permitted (closed.c). Masks are cached.
 *
 * Configurations that differ only in counters which short tokens cannot exhaust share the mask of one with unlimited
 * counters (rx_relax.c). The few tokens that might exhaust them are checked byte by byte.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/grammar/grammar_priv.h"
#include "engine/grammar/phase.h"

/* Nodes of a subtree for which it pays to search whether all its tokens are permitted (LARGE), and to check whether the
 * answer is known (SMALL). */
enum { LARGE = 24, SMALL = 4 };
/* NODES of the walk, and TOKENS_OF_NODE times as many tokens, cost as much as WORK_OF_NODES other work. */
enum { NODES = 64, WORK_OF_NODES = 4, TOKENS_OF_NODE = 8 };

void masks_clear(struct masks *m)
{
	for (uint32_t i = 1; i < m->n; i++) {
		sl_free(m->at[i].words);
		sl_free(m->at[i].ids);
	}
	m->n = m->n > 0;
	m->bytes = 0;
}

void masks_dispose(struct masks *m)
{
	masks_clear(m);
	sl_free(m->at);
	sl_free(m->ids);
	*m = (struct masks){0};
}

/* ---- the walk ---- */

static void put(struct masks *m, const struct trie *t, uint32_t from, uint32_t to)
{
	for (; from < to; from++)
		m->ids[m->n_ids++] = t->ids[from];
}

/* Whether all tokens of a subtree are known to be permitted: they belong to a class of which `next` accepts all short
 * texts. */
static bool takes_all(struct grammar *g, const struct trie_node *n, uint32_t size, uint32_t next)
{
	uint32_t height = n->height < MAX_HEIGHT ? n->height : UINT8_MAX;
	if (size < SMALL || n->below == 0)
		return false;
	return size >= LARGE ? closed_under(g, next, n->below, n->phase, height)
			     : closed_known(&g->a.configs[next], n->below, n->phase, height);
}

static int interrupt(struct grammar *g, uint32_t at, const struct walk_frame *top)
{
	g->unfinished.at = at;
	g->unfinished.depth = (uint32_t)(top - g->walk);
	return auto_fault(&g->a);
}

/* Depth first, with a stack of the subtrees' ends. Skips tokens of the class (a bit, or none): the configuration is
 * closed under it. */
static int walk(struct grammar *g)
{
	const struct trie *t = g->unfinished.t;
	const unsigned class = g->unfinished.class;
	struct walk_frame *top = g->walk + g->unfinished.depth;
	unsigned left = NODES;
	for (uint32_t i = g->unfinished.at; i < t->n_nodes;) {
		if (--left == 0) {
			left = NODES;
			if (!auto_spend(&g->a, WORK_OF_NODES))
				return interrupt(g, i, top);
		}
		while (i == top->end)
			top--;
		const struct trie_node *n = &t->nodes[i];
		bool left_out = (n->above & class) != 0;
		if (left_out && (n->below & class) != 0) {
			i = n->end;
			continue;
		}
		uint32_t next = auto_step(&g->a, top->config, n->byte);
		if (next == AUTO_FAIL)
			return interrupt(g, i, top);
		if (next == AUTO_DEAD) {
			i = n->end;
			continue;
		}
		if (takes_all(g, n, n->end - i, next)) {
			const uint32_t end = t->nodes[n->end].first, as_nodes = (end - n->first) / TOKENS_OF_NODE;
			put(&g->masks, t, n->first, end);
			left = left > as_nodes ? left - as_nodes : 1;
			i = n->end;
			continue;
		}
		if (n->end - i >= LARGE && n->below != 0 && auto_fault(&g->a) != 0)
			return interrupt(g, i, top);
		if (!left_out)
			put(&g->masks, t, n->first, n[1].first);
		i++;
		if (n->end > i)
			*++top = (struct walk_frame){n->end, next};
	}
	return 0;
}

/* How many plain characters c certainly accepts: the most of any of its items. */
static uint32_t cover_of(struct automaton *a, uint32_t c)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < a->configs[c].n; i++) {
		uint32_t one = dfa_cover(&a->dfa, a->items[a->configs[c].from + i].term);
		most = one > most ? one : most;
	}
	return most;
}

/* ---- cached masks ---- */

static void set_ids(uint32_t *mask, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mask[(uint32_t)ids[i] / 32] |= (uint32_t)1 << ((uint32_t)ids[i] % 32);
}

static void write_parts(const struct grammar_vocab *v, const uint32_t *slice, const int32_t *ids, uint32_t n,
			uint32_t *mask)
{
	if (slice != NULL)
		memcpy(mask, slice, v->words * sizeof(*mask));
	else
		memset(mask, 0, v->words * sizeof(*mask));
	set_ids(mask, ids, n);
}

static void write_mask(const struct grammar *g, const struct mask *m, uint32_t *mask)
{
	if (m->words != NULL)
		memcpy(mask, m->words, g->vocab->words * sizeof(*mask));
	else
		write_parts(g->vocab, m->slice, m->ids, m->n, mask);
}

static bool masks_room(struct masks *m)
{
	if (m->n < m->cap)
		return true;
	uint32_t cap = 2 * m->cap + 32;
	struct mask *more = sl_realloc_n(m->at, cap, sizeof(*more));
	if (more == NULL)
		return false;
	m->at = more;
	m->cap = cap;
	m->n = m->n == 0 ? 1 : m->n;
	return true;
}

/* Stores the list, or a complete mask if that is smaller. */
static int keep(struct grammar *g, uint32_t config, const uint32_t *slice)
{
	struct masks *m = &g->masks;
	struct mask one = {.slice = slice, .n = m->n_ids};
	size_t words = g->vocab->words;
	bool dense = m->n_ids > words;
	void *mem = sl_alloc((dense ? words : (size_t)m->n_ids) * sizeof(uint32_t) + 1);
	if (mem == NULL || !masks_room(m)) {
		sl_free(mem);
		return SL_ENOMEM;
	}
	if (dense)
		write_parts(g->vocab, slice, m->ids, m->n_ids, one.words = mem);
	else if (m->n_ids > 0)
		memcpy(one.ids = mem, m->ids, m->n_ids * sizeof(*m->ids));
	else
		sl_free(mem);
	m->bytes += sizeof(one) + (dense ? words : m->n_ids) * sizeof(uint32_t);
	m->at[m->n] = one;
	g->a.configs[config].mask = m->n++;
	return 0;
}

static int resume(struct grammar *g)
{
	int rc = walk(g);
	return rc != 0 ? rc : keep(g, g->unfinished.config, g->unfinished.slice);
}

static int by_trie(struct grammar *g, uint32_t config, const struct trie *t, const uint32_t *slice, unsigned class)
{
	g->walk[0] = (struct walk_frame){t->n_nodes, config};
	g->unfinished = (struct unfinished){.config = config, .t = t, .slice = slice, .class = class};
	return resume(g);
}

/* Of the classes under which config is closed, the one with the most tokens; N_CLASSES: none. */
static unsigned largest(struct grammar *g, uint32_t config)
{
	const struct text_class *of = g->vocab->classes;
	unsigned best = N_CLASSES;
	for (unsigned k = 0; k < N_CLASSES; k++)
		if ((best == N_CLASSES || of[k].n > of[best].n) &&
		    closed_under(g, config, 1u << k, BOUNDARY, of[k].longest))
			best = k;
	return best;
}

/* The bound of c's only terminal, a text of any characters; RX_UNBOUNDED: there is none, or it is large. */
static uint32_t plain_bound(struct automaton *a, uint32_t c)
{
	uint32_t most = RX_UNBOUNDED;
	if (a->configs[c].n != 1 || a->configs[c].may_end)
		return RX_UNBOUNDED;
	rx of = a->dfa.states[a->items[a->configs[c].from].term].of;
	return rx_is_plain_bound(a->dfa.pool, of, &most) && most <= MAX_PLAIN ? most : RX_UNBOUNDED;
}

/* The number of characters decides every plain token. */
static int by_length(struct grammar *g, uint32_t config, uint32_t most)
{
	const struct grammar_vocab *v = g->vocab;
	const uint32_t *slice = NULL;
	uint32_t from = 0;
	for (int i = N_SLICES - 1; i >= 0 && v->slices[i].max_chars <= most; i--) {
		slice = v->slices[i].mask;
		from = v->slices[i].max_chars + 1;
	}
	for (uint32_t i = v->plain.from[from]; i < v->plain.from[most + 1]; i++)
		g->masks.ids[g->masks.n_ids++] = v->plain.ids[i];
	return by_trie(g, config, &v->slices[0].rest, slice, 0);
}

static int begin(struct grammar *g, uint32_t config)
{
	const struct grammar_vocab *v = g->vocab;
	if (g->masks.ids == NULL && (g->masks.ids = sl_alloc((v->all.n_ids + 1) * sizeof(int32_t))) == NULL)
		return SL_ENOMEM;
	uint32_t cover = cover_of(&g->a, config);
	g->masks.n_ids = 0;
	uint32_t bound = plain_bound(&g->a, config);
	if (bound != RX_UNBOUNDED)
		return by_length(g, config, bound);
	for (int i = 0; i < N_SLICES; i++)
		if (cover >= v->slices[i].max_chars)
			return by_trie(g, config, &v->slices[i].rest, v->slices[i].mask, 0);
	unsigned class = largest(g, config);
	if (auto_fault(&g->a) != 0)
		return auto_fault(&g->a);
	if (class == CLASS_PLAIN)
		return by_trie(g, config, &v->slices[0].rest, v->slices[0].mask, 0);
	return class == N_CLASSES ? by_trie(g, config, &v->all, NULL, 0)
				  : by_trie(g, config, &v->all, v->classes[class].mask, 1u << class);
}

static int make(struct grammar *g, uint32_t config)
{
	struct unfinished *u = &g->unfinished;
	bool begun = u->config == config && u->t != NULL;
	if (!begun)
		*u = (struct unfinished){.config = config};
	int rc = begun ? resume(g) : begin(g, config);
	if (rc != SL_EAGAIN)
		u->config = 0;
	return rc;
}

/* There is room for one unfinished mask. Whoever needs another one finishes it first. */
static int make_next(struct grammar *g, uint32_t config)
{
	uint32_t before = g->unfinished.config;
	int rc = before != 0 && before != config ? make(g, before) : 0;
	if (rc != 0) /* another attempt need not fail as well */
		return rc == SL_ELIMIT ? SL_EAGAIN : rc;
	return g->a.configs[config].mask == 0 ? make(g, config) : 0;
}

/* ---- relaxed configurations ---- */

static uint32_t bound_of(struct automaton *a, struct auto_config conf, uint32_t n)
{
	uint32_t least = RX_UNBOUNDED;
	for (uint32_t i = 0; i < conf.n; i++) {
		uint32_t one = rx_bound(a->dfa.pool, a->dfa.states[a->items[conf.from + i].term].of, n);
		least = one < least ? one : least;
	}
	return least;
}

static uint32_t relax(struct automaton *a, uint32_t config, uint32_t bytes)
{
	struct auto_config conf = a->configs[config];
	uint32_t few[16], *terms = few;
	if (conf.n > 16)
		return config;
	for (uint32_t i = 0; i < conf.n; i++) {
		rx of = a->dfa.states[a->items[conf.from + i].term].of;
		terms[i] = dfa_state(&a->dfa, rx_relax(a->dfa.pool, of, bytes));
	}
	return auto_with_terms(a, config, terms);
}

/* Finds the relaxed configuration, for the most bytes that every relaxed counter allows. */
static uint32_t relaxed(struct grammar *g, uint32_t config)
{
	struct automaton *a = &g->a;
	struct auto_config conf = a->configs[config];
	if (conf.relaxed != 0)
		return conf.relaxed;
	const struct long_tokens *l = g->vocab->longs;
	uint32_t bound = bound_of(a, conf, l[N_LONG - 1].bytes), to = config;
	uint8_t level = 0;
	while (level < N_LONG - 1 && bound < l[level].bytes)
		level++;
	if (bound != RX_UNBOUNDED)
		to = relax(a, config, l[level].bytes);
	if (to != AUTO_FAIL) {
		a->configs[config].relaxed = to;
		a->configs[config].level = level;
	}
	return to;
}

/* Removes long tokens that the relaxed configuration permits but c does not. */
static int take_out(struct grammar *g, uint32_t c, uint32_t *mask)
{
	const struct long_tokens *l = &g->vocab->longs[g->a.configs[c].level];
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t id = (uint32_t)l->ids[i];
		if ((mask[id / 32] >> (id % 32) & 1) == 0)
			continue;
		uint32_t to = grammar_follow_token(g, c, l->ids[i]);
		if (to == AUTO_FAIL)
			return auto_fault(&g->a);
		if (to == AUTO_DEAD)
			mask[id / 32] &= ~((uint32_t)1 << (id % 32));
	}
	return 0;
}

int mask_write(struct grammar *g, uint32_t config, uint32_t *mask)
{
	uint32_t of = relaxed(g, config);
	if (of == AUTO_FAIL)
		return auto_fault(&g->a);
	int rc = g->a.configs[of].mask == 0 ? make_next(g, of) : 0;
	if (rc != 0)
		return rc;
	write_mask(g, &g->masks.at[g->a.configs[of].mask], mask);
	return of == config ? 0 : take_out(g, config, mask);
}
