/* SPDX-License-Identifier: Apache-2.0
 *
 * The search ends when `width` hypotheses have ended and the likeliest live one, if it ended now, would not be among
 * them. Ties are ordered by parent and token, so the result depends only on the numbers.
 */
#include "engine/step/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct candidate {
	double sum;
	struct beam_top top;
	uint8_t parent;
};

void beam_init(struct beam *b, uint32_t width, uint32_t max_tokens, float length_penalty)
{
	BUG_IF(width < 1 || width > BEAM_MAX, "beam: width %u", width);
	*b = (struct beam){.width = width, .max_tokens = max_tokens, .n_live = 1, .length_penalty = length_penalty};
}

static void drop(struct beam_hyp *h)
{
	sl_free(h->tokens);
	sl_free(h->logprobs);
	constrain_at_dispose(&h->at);
	*h = (struct beam_hyp){0};
}

void beam_constrain(struct beam *b, const struct seq_constraint *c)
{
	b->constraint = c;
	constrain_copy(&b->live[0].at, &c->now);
}

void beam_reset(struct beam *b)
{
	for (int i = 0; i < BEAM_MAX; i++) {
		drop(&b->live[i]);
		drop(&b->done[i]);
	}
	b->constraint = NULL;
	b->n_live = 1;
	b->n_done = 0;
}

static double score(const struct beam *b, double sum, uint32_t n)
{
	return sum / pow(n > 0 ? n : 1, (double)b->length_penalty);
}

static int likelier(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;
	if (a->sum != b->sum)
		return a->sum > b->sum ? -1 : 1;
	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	return a->top.id < b->top.id ? -1 : a->top.id > b->top.id;
}

/* is_end: c is an end token. */
static int continue_hyp(const struct beam *b, const struct candidate *c, bool is_end, struct beam_hyp *out)
{
	const struct beam_hyp *h = &b->live[c->parent];
	*out = (struct beam_hyp){.n = h->n + 1, .sum = c->sum};
	out->tokens = sl_zalloc_n(out->n, sizeof *out->tokens);
	out->logprobs = sl_zalloc_n(out->n, sizeof *out->logprobs);
	if (out->tokens == NULL || out->logprobs == NULL) {
		drop(out);
		return SL_ENOMEM;
	}
	if (h->n > 0) {
		memcpy(out->tokens, h->tokens, h->n * sizeof *h->tokens);
		memcpy(out->logprobs, h->logprobs, h->n * sizeof *h->logprobs);
	}
	out->tokens[h->n] = c->top.id;
	out->logprobs[h->n] = c->top.logprob;
	if (b->constraint == NULL)
		return 0;
	constrain_copy(&out->at, &h->at);
	int rc = is_end ? 0 : constrain_take(b->constraint, &out->at, c->top.id);
	if (rc != 0)
		drop(out);
	return rc;
}

/* Inserts h into done, the best first; drops the worst if there are too many. */
static void add_done(struct beam *b, struct beam_hyp h, bool ended)
{
	h.score = score(b, h.sum, h.n);
	h.ended = ended;
	uint32_t at = b->n_done;
	while (at > 0 && b->done[at - 1].score < h.score)
		at--;
	if (at == b->width) {
		drop(&h);
		return;
	}
	if (b->n_done == b->width)
		drop(&b->done[--b->n_done]);
	memmove(&b->done[at + 1], &b->done[at], (b->n_done - at) * sizeof h);
	b->done[at] = h;
	b->n_done++;
}

static bool is_over(const struct beam *b)
{
	if (b->n_live == 0 || b->live[0].n >= b->max_tokens)
		return true;
	if (b->n_done < b->width)
		return false;
	return score(b, b->live[0].sum, b->live[0].n) <= b->done[b->n_done - 1].score;
}

int beam_advance(struct beam *b, const struct beam_top *tops, uint32_t k, bool (*is_end)(const void *ctx, int32_t id),
		 const void *ctx, uint8_t *parents, bool *finished)
{
	struct candidate all[BEAM_MAX * 2 * BEAM_MAX] = {0};
	struct beam_hyp next[BEAM_MAX] = {0}, ends[2 * BEAM_MAX] = {0};
	uint32_t n = 0, n_next = 0, n_ends = 0;
	BUG_IF(k > 2 * BEAM_MAX, "beam: %u continuations", k);
	for (uint32_t i = 0; i < b->n_live; i++) {
		for (uint32_t j = 0; j < k; j++) {
			const struct beam_top *t = &tops[i * k + j];
			if (t->id >= 0 && isfinite(t->logprob))
				all[n++] = (struct candidate){
				    .sum = b->live[i].sum + (double)t->logprob, .top = *t, .parent = (uint8_t)i};
		}
	}
	qsort(all, n, sizeof *all, likelier);
	int rc = 0;
	for (uint32_t i = 0; i < n && n_next < b->width && i < 2 * b->width; i++) {
		const struct candidate *c = &all[i];
		struct beam_hyp h;
		bool ends_it = is_end(ctx, c->top.id);
		rc = continue_hyp(b, c, ends_it, &h);
		if (rc != 0)
			break;
		ends_it = ends_it || constrain_complete(&h.at);
		if (!ends_it) {
			parents[n_next] = c->parent;
			next[n_next++] = h;
		} else if (i < b->width) {
			ends[n_ends++] = h;
		} else {
			drop(&h); /* only ends among the first `width` candidates count */
		}
	}
	if (rc != 0) {
		while (n_next > 0)
			drop(&next[--n_next]);
		while (n_ends > 0)
			drop(&ends[--n_ends]);
		return rc;
	}
	for (uint32_t i = 0; i < b->n_live; i++)
		drop(&b->live[i]);
	memcpy(b->live, next, n_next * sizeof *next);
	b->n_live = n_next;
	for (uint32_t i = 0; i < n_ends; i++)
		add_done(b, ends[i], true);
	*finished = is_over(b);
	if (!*finished)
		return 0;
	/* Live hypotheses end here. */
	for (uint32_t i = 0; i < b->n_live; i++) {
		add_done(b, b->live[i], false);
		b->live[i] = (struct beam_hyp){0};
	}
	b->n_live = 0;
	return 0;
}
