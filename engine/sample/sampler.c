/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling: the header describes the steps, their order and sources; logits.c the passes over a row.
 *
 * Biases, penalties and exclusions touch few ids, so they are written into the row and undone afterwards from a list of
 * the old values. The row then is the model's own again, for the log probabilities and for the next choice drawn from
 * it. A greedy draw is thus a single pass.
 *
 * Filters pass on a list of candidates (ids and logits, in the order of ids); the first filter makes it from the row.
 * The draw is a race (draw.h) among what they leave. A draw without filters needs no weights.
 */
#include "engine/sample/sampler.h"

#include <math.h>

#include "base/alloc.h"
#include "engine/sample/draw.h"
#include "engine/sample/logits.h"
#include "kernels/race.h"

/* ---- memory ---- */

int sampler_scratch_reserve(struct sampler_scratch *s, int n_vocab)
{
	if (n_vocab <= s->n_vocab)
		return 0;
	size_t n = (size_t)n_vocab;
	struct sampler_scratch m = {.n_vocab = n_vocab};
	m.l = sl_zalloc_n(n, sizeof *m.l);
	m.w = sl_zalloc_n(n, sizeof *m.w);
	m.key = sl_zalloc_n(n, sizeof *m.key);
	m.ids = sl_zalloc_n(n, sizeof *m.ids);
	m.bounds = sl_zalloc_n(n / LOGITS_BLOCK + 1, sizeof *m.bounds);
	m.items = sl_zalloc_n(n, sizeof *m.items);
	/* Every bias, then every id once by a penalty and once by being excluded. */
	m.undo = sl_zalloc_n(2 * n + PROTO_MAX_LOGIT_BIAS, sizeof *m.undo);
	if (m.l == NULL || m.w == NULL || m.key == NULL || m.ids == NULL || m.bounds == NULL || m.items == NULL ||
	    m.undo == NULL) {
		sampler_scratch_dispose(&m);
		return SL_ENOMEM;
	}
	sampler_scratch_dispose(s);
	*s = m;
	return 0;
}

void sampler_scratch_dispose(struct sampler_scratch *s)
{
	sl_free(s->l);
	sl_free(s->w);
	sl_free(s->key);
	sl_free(s->ids);
	sl_free(s->bounds);
	sl_free(s->items);
	sl_free(s->undo);
	*s = (struct sampler_scratch){0};
}

/* ---- what touches few ids ---- */

static void write_logit(struct sampler_scratch *sc, float *logits, int32_t id, float v)
{
	sc->undo[sc->n_undo++] = (struct proto_id_f32){.id = (uint32_t)id, .v = logits[id]};
	logits[id] = v;
}

static void take_back(struct sampler_scratch *sc, float *logits)
{
	while (sc->n_undo > 0) {
		struct proto_id_f32 u = sc->undo[--sc->n_undo];
		logits[u.id] = u.v;
	}
}

static float penalised(const struct sampler_params *p, const struct sampler_count *c, float l)
{
	uint32_t made = c->made & ~SAMPLER_IN_PROMPT;
	l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
	if (made > 0)
		l -= p->presence_penalty + p->frequency_penalty * (float)made;
	return l;
}

static void exclude(struct sampler_scratch *sc, float *logits, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (logits[ids[i]] > -INFINITY)
			write_logit(sc, logits, ids[i], -INFINITY);
	}
}

/* All tokens but those with a bias. */
static void exclude_others(struct sampler_scratch *sc, const struct sampler_params *p, float *logits, int n_vocab)
{
	uint16_t k = 0;
	for (int32_t id = 0; id < n_vocab; id++) {
		while (k < p->n_bias && p->bias[k].id < (uint32_t)id)
			k++;
		if (k == p->n_bias || p->bias[k].id != (uint32_t)id)
			exclude(sc, logits, &id, 1);
	}
}

/* Biases, penalties, exclusions. Whether anything was changed. */
static bool adjust(const struct sampler_params *p, const struct sampler_state *state, float *logits, int n_vocab,
		   uint64_t index, struct sampler_scratch *sc)
{
	BUG_IF(p->n_bias > PROTO_MAX_LOGIT_BIAS, "sampler: %u biases", p->n_bias);
	sc->n_undo = 0;
	for (uint16_t i = 0; i < p->n_bias; i++)
		write_logit(sc, logits, (int32_t)p->bias[i].id, logits[p->bias[i].id] + p->bias[i].v);
	if (state != NULL && sampler_needs_state(p)) {
		for (uint32_t i = 0; i < state->n_slots; i++) {
			const struct sampler_count *c = &state->slots[i];
			if (c->id >= 0)
				write_logit(sc, logits, c->id, penalised(p, c, logits[c->id]));
		}
	}
	if (index < p->min_tokens)
		exclude(sc, logits, p->stop_ids, p->n_stop_ids);
	if (p->ignore_eos || index < p->min_tokens)
		exclude(sc, logits, p->end_ids, p->n_end_ids);
	if (p->only_biased)
		exclude_others(sc, p, logits, n_vocab);
	return sc->n_undo > 0;
}

/* ---- candidates ---- */

struct candidates {
	const float *l;
	const int32_t *ids; /* NULL: all of the row, and an element's index is its id */
	int n;
	float max, inv_t;
	double mass; /* of the weights, which are in scratch w */
};

/* The permitted tokens of a row, in the order of ids; without those that have no probability. How many. */
static int permitted(const uint32_t *mask, const float *logits, int n_vocab, float *l, int32_t *ids)
{
	int n = 0;
	for (int base = 0; base < n_vocab; base += 32) {
		uint32_t word = mask[base / 32];
		for (; word != 0; word &= word - 1) {
			int id = base + __builtin_ctz(word);
			if (id >= n_vocab || !(logits[id] > -INFINITY))
				continue;
			l[n] = logits[id];
			ids[n++] = id;
		}
	}
	return n;
}

static int32_t id_of(const struct candidates *c, int32_t at) { return c->ids != NULL ? c->ids[at] : at; }

/* The row as candidates: all of it, or what the mask permits. n is 0 if nothing may be drawn. */
static struct candidates candidates_of(const struct sampler_params *p, const float *logits, int n_vocab,
				       struct sampler_scratch *sc)
{
	if (p->mask == NULL)
		return (struct candidates){.l = logits, .n = n_vocab};
	int n = permitted(p->mask, logits, n_vocab, sc->l, sc->ids);
	return (struct candidates){.l = sc->l, .ids = sc->ids, .n = n};
}

/* ---- log probabilities ---- */

/* The n likeliest candidates with their log probabilities, given the logarithm of the row's mass. */
static int tell_top(const struct candidates *c, double log_z, int n, struct sampler_scratch *sc,
		    struct proto_id_f32 *out)
{
	int have = n > 0 ? logits_best(c->l, c->n, n, sc->items) : 0;
	logits_sort(sc->items, have);
	for (int i = 0; i < have; i++) {
		int32_t at = logits_rank_index(sc->items[i].rank);
		out[i] = (struct proto_id_f32){.id = (uint32_t)id_of(c, at), .v = (float)((double)c->l[at] - log_z)};
	}
	return have;
}

static double log_mass(const float *logits, int n_vocab, float max)
{
	return (double)max + log(logits_mass(logits, n_vocab, max, 1, NULL));
}

static void tell(const float *logits, int n_vocab, float max, int32_t id, uint8_t n_top, struct sampler_scratch *sc,
		 struct sampler_choice *out)
{
	BUG_IF(n_top > PROTO_MAX_TOP_LOGPROBS, "sampler: %u top log probabilities", n_top);
	double log_z = log_mass(logits, n_vocab, max);
	out->logprob = (float)((double)logits[id] - log_z);
	const struct candidates row = {.l = logits, .n = n_vocab};
	out->n_top = (uint8_t)tell_top(&row, log_z, n_top, sc, out->top);
}

/* ---- filters ---- */

static void weigh(struct candidates *c, struct sampler_scratch *sc)
{
	c->mass = logits_mass(c->l, c->n, c->max, c->inv_t, sc->w);
}

static void keep(struct candidates *c, const float *key, logits_rank least, struct sampler_scratch *sc)
{
	c->n = logits_keep(key, c->l, c->ids, c->n, least, sc->l, sc->ids);
	c->l = sc->l;
	c->ids = sc->ids;
}

static void keep_top_k(struct candidates *c, int k, struct sampler_scratch *sc)
{
	int n = logits_best(c->l, c->n, k, sc->items);
	logits_rank least = sc->items[0].rank;
	for (int i = 1; i < n; i++)
		least = sc->items[i].rank < least ? sc->items[i].rank : least;
	keep(c, c->l, least, sc);
}

/* What surprises nearly as much as is to be expected: -log p is log(mass) - x with x = (l - max) / t,
 * the entropy its mean, so their difference is that of x and its mean. */
static void keep_typical(struct candidates *c, float share, struct sampler_scratch *sc)
{
	double mean = 0;
	weigh(c, sc);
	for (int i = 0; i < c->n; i++) {
		if (sc->w[i] > 0)
			mean += (double)sc->w[i] * (double)((c->l[i] - c->max) * c->inv_t);
	}
	mean /= c->mass;
	for (int i = 0; i < c->n; i++)
		sc->key[i] = -(float)fabs((double)((c->l[i] - c->max) * c->inv_t) - mean);
	keep(c, sc->key, logits_share(sc->key, sc->w, c->n, c->mass * (double)share, sc->items), sc);
}

static void keep_top_p(struct candidates *c, float share, struct sampler_scratch *sc)
{
	weigh(c, sc);
	keep(c, c->l, logits_share(c->l, sc->w, c->n, c->mass * (double)share, sc->items), sc);
}

/* What is certainly too light goes by its logit first, so that few weights are needed: a weight is off by less than
 * 1e-6 of itself, the exponent by less than 1e-5. Not where weights are so small that they are 0. */
static void keep_near(struct candidates *c, float share, struct sampler_scratch *sc)
{
	double top = logits_max(c->l, c->n), below = (log((double)share) - 1e-3) / (double)c->inv_t;
	double least = top + below;
	if ((least - (double)c->max) * (double)c->inv_t > -80)
		keep(c, c->l, logits_rank_of((float)(least - 1e-5 * (1 + fabs(least))), INT32_MAX), sc);
}

static void keep_min_p(struct candidates *c, float share, struct sampler_scratch *sc)
{
	keep_near(c, share, sc);
	weigh(c, sc);
	float most = logits_max(sc->w, c->n);
	keep(c, sc->w, logits_rank_of(most * share, INT32_MAX), sc);
}

/* c: what may be drawn; its scale is set here. */
static int32_t draw(const struct sampler_params *p, struct candidates c, uint64_t index, struct sampler_scratch *sc)
{
	/* With a temperature so low that its inverse overflows only the largest have any weight. */
	c.inv_t = p->temperature > 1e-30f ? 1 / p->temperature : 1e30f;
	float max = c.max, inv_t = c.inv_t;
	if (p->top_k > 0 && p->top_k < (uint32_t)c.n)
		keep_top_k(&c, (int)p->top_k, sc);
	if (p->typical_p < 1)
		keep_typical(&c, p->typical_p, sc);
	if (p->top_p < 1)
		keep_top_p(&c, p->top_p, sc);
	if (p->min_p > 0)
		keep_min_p(&c, p->min_p, sc);
	const struct draw_scale scale = {max, inv_t};
	uint64_t key = race_key(p->seed, p->choice, index);
	return c.ids != NULL ? draw_listed(c.l, c.ids, c.n, &scale, key) : draw_row(c.l, c.n, &scale, key, sc->bounds);
}

/* ---- the door ---- */

static int32_t likeliest(const struct candidates *c) { return id_of(c, logits_argmax(c->l, c->n)); }

/* Nothing but the largest is wanted: no pass but the one that finds it, which also passes over NaN. */
static int32_t draw_greedy(const struct sampler_params *p, const struct sampler_state *state, float *logits,
			   int n_vocab, uint64_t index, struct sampler_scratch *sc)
{
	adjust(p, state, logits, n_vocab, index, sc);
	struct candidates c = candidates_of(p, logits, n_vocab, sc);
	int32_t id = c.n > 0 ? likeliest(&c) : -1;
	bool usable = id >= 0 && isfinite(logits[id]);
	for (size_t i = 0; i < sc->n_undo; i++)
		usable = usable && sc->undo[i].v != INFINITY;
	take_back(sc, logits);
	return usable ? id : -1;
}

void sampler_draw(const struct sampler_params *p, const struct sampler_state *state, float *logits, int n_vocab,
		  uint64_t index, struct sampler_scratch *sc, struct sampler_choice *out)
{
	BUG_IF(n_vocab <= 0 || n_vocab > sc->n_vocab, "sampler: a vocabulary of %d", n_vocab);
	out->id = -1;
	out->logprob = NAN;
	out->n_top = 0;
	if (p->temperature == 0 && !p->want_logprob) {
		out->id = draw_greedy(p, state, logits, n_vocab, index, sc);
		return;
	}
	float said_max = logits_clean_max(logits, n_vocab);
	if (!isfinite(said_max))
		return;
	bool adjusted = adjust(p, state, logits, n_vocab, index, sc);
	struct candidates c = candidates_of(p, logits, n_vocab, sc);
	c.max = p->mask != NULL ? logits_max(c.l, c.n) : adjusted ? logits_clean_max(logits, n_vocab) : said_max;
	if (isfinite(c.max))
		out->id = p->temperature == 0 ? likeliest(&c) : draw(p, c, index, sc);
	take_back(sc, logits);
	if (out->id >= 0 && p->want_logprob)
		tell(logits, n_vocab, said_max, out->id, p->n_top, sc, out);
}

void sampler_prompt_logprob(float *logits, int n_vocab, int32_t id, uint8_t n_top, struct sampler_scratch *sc,
			    struct sampler_choice *out)
{
	BUG_IF(n_vocab <= 0 || n_vocab > sc->n_vocab, "sampler: a vocabulary of %d", n_vocab);
	BUG_IF(id < 0 || id >= n_vocab, "sampler: the id %d", id);
	float max = logits_clean_max(logits, n_vocab);
	out->id = isfinite(max) ? id : -1;
	out->logprob = NAN;
	out->n_top = 0;
	if (out->id >= 0)
		tell(logits, n_vocab, max, id, n_top, sc, out);
}

int sampler_top(const struct sampler_params *p, const struct sampler_state *state, float *logits, int n_vocab,
		uint64_t index, int k, struct sampler_scratch *sc, struct proto_id_f32 *out)
{
	BUG_IF(n_vocab <= 0 || n_vocab > sc->n_vocab || k < 1, "sampler: %d of %d", k, n_vocab);
	int n = 0;
	if (isfinite(logits_clean_max(logits, n_vocab))) {
		adjust(p, state, logits, n_vocab, index, sc);
		float max = logits_clean_max(logits, n_vocab);
		const struct candidates c = candidates_of(p, logits, n_vocab, sc);
		if (isfinite(max) && c.n > 0)
			n = tell_top(&c, log_mass(logits, n_vocab, max), k < c.n ? k : c.n, sc, out);
		take_back(sc, logits);
	}
	return n;
}
