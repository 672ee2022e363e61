/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/adapter/adapter_merge.h"

#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/out_file.h"
#include "engine/adapter/adapter.h"

/* The tensor that is converted: for each of its matrices the A as floats, or NULL where nothing is added. */
struct merge {
	const struct adapter *adapter;
	struct adapter_place at;
	uint64_t rows; /* of each matrix */
	float **a;
	int n;
};

static const struct adapter_matrix *matrix_of(const struct merge *g, int i)
{
	if (!adapter_is_of_experts(g->at.target))
		return adapter_at(g->adapter, g->at.layer, g->at.target);
	return adapter_expert(g->adapter, g->at.layer, g->at.target, g->at.expert == ADAPTER_ALL ? i : g->at.expert);
}

static bool find(const struct merge *g, const struct model_tensor *t, struct adapter_place *at)
{
	return adapter_target_find(t->name, at) && at->layer < adapter_n_layers(g->adapter);
}

static bool touches(void *ctx, const struct model_tensor *t)
{
	struct merge g = *(const struct merge *)ctx;
	if (!find(&g, t, &g.at))
		return false;
	return g.at.expert == ADAPTER_ALL ? adapter_n_experts(g.adapter, g.at.layer, g.at.target) > 0
					  : matrix_of(&g, 0)->rank > 0;
}

static void drop(struct merge *g)
{
	for (int i = 0; i < g->n; i++)
		sl_free(g->a[i]);
	sl_free(g->a);
	g->a = NULL;
	g->n = 0;
}

static int take_a(struct merge *g, int i)
{
	const struct adapter_matrix *m = matrix_of(g, i);
	size_t width = (size_t)m->n_in;
	if (m->rank == 0)
		return 0;
	g->a[i] = sl_zalloc_n((size_t)m->rank * width, sizeof *g->a[i]);
	for (int j = 0; j < m->rank && g->a[i] != NULL; j++)
		adapter_a_row(m, j, g->a[i] + (size_t)j * width);
	return g->a[i] != NULL ? 0 : SL_ENOMEM;
}

static int begin(void *ctx, const struct model_tensor *t, struct sl_err *err)
{
	struct merge *g = ctx;
	int n = (int)t->dims[2], rc;
	drop(g);
	(void)find(g, t, &g->at);
	g->rows = t->dims[1];
	g->a = sl_zalloc_n((size_t)n, sizeof *g->a);
	g->n = g->a != NULL ? n : 0;
	rc = g->a != NULL ? 0 : SL_ENOMEM;
	for (int i = 0; i < n && rc == 0; i++)
		rc = take_a(g, i);
	return rc == 0 ? 0 : sl_errf(err, rc, "no memory for the adapter of %s", t->name);
}

static void add(void *ctx, uint64_t row, float *x)
{
	const struct merge *g = ctx;
	float b[ADAPTER_MAX_RANK];
	int of = (int)(row / g->rows);
	const struct adapter_matrix *m = matrix_of(g, of);
	if (g->a[of] == NULL)
		return;
	adapter_b_row(m, (int)(row % g->rows), b);
	for (int j = 0; j < m->rank; j++) {
		const float *a = g->a[of] + (size_t)j * (size_t)m->n_in;
		float by = m->scale * b[j];
		for (int i = 0; i < m->n_in; i++)
			x[i] += by * a[i];
	}
}

/* Refuses to overwrite the adapter; quantize_model does the base. */
static int is_not_written(const char *adapter, const char *out, struct sl_err *err)
{
	struct stat st;
	return file_stat(adapter, &st) == 0 && S_ISDIR(st.st_mode) ? out_file_is_not_in(out, adapter, ".gguf", err)
								   : out_file_is_not(out, adapter, err);
}

int adapter_merge(const char *base, const char *adapter, const char *out, const struct quantize_how *how,
		  struct convert_progress *p, struct sl_err *err)
{
	struct adapter *a = NULL;
	struct merge g = {0};
	struct quantize_change change = {.touches = touches, .begin = begin, .add = add, .ctx = &g};
	struct quantize_how merging = *how;
	merging.change = &change;
	int rc = adapter_open_with(adapter, base, &a, err);
	g.adapter = a;
	change.unties = rc == 0 && (adapter_has(a, ADAPTER_EMBED) || adapter_has(a, ADAPTER_HEAD));
	if (rc == 0)
		rc = is_not_written(adapter, out, err);
	if (rc == 0)
		rc = quantize_model(base, out, &merging, NULL, p, err);
	drop(&g);
	adapter_close(a);
	return rc;
}
