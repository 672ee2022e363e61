/* SPDX-License-Identifier: Apache-2.0
 *
 * Both models compute the same few rows in turn, so that only the logits of these exist at a time.
 */
#include "cmd/model/compare_text.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/percentile.h"
#include "engine/token/tokenizer.h"

/* Sums over a cluster's positions. */
struct sums {
	double n, loss_a, loss_b, difference, agree, kl;
};

struct comparing {
	struct scorer *models[2];
	const struct text_pieces *pieces;
	int n_vocab, rows;
	float *logits[2]; /* [rows][n_vocab] */
	struct sums *clusters;
	double *kl; /* of each position */
	size_t n_kl;
	void (*report)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	struct sl_err *err;
};

/* ---- a position ---- */

struct row {
	const float *logits;
	int top;
	double log_sum; /* of the exponentials of all logits */
};

static bool read_row(const float *logits, int n, struct row *out)
{
	int top = 0;
	double sum = 0;
	for (int i = 0; i < n; i++) {
		if (!isfinite(logits[i]))
			return false;
		top = logits[i] > logits[top] ? i : top;
	}
	for (int i = 0; i < n; i++)
		sum += exp((double)logits[i] - (double)logits[top]);
	*out = (struct row){.logits = logits, .top = top, .log_sum = log(sum) + (double)logits[top]};
	return true;
}

static double log_of(const struct row *r, int id) { return (double)r->logits[id] - r->log_sum; }

static double divergence(const struct row *a, const struct row *b, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++) {
		double log_a = log_of(a, i);
		sum += exp(log_a) * (log_a - log_of(b, i));
	}
	return sum > 0 ? sum : 0; /* a rounding below */
}

static int add_position(struct comparing *c, struct sums *s, int row, int32_t next)
{
	struct row rows[2];
	for (int i = 0; i < 2; i++)
		if (!read_row(c->logits[i] + (size_t)row * (size_t)c->n_vocab, c->n_vocab, &rows[i]))
			return sl_errf(c->err, SL_EINVAL, "model %c: a logit is not finite", "AB"[i]);
	double loss_a = -log_of(&rows[0], next), loss_b = -log_of(&rows[1], next);
	double kl = divergence(&rows[0], &rows[1], c->n_vocab);
	s->n++;
	s->loss_a += loss_a;
	s->loss_b += loss_b;
	s->difference += loss_b - loss_a;
	s->agree += rows[0].top == rows[1].top;
	s->kl += kl;
	c->kl[c->n_kl++] = kl;
	return 0;
}

/* ---- a piece ---- */

/* Rows at … at + n of a piece. A row's logits are of the token that follows it. */
static int run_rows(struct comparing *c, const struct text_piece *p, int at, int n, struct sums *s)
{
	const int32_t *ids = c->pieces->ids + p->at;
	int from = p->first - 1 > at ? p->first - 1 : at, last = at + n < (int)p->n ? at + n : (int)p->n - 1;
	int n_want = from < at + n ? at + n - from : 0, rc = 0;
	for (int i = 0; i < 2 && rc == 0; i++)
		rc = scorer_step(c->models[i], ids, at, n, n_want, c->logits[i]);
	if (rc != 0)
		return sl_errf(c->err, rc, "a step failed: %s", sl_code_name(rc));
	for (int row = from; row < last && rc == 0; row++)
		rc = add_position(c, s, row - from, ids[row + 1]);
	return rc;
}

static int run_piece(struct comparing *c, const struct text_piece *p, struct sums *s)
{
	int rc = 0, n = (int)p->n - 1; /* nothing follows the last token */
	for (int at = 0; at < n && rc == 0; at += c->rows)
		rc = run_rows(c, p, at, n - at < c->rows ? n - at : c->rows, s);
	return rc;
}

/* ---- all ---- */

static int reserve(struct comparing *c)
{
	size_t floats = (size_t)c->rows * (size_t)c->n_vocab, n = 0;
	for (size_t i = 0; i < c->pieces->n; i++)
		n += c->pieces->pieces[i].n - (size_t)c->pieces->pieces[i].first;
	for (int i = 0; i < 2; i++)
		c->logits[i] = sl_zalloc_n(floats, sizeof(float));
	c->clusters = sl_zalloc_n(c->pieces->n, sizeof *c->clusters);
	c->kl = sl_zalloc_n(n, sizeof *c->kl);
	bool all = c->logits[0] != NULL && c->logits[1] != NULL && c->clusters != NULL && c->kl != NULL;
	return all ? 0 : sl_errf(c->err, SL_ENOMEM, "out of memory");
}

static struct estimate mean_of(const struct sums *s, const double *member, size_t n)
{
	return stats_ratio(member, &s->n, n, sizeof *s / sizeof(double));
}

static void finish(struct comparing *c, struct text_comparison *out)
{
	const struct sums *s = c->clusters;
	size_t n = out->n_clusters;
	out->n_positions = c->n_kl;
	out->loss_a = mean_of(s, &s->loss_a, n);
	out->loss_b = mean_of(s, &s->loss_b, n);
	out->difference = mean_of(s, &s->difference, n);
	out->agreement = mean_of(s, &s->agree, n);
	out->kl = mean_of(s, &s->kl, n);
	out->kl_median = percentile(c->kl, c->n_kl, 50);
	out->kl_p99 = percentile(c->kl, c->n_kl, 99);
	out->kl_most = percentile(c->kl, c->n_kl, 100);
	out->verdict = stats_judge_loss(out->difference, n);
}

static int run(struct comparing *c, struct text_comparison *out)
{
	const struct text_pieces *t = c->pieces;
	int rc = 0;
	out->by_document = t->n_documents > 1;
	for (size_t i = 0; i < t->n && rc == 0; i++) {
		bool same = i > 0 && out->by_document && t->pieces[i].document == t->pieces[i - 1].document;
		out->n_clusters += !same;
		rc = run_piece(c, &t->pieces[i], &c->clusters[out->n_clusters - 1]);
		if (c->report != NULL)
			c->report(c->ctx, i + 1, t->n);
	}
	if (rc == 0)
		finish(c, out);
	return rc;
}

int compare_text(struct scorer *a, struct scorer *b, const struct text_pieces *pieces,
		 void (*report)(void *ctx, uint64_t done, uint64_t total), void *ctx, struct text_comparison *out,
		 struct sl_err *err)
{
	int rows_a = scorer_rows(a), rows_b = scorer_rows(b);
	struct comparing c = {.models = {a, b},
			      .pieces = pieces,
			      .n_vocab = model_info(scorer_model(a))->arch.n_vocab,
			      .rows = rows_a < rows_b ? rows_a : rows_b,
			      .report = report,
			      .ctx = ctx,
			      .err = err};
	*out = (struct text_comparison){0};
	int rc = reserve(&c);
	if (rc == 0)
		rc = run(&c, out);
	sl_free(c.logits[0]);
	sl_free(c.logits[1]);
	sl_free(c.clusters);
	sl_free(c.kl);
	return rc;
}

int compare_vocabularies(const struct tokenizer *a, const struct tokenizer *b, struct sl_err *err)
{
	int n = tokenizer_n_vocab(a);
	if (n != tokenizer_n_vocab(b))
		return sl_errf(err, SL_EINVAL, "the models have different vocabularies: %d and %d tokens", n,
			       tokenizer_n_vocab(b));
	if (tokenizer_digest(a) == tokenizer_digest(b))
		return 0;
	for (int32_t i = 0; i < n; i++) {
		struct proto_str x = tokenizer_bytes(a, i), y = tokenizer_bytes(b, i);
		if (x.n != y.n || memcmp(x.at, y.at, x.n) != 0 || tokenizer_is_end(a, i) != tokenizer_is_end(b, i) ||
		    tokenizer_attr(a, i) != tokenizer_attr(b, i))
			return sl_errf(err, SL_EINVAL, "the models have different vocabularies: token %d differs", i);
	}
	return sl_errf(err, SL_EINVAL, "the models have different vocabularies");
}
