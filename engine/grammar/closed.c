/* SPDX-License-Identifier: Apache-2.0
 *
 * Which classes of text a configuration takes: a search through those it reaches by the class's bytes. If none of them
 * is dead, every text of the class may come there, however long, and a subtree of the vocabulary that has only such
 * texts needs no walk. The search is short: it gives up after a few configurations.
 */
#include "engine/grammar/grammar_priv.h"

enum { MOST = 48 };

/* Inside a character of UTF-8: which bytes may come, and the phase after them. */
struct phase {
	uint8_t from, to, next;
};
enum { BOUNDARY };
static const struct phase phases[] = {
    {0, 0, 0},       /* between characters */
    {0x80, 0xBF, 0}, /* before the last byte */
    {0x80, 0xBF, 1}, /* before the last two */
    {0x80, 0xBF, 2}, /* before the last three */
    {0xA0, 0xBF, 1}, /* after E0 */
    {0x80, 0x9F, 1}, /* after ED */
    {0x90, 0xBF, 2}, /* after F0 */
    {0x80, 0x8F, 2}, /* after F4 */
};
static const struct {
	uint8_t from, to, next;
} leads[] = {{0xC2, 0xDF, 1}, {0xE0, 0xE0, 4}, {0xE1, 0xEC, 2}, {0xED, 0xED, 5},
	     {0xEE, 0xEF, 2}, {0xF0, 0xF0, 6}, {0xF1, 0xF3, 3}, {0xF4, 0xF4, 7}};

struct search {
	struct grammar *g;
	uint32_t config[MOST];
	uint8_t phase[MOST];
	uint32_t n;
};

/* False: dead, a shortage, or too many. */
static bool reach(struct search *s, uint32_t from, uint8_t byte, uint8_t phase)
{
	uint32_t to = auto_step(&s->g->a, from, byte);
	if (to == AUTO_DEAD || to == AUTO_FAIL)
		return false;
	for (uint32_t i = 0; i < s->n; i++)
		if (s->config[i] == to && s->phase[i] == phase)
			return true;
	if (s->n == MOST)
		return false;
	s->config[s->n] = to;
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
	for (size_t i = 0; i < sizeof(leads) / sizeof(*leads); i++)
		if (!reach_range(s, from, (struct phase){leads[i].from, leads[i].to, leads[i].next}))
			return false;
	return true;
}

/* Whether it has every byte that a text of the class may begin with: most fail here. */
static bool may_be(struct automaton *a, uint32_t c, const struct rx_set *bytes)
{
	if (!auto_expand(a, c))
		return false;
	for (unsigned k = 0; k < 4; k++)
		if ((bytes->bits[k] & ~a->configs[c].alive.bits[k]) != 0)
			return false;
	return true;
}

static bool closed(struct grammar *g, uint32_t c, unsigned class)
{
	/* The plain characters of ASCII are those of the first class. */
	const struct rx_set *bytes = &g->vocab->classes[class == CLASS_PLAIN ? 1 : class].bytes;
	struct search s = {.g = g, .config = {c}, .n = 1};
	for (uint32_t i = 0; i < s.n; i++) {
		uint32_t at = s.config[i];
		bool ok;
		if (s.phase[i] != BOUNDARY)
			ok = reach_range(&s, at, phases[s.phase[i]]);
		else
			ok = may_be(&g->a, at, bytes) && reach_set(&s, at, bytes) &&
			     (class != CLASS_PLAIN || reach_leads(&s, at));
		if (!ok)
			return false;
	}
	for (uint32_t i = 0; i < s.n; i++)
		if (s.phase[i] == BOUNDARY)
			g->a.configs[s.config[i]].closed |= (uint8_t)(1u << class);
	return true;
}

unsigned closed_under(struct grammar *g, uint32_t c, unsigned of)
{
	for (unsigned k = 0; k < N_CLASSES; k++) {
		const struct auto_config *conf = &g->a.configs[c];
		unsigned bit = 1u << k;
		if ((of & bit) == 0 || ((conf->closed | conf->open) & bit) != 0)
			continue;
		if (!closed(g, c, k) && auto_fault(&g->a) == 0)
			g->a.configs[c].open |= (uint8_t)bit;
	}
	return g->a.configs[c].closed & of;
}
