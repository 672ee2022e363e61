/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out whether a configuration is closed under a class of text: whether it accepts every text of the class up to
 * some length. A breadth-first search follows the class's bytes. If it reaches no dead configuration within n bytes,
 * all texts of at most n bytes are accepted, and a subtree of the vocabulary that has only such texts needs no walk.
 * The search gives up after MOST configurations.
 */
#include "engine/grammar/grammar_priv.h"
#include "engine/grammar/phase.h"

enum { MOST = 64, ENDLESS = UINT8_MAX };

struct search {
	struct grammar *g;
	uint32_t config[MOST];
	uint8_t phase[MOST], level[MOST]; /* level: the bytes that lead to it */
	uint32_t n, at, id;
};

static bool found(struct search *s, uint32_t c, uint8_t phase)
{
	struct auto_config *conf = &s->g->a.configs[c];
	if (conf->seen != s->id) {
		conf->seen = s->id;
		conf->seen_in = 0;
	}
	bool before = (conf->seen_in & 1u << phase) != 0;
	conf->seen_in |= (uint8_t)(1u << phase);
	return before;
}

/* False: dead, a shortage, or too many. */
static bool reach(struct search *s, uint32_t from, uint8_t byte, uint8_t phase)
{
	uint32_t to = auto_step(&s->g->a, from, byte);
	if (to == AUTO_DEAD || to == AUTO_FAIL)
		return false;
	if (found(s, to, phase))
		return true;
	if (s->n == MOST)
		return false;
	s->config[s->n] = to;
	s->level[s->n] = (uint8_t)(s->level[s->at] + 1);
	s->phase[s->n++] = phase;
	return true;
}

static bool reach_range(struct search *s, uint32_t from, struct phase by)
{
	uint32_t last = AUTO_DEAD;
	for (unsigned b = by.from; b <= by.to; b++) {
		uint32_t to = auto_step(&s->g->a, from, (uint8_t)b);
		if (to != last && !reach(s, from, (uint8_t)b, by.next))
			return false;
		if (to == AUTO_DEAD)
			return false;
		last = to;
	}
	return true;
}

static bool reach_set(struct search *s, uint32_t from, const struct rx_set *set)
{
	uint32_t last = AUTO_DEAD;
	for (unsigned k = 0; k < 4; k++)
		for (uint64_t w = set->bits[k]; w != 0; w &= w - 1) {
			uint8_t b = (uint8_t)(64 * k + (unsigned)__builtin_ctzll(w));
			uint32_t to = auto_step(&s->g->a, from, b);
			if (to == AUTO_DEAD || (to != last && !reach(s, from, b, BOUNDARY)))
				return false;
			last = to;
		}
	return true;
}

static bool reach_leads(struct search *s, uint32_t from)
{
	for (size_t i = 0; i < N_PHASE_LEADS; i++)
		if (!reach_range(s, from, phase_leads[i]))
			return false;
	return true;
}

/* Whether every byte that can begin a text of the class is accepted. Most configurations fail here. */
static bool may_be(struct automaton *a, uint32_t c, const struct rx_set *bytes)
{
	if (!auto_expand(a, c))
		return false;
	for (unsigned k = 0; k < 4; k++)
		if ((bytes->bits[k] & ~a->configs[c].alive.bits[k]) != 0)
			return false;
	return true;
}

static bool expand(struct search *s, unsigned class)
{
	/* The ASCII bytes of plain characters are those of the first class. */
	const struct rx_set *bytes = &s->g->vocab->classes[class == CLASS_PLAIN ? 1 : class].bytes;
	uint32_t c = s->config[s->at];
	if (s->phase[s->at] != BOUNDARY)
		return reach_range(s, c, phases[s->phase[s->at]]);
	return may_be(&s->g->a, c, bytes) && reach_set(s, c, bytes) && (class != CLASS_PLAIN || reach_leads(s, c));
}

/* The result also holds for the configurations on the way, for texts shorter by their level. */
static void note(struct search *s, unsigned class, uint32_t safe)
{
	for (uint32_t i = 0; i < s->n && (s->level[i] < safe || safe == ENDLESS); i++) {
		uint8_t *has = &s->g->a.configs[s->config[i]].safe[class];
		uint32_t of = safe == ENDLESS ? ENDLESS : safe - s->level[i];
		if (s->phase[i] == BOUNDARY && *has < of)
			*has = (uint8_t)of;
	}
}

/* The length, at most n bytes, up to which all texts are accepted. ENDLESS: any length; n if the search found no
 * limit. */
static uint32_t search(struct grammar *g, uint32_t c, unsigned class, uint8_t phase, uint32_t n)
{
	struct search s = {.g = g, .config = {c}, .phase = {phase}, .n = 1, .id = ++g->a.n_searches};
	uint32_t safe = ENDLESS, all = ENDLESS; /* all: the result if no dead configuration is found */
	found(&s, c, phase);
	for (; s.at < s.n && safe == ENDLESS; s.at++) {
		uint32_t level = s.level[s.at];
		uint32_t known = s.phase[s.at] == BOUNDARY ? g->a.configs[s.config[s.at]].safe[class] : 0;
		if (level >= n)
			safe = n;
		else if (known != ENDLESS && level + known >= n)
			all = n;
		else if (known != ENDLESS && !expand(&s, class))
			safe = level;
	}
	safe = safe < all ? safe : all;
	g->a.work += s.at; /* an interruption here would search again */
	note(&s, class, safe);
	return safe;
}

/* Inside a character, only CLASS_PLAIN is searched, and the result is kept for one phase. */
static bool closed_within(struct grammar *g, uint32_t c, uint8_t phase, uint32_t n)
{
	const struct auto_config *conf = &g->a.configs[c];
	if (conf->phase != phase || (conf->safe_within < n && (conf->open_within == 0 || conf->open_within > n))) {
		uint32_t safe = search(g, c, CLASS_PLAIN, phase, n);
		struct auto_config *to = &g->a.configs[c];
		if (auto_fault(&g->a) != 0)
			return false;
		to->phase = phase;
		to->safe_within = (uint8_t)safe;
		to->open_within = (uint8_t)(safe < n ? safe + 1 : 0);
	}
	return g->a.configs[c].safe_within >= n;
}

bool closed_under(struct grammar *g, uint32_t c, unsigned of, uint8_t phase, uint32_t n)
{
	n = n < ENDLESS ? n : ENDLESS;
	if (phase != BOUNDARY)
		return (of & 1u << CLASS_PLAIN) != 0 && closed_within(g, c, phase, n);
	for (; of != 0; of &= of - 1) {
		unsigned k = (unsigned)__builtin_ctz(of);
		const struct auto_config *conf = &g->a.configs[c];
		if (conf->safe[k] < n && (conf->open[k] == 0 || conf->open[k] > n)) {
			uint32_t safe = search(g, c, k, BOUNDARY, n);
			if (safe < n && auto_fault(&g->a) == 0)
				g->a.configs[c].open[k] = (uint8_t)(safe + 1);
		}
		if (g->a.configs[c].safe[k] >= n)
			return true;
	}
	return false;
}

bool closed_known(const struct auto_config *c, unsigned of, uint8_t phase, uint32_t n)
{
	if (phase != BOUNDARY)
		return (of & 1u << CLASS_PLAIN) != 0 && c->phase == phase && c->safe_within >= n;
	for (; of != 0; of &= of - 1)
		if (c->safe[__builtin_ctz(of)] >= n)
			return true;
	return false;
}
