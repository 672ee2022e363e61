/* SPDX-License-Identifier: Apache-2.0
 *
 * The small model's confidence, token by token, from log-probabilities only: their mean, the minimum of a window, the
 * entropy of the most likely tokens and the margin between the first two. Each is scaled to 0..1 and weighted by the
 * policy. Means are exponentially smoothed, so one odd word does not end a confident answer; the minimum over a short
 * window counters that.
 *
 * The entropy treats all tokens outside the top list as one, so it is a lower bound. Without a top list, its weights go
 * to the other components.
 */
#include <math.h>

#include "cascade/cascade.h"

static bool is_logprob(float v)
{
	return v <= 1e-3f && v >= -1e9f; /* false for NaN; a model's sum may slightly exceed 1 */
}

static bool is_token(const struct casc_token *t)
{
	if (!is_logprob(t->logprob) || t->n_top > CASC_TOP)
		return false;
	for (int i = 0; i < t->n_top; i++)
		if (!is_logprob(t->top[i]) || (i > 0 && t->top[i] > t->top[i - 1]))
			return false;
	return true;
}

/* Entropy of the list and the remaining mass, divided by its maximum: 0 to 1. */
static float entropy_of(const struct casc_token *t)
{
	float sum = 0, left = 1;
	for (int i = 0; i < t->n_top; i++) {
		float p = expf(t->top[i]);
		sum -= p * t->top[i];
		left -= p;
	}
	if (left > 1e-6f)
		sum -= left * logf(left);
	float h = sum / logf((float)t->n_top + 1);
	return h < 0 ? 0 : h > 1 ? 1 : h;
}

static float margin_of(const struct casc_token *t)
{
	float first = expf(t->top[0]), second = t->n_top > 1 ? expf(t->top[1]) : 1 - first;
	float m = first - second;
	return m < 0 ? 0 : m > 1 ? 1 : m;
}

static float smoothed(float old, float now, uint32_t n, float weight)
{
	/* A plain mean while 1/n exceeds the weight. */
	float share = 1.0f / (float)n;
	return old + (share > weight ? share : weight) * (now - old);
}

int casc_conf_add(struct casc_conf *c, const struct casc_conf_policy *p, const struct casc_token *t)
{
	if (!is_token(t))
		return SL_EPROTO;
	float logprob = t->logprob < 0 ? t->logprob : 0;
	BUG_IF(p->window < 1 || p->window > CASC_MAX_WINDOW, "cascade: a window of %d tokens", p->window);
	c->recent[c->n % p->window] = logprob;
	c->n++;
	c->mean = smoothed(c->mean, logprob, c->n, p->smooth);
	if (t->n_top > 0) {
		c->n_with_top++;
		c->entropy = smoothed(c->entropy, entropy_of(t), c->n_with_top, p->smooth);
		c->margin = smoothed(c->margin, margin_of(t), c->n_with_top, p->smooth);
	}
	return 0;
}

float casc_conf_value(const struct casc_conf *c, const struct casc_conf_policy *p)
{
	if (c->n == 0)
		return 0;
	float least = 0, w = p->w_mean + p->w_min;
	for (uint32_t i = 0; i < p->window && i < c->n; i++)
		least = c->recent[i] < least ? c->recent[i] : least;
	float sum = p->w_mean * expf(c->mean) + p->w_min * expf(least);
	if (c->n_with_top > 0) {
		sum += p->w_entropy * (1 - c->entropy) + p->w_margin * c->margin;
		w += p->w_entropy + p->w_margin;
	}
	return w > 0 ? sum / w : 0;
}
