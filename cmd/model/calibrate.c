/* SPDX-License-Identifier: Apache-2.0
 *
 * Second moments of all layers of a large model would not fit in memory. So the model reads the text several times:
 * each time for as many layers, from the one that is written next, as MOST_BYTES allow. Sums run over rows in order, in
 * one thread, so the result depends on neither threads nor memory.
 */
#include "cmd/model/calibrate.h"

#include <string.h>

#include "base/alloc.h"
#include "cmd/model/scorer.h"
#include "cmd/model/text_pieces.h"

/* GROUP: inputs whose correlation counts (kn_inputs.group). DAMP: GPTQ's. */
enum { BLOCK = 512, GROUP = 2048 };
#define MOST_BYTES ((uint64_t)1 << 30)
#define DAMP 0.01

struct moments {
	struct kn_inputs inputs;
	float *sums; /* the factors, once they are made; NULL: none */
	bool factored;
};

struct calibration {
	struct scorer *scorer;
	struct text_pieces pieces;
	struct kn_ops watching;
	const struct kn_ops *real;
	int n_layers;
	float *logits;         /* of a step; nobody reads them, but the head makes them */
	struct moments *sites; /* [n_layers][MODEL_SITES]; the head's are the first layer's */
	int first, end;        /* layers whose moments are there */
	bool head;             /* its are */
	struct calibration_report done;
	void (*report)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	struct sl_err *err;
	int rc;
};

static struct calibration *running; /* operations have no context */

/* ---- watching ---- */

static struct moments *site_at(struct calibration *c, int layer, enum model_site site)
{
	return &c->sites[layer * MODEL_SITES + (int)site];
}

typedef float f4 __attribute__((vector_size(16)));

static f4 load(const float *x)
{
	f4 v;
	memcpy(&v, x, sizeof v);
	return v;
}

/* to[j] += Σ of ROWS rows: row[i] · row[j], j from i on. */
enum { ROWS = 4 };
static void add_products(float *to, const float *x, size_t width, size_t i, size_t m)
{
	const float *r[ROWS] = {x, x + width, x + 2 * width, x + 3 * width};
	size_t j = i;
	for (; j + 4 <= m; j += 4) {
		f4 sum = (r[0][i] * load(r[0] + j) + r[1][i] * load(r[1] + j)) +
			 (r[2][i] * load(r[2] + j) + r[3][i] * load(r[3] + j));
		sum += load(to + j);
		memcpy(to + j, &sum, sizeof sum);
	}
	for (; j < m; j++)
		to[j] += (r[0][i] * r[0][j] + r[1][i] * r[1][j]) + (r[2][i] * r[2][j] + r[3][i] * r[3][j]);
}

/* sums[i][j] += Σ x[row][i] · x[row][j], j from i on. A row of sums stays in the cache for all rows of x. */
static void add_group(float *sums, const float *x, size_t width, size_t m, int n_rows)
{
	for (size_t i = 0; i < m; i++) {
		int r = 0;
		for (; r + ROWS <= n_rows; r += ROWS)
			add_products(sums + i * m, x + (size_t)r * width, width, i, m);
		for (; r < n_rows; r++)
			for (size_t j = i; j < m; j++)
				sums[i * m + j] += x[(size_t)r * width + i] * x[(size_t)r * width + j];
	}
}

static void add_rows(struct moments *s, const float *x, size_t width, int n_rows)
{
	for (size_t first = 0; first < width; first += GROUP) {
		size_t m = width - first < GROUP ? width - first : GROUP;
		add_group(s->sums + first * GROUP, x + first, width, m, n_rows);
	}
}

static int reserve(struct moments *s, size_t width)
{
	size_t group = width < GROUP ? (width + 255) / 256 * 256 : GROUP;
	s->sums = sl_zalloc_n(width, (width < GROUP ? width : GROUP) * sizeof *s->sums);
	s->inputs = (struct kn_inputs){.n = width, .group = group, .factors = s->sums};
	return s->sums != NULL ? 0 : SL_ENOMEM;
}

static int watch_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	struct calibration *c = running;
	enum model_site site;
	int layer;
	if (c->scorer != NULL && model_site_of_weight(scorer_model(c->scorer), w, &layer, &site) &&
	    (site == MODEL_SITE_HEAD ? c->head : layer >= c->first && layer < c->end)) {
		struct moments *s = site_at(c, layer, site);
		if (s->sums == NULL)
			c->rc = c->rc != 0 ? c->rc : reserve(s, (size_t)w->n_in);
		if (s->sums != NULL)
			add_rows(s, x, (size_t)w->n_in, n_rows);
	}
	return c->real->matmul(b, w, x, n_rows, y);
}

static const struct kn_ops *wrap(void *ctx, const struct kn_ops *ops)
{
	struct calibration *c = ctx;
	c->real = ops;
	c->watching = *ops;
	c->watching.matmul = watch_matmul;
	return &c->watching;
}

/* ---- reading ---- */

static int read_piece(struct calibration *c, const struct text_piece *p)
{
	int rows = scorer_rows(c->scorer), rc = 0;
	for (int at = 0; at < (int)p->n && rc == 0; at += rows) {
		int n = (int)p->n - at < rows ? (int)p->n - at : rows;
		rc = scorer_step(c->scorer, c->pieces.ids + p->at, at, n, c->head ? n : 0, c->logits);
	}
	return rc;
}

static void drop(struct calibration *c)
{
	for (int i = 0; i < c->n_layers * MODEL_SITES; i++) {
		sl_free(c->sites[i].sums);
		c->sites[i] = (struct moments){0};
	}
}

static uint64_t bytes_of(int width)
{
	return (uint64_t)width * (uint64_t)(width < GROUP ? width : GROUP) * sizeof(float);
}

/* Layers from `first` on, as many as fit, or the head alone. */
static int collect(struct calibration *c, int first, bool head)
{
	const struct model_arch *a = &model_info(scorer_model(c->scorer))->arch;
	uint64_t each = 2 * bytes_of(a->n_embd) + bytes_of(arch_value_width(a)) + bytes_of(a->n_ff);
	uint64_t most = MOST_BYTES / (each + 1) + 1;
	int rc = 0;
	drop(c);
	c->head = head;
	c->first = first;
	c->end = head ? first : (uint64_t)(c->n_layers - first) < most ? c->n_layers : first + (int)most;
	c->rc = 0;
	for (size_t i = 0; i < c->pieces.n && rc == 0; i++) {
		rc = read_piece(c, &c->pieces.pieces[i]);
		if (c->report != NULL)
			c->report(c->ctx, i + 1, c->pieces.n);
	}
	rc = rc != 0 ? rc : c->rc;
	return rc == 0 ? 0 : sl_errf(c->err, rc, "the text for calibration cannot be read: %s", sl_code_name(rc));
}

/* ---- factors ---- */

static int factor(struct moments *s)
{
	int rc = 0;
	for (size_t first = 0; first < s->inputs.n && rc == 0; first += s->inputs.group) {
		size_t m = s->inputs.n - first < s->inputs.group ? s->inputs.n - first : s->inputs.group;
		rc = kn_inputs_factor(s->sums + first * GROUP, m, DAMP);
	}
	s->factored = rc == 0;
	return rc;
}

static int find(void *ctx, const struct model_tensor *t, int type, const struct kn_inputs **out, struct sl_err *err)
{
	struct calibration *c = ctx;
	enum model_site site;
	int layer, rc = 0;
	*out = NULL;
	c->err = err;
	bool known =
	    kn_quantizes_for(type) && model_site_of_tensor(t->name, &layer, &site) && layer >= 0 && layer < c->n_layers;
	if (known && (site == MODEL_SITE_HEAD ? !c->head : layer < c->first || layer >= c->end))
		rc = collect(c, layer, site == MODEL_SITE_HEAD);
	struct moments *s = known && rc == 0 ? site_at(c, layer, site) : NULL;
	bool there = s != NULL && s->sums != NULL && s->inputs.n == t->dims[0] && t->n_dims == 2;
	if (there && !s->factored && (rc = factor(s)) != 0)
		sl_errf(err, rc, "tensor %s: its inputs are not finite, or always zero", t->name);
	if (rc != 0)
		return rc;
	(*(there ? &c->done.n : &c->done.n_without))++;
	if (there)
		*out = &s->inputs;
	return 0;
}

/* ---- life ---- */

int calibration_open(const char *path, const char *text, int n_threads,
		     void (*report)(void *ctx, uint64_t done, uint64_t total), void *ctx, struct calibration **out,
		     struct sl_err *err)
{
	struct calibration *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	BUG_IF(running != NULL, "two calibrations");
	running = c;
	*c = (struct calibration){.report = report, .ctx = ctx, .err = err};
	const struct scorer_how how = {.path = path,
				       .backend = "auto",
				       .kv_type = "f32",
				       .n_threads = n_threads,
				       .most_tokens = BLOCK,
				       .host_logits = true,
				       .wrap = wrap,
				       .wrap_ctx = c};
	int rc = scorer_open(&how, &c->scorer, err);
	if (rc == 0) {
		const struct model *m = scorer_model(c->scorer);
		c->n_layers = model_info(m)->arch.n_layers;
		c->sites = sl_zalloc_n((size_t)c->n_layers * MODEL_SITES, sizeof *c->sites);
		c->logits = sl_zalloc_n((size_t)scorer_rows(c->scorer) * (size_t)model_info(m)->arch.n_vocab,
					sizeof *c->logits);
		rc = c->sites == NULL || c->logits == NULL
			 ? sl_errf(err, SL_ENOMEM, "out of memory")
			 : text_pieces_read(m, text, scorer_most_tokens(c->scorer), &c->pieces, err);
	}
	if (rc != 0) {
		calibration_close(c);
		return rc;
	}
	c->done.n_tokens = c->pieces.n_ids;
	c->done.n_pieces = c->pieces.n;
	*out = c;
	return 0;
}

struct quantize_inputs calibration_inputs(struct calibration *c)
{
	return (struct quantize_inputs){.find = find, .ctx = c};
}

struct calibration_report calibration_report(const struct calibration *c) { return c->done; }

void calibration_close(struct calibration *c)
{
	if (c == NULL)
		return;
	if (c->sites != NULL)
		drop(c);
	sl_free(c->sites);
	sl_free(c->logits);
	text_pieces_dispose(&c->pieces);
	scorer_close(c->scorer);
	sl_free(c);
	running = NULL;
}
