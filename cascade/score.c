/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's difficulty: a logistic score of its features. Without a weights file it uses the built-in weights below,
 * set by hand; cascade.cues overrides them one by one. With a file it uses the fitted weights and ignores cascade.cues.
 * Rules on the content add to the score or name a model.
 */
#include <string.h>

#include "base/alloc.h"
#include "cascade/weights.h"

static const float usual_bias = -2.4f;
static const float usual[CASC_N_FEATURES] = {
    [CASC_F_LENGTH] = 1.6f,  [CASC_F_CONTEXT] = 0.4f, [CASC_F_TURNS] = 0.4f,   [CASC_F_QUESTIONS] = 0.2f,
    [CASC_F_ASKS] = -0.3f,   [CASC_F_EXPLAIN] = 1.5f, [CASC_F_ANALYSE] = 3.0f, [CASC_F_COMPARE] = 2.4f,
    [CASC_F_WRITE] = 1.8f,   [CASC_F_CODE] = 2.6f,    [CASC_F_MATHS] = 3.0f,   [CASC_F_REASON] = 2.4f,
    [CASC_F_SIMPLE] = -2.1f, [CASC_F_FENCES] = 2.0f,  [CASC_F_SYMBOLS] = 1.5f, [CASC_F_NUMBERS] = 0.8f,
    [CASC_F_LINES] = 0.8f,   [CASC_F_TOOLS] = 1.0f,   [CASC_F_ASKED] = 0.2f,
};

struct rule {
	char **contains; /* owned */
	size_t n_contains;
	size_t min_bytes, max_bytes;
	char *model; /* owned; NULL: adds its weight only */
	float weight;
};

struct casc_scorer {
	struct casc_weights *weights; /* NULL: bias and dense */
	float bias, dense[CASC_N_FEATURES];
	struct rule *rules;
	size_t n_rules;
};

static int copy_rule(const struct casc_rule_setting *from, struct rule *to)
{
	to->min_bytes = (size_t)from->min_bytes;
	to->max_bytes = from->max_bytes > 0 ? (size_t)from->max_bytes : SIZE_MAX;
	to->weight = (float)from->weight;
	if (from->model[0] != '\0' && (to->model = sl_strdup(from->model)) == NULL)
		return SL_ENOMEM;
	if (from->contains.n == 0)
		return 0;
	to->contains = sl_zalloc_n(from->contains.n, sizeof *to->contains);
	if (to->contains == NULL)
		return SL_ENOMEM;
	to->n_contains = from->contains.n;
	for (size_t i = 0; i < from->contains.n; i++)
		if ((to->contains[i] = sl_strdup(from->contains.items[i])) == NULL)
			return SL_ENOMEM;
	return 0;
}

static int copy_rules(const struct casc_settings *s, struct casc_scorer *to)
{
	if (s->rules.n == 0)
		return 0;
	to->rules = sl_zalloc_n(s->rules.n, sizeof *to->rules);
	if (to->rules == NULL)
		return SL_ENOMEM;
	to->n_rules = s->rules.n;
	for (size_t i = 0; i < s->rules.n; i++) {
		int rc = copy_rule((const struct casc_rule_setting *)s->rules.items + i, &to->rules[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int fill(const struct casc_settings *s, struct casc_scorer *to, struct sl_err *err)
{
	to->bias = usual_bias;
	memcpy(to->dense, usual, sizeof usual);
	for (size_t i = 0; i < s->cues.n; i++) {
		const struct casc_cue_setting *c = (const struct casc_cue_setting *)s->cues.items + i;
		int feature = casc_feature_find(c->name);
		if (feature >= 0)
			to->dense[feature] = (float)c->weight;
		else if (strcmp(c->name, "bias") == 0)
			to->bias = (float)c->weight;
		else
			return sl_errf(err, SL_EINVAL, "cascade.cues: no feature has the name '%.32s'", c->name);
	}
	if (copy_rules(s, to) != 0)
		return sl_errf(err, SL_ENOMEM, "cascade.rules: no memory");
	struct sl_err why = {0};
	int rc = s->weights[0] != '\0' ? casc_weights_read(s->weights, &to->weights, &why) : 0;
	return rc == 0 ? 0 : sl_errf(err, rc, "cascade.weights: %s", why.text);
}

struct casc_weights *casc_weights_usual(uint32_t bits)
{
	struct casc_weights *w = casc_weights_create(bits);
	if (w == NULL)
		return NULL;
	w->bias = usual_bias;
	memcpy(w->dense, usual, sizeof usual);
	return w;
}

const struct casc_reference *casc_scorer_reference(const struct casc_scorer *s)
{
	return s->weights != NULL && s->weights->ref.n > 0 ? &s->weights->ref : NULL;
}

int casc_scorer_create(const struct casc_settings *s, struct casc_scorer **out, struct sl_err *err)
{
	struct casc_scorer *n = sl_zalloc(sizeof *n);
	if (n == NULL)
		return sl_errf(err, SL_ENOMEM, "cascade: no memory");
	int rc = fill(s, n, err);
	if (rc != 0) {
		casc_scorer_destroy(n);
		return rc;
	}
	*out = n;
	return 0;
}

void casc_scorer_destroy(struct casc_scorer *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->n_rules; i++) {
		for (size_t k = 0; k < s->rules[i].n_contains; k++)
			sl_free(s->rules[i].contains[k]);
		sl_free(s->rules[i].contains);
		sl_free(s->rules[i].model);
	}
	sl_free(s->rules);
	casc_weights_destroy(s->weights);
	sl_free(s);
}

/* ---- rules ---- */

/* Rules read no further, to bound the time. */
enum { RULE_WINDOW = 65536 };

static uint8_t lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; }

static bool begins(const uint8_t *text, const char *with, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (lower(text[i]) != lower((uint8_t)with[i]))
			return false;
	return true;
}

static bool holds(const char *text, size_t n, const char *what)
{
	size_t len = strlen(what);
	uint8_t first = lower((uint8_t)what[0]);
	const uint8_t *t = (const uint8_t *)text;
	for (size_t i = 0; i + len <= n; i++)
		if (lower(t[i]) == first && begins(t + i, what, len))
			return true;
	return false;
}

static bool applies(const struct rule *r, const char *text, size_t n)
{
	if (n < r->min_bytes || n > r->max_bytes)
		return false;
	size_t seen = n < RULE_WINDOW ? n : RULE_WINDOW;
	for (size_t i = 0; i < r->n_contains; i++)
		if (holds(text, seen, r->contains[i]))
			return true;
	return r->n_contains == 0;
}

void casc_score(const struct casc_scorer *s, const struct casc_ask *ask, struct casc_score *out)
{
	struct casc_features f;
	const struct casc_message *last = NULL;
	float logit = s->bias;
	casc_features(ask, &f);
	for (int i = 0; i < CASC_N_FEATURES; i++)
		logit += s->dense[i] * f.dense[i];
	if (s->weights != NULL)
		logit = casc_weights_logit(s->weights, f.dense, f.grams, f.n_grams);
	*out = (struct casc_score){.rule = -1, .plain = casc_sigmoid(logit)};
	for (size_t i = 0; i < ask->n_messages; i++)
		if (ask->messages[i].role == CASC_USER)
			last = &ask->messages[i];
	for (size_t i = 0; i < s->n_rules && last != NULL; i++) {
		if (!applies(&s->rules[i], last->text, last->n))
			continue;
		logit += s->rules[i].weight;
		if (out->model == NULL && s->rules[i].model != NULL) {
			out->model = s->rules[i].model;
			out->rule = (int)i;
		}
	}
	out->score = casc_sigmoid(logit);
}
