/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/adapter/adapter_merge.h"

#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/out_file.h"
#include "engine/adapter/adapter.h"

/* The matrix that is converted: its A as floats. */
struct merge {
	const struct adapter *adapter;
	const struct adapter_matrix *m;
	float *a;
};

static const struct adapter_matrix *matrix_of(const struct merge *g, const struct model_tensor *t)
{
	enum adapter_target target;
	int layer;
	if (!adapter_target_find(t->name, &layer, &target) || layer >= adapter_n_layers(g->adapter))
		return NULL;
	const struct adapter_matrix *m = adapter_at(g->adapter, layer, target);
	return m->rank > 0 ? m : NULL;
}

static bool touches(void *ctx, const struct model_tensor *t) { return matrix_of(ctx, t) != NULL; }

static int begin(void *ctx, const struct model_tensor *t, struct sl_err *err)
{
	struct merge *g = ctx;
	g->m = matrix_of(g, t);
	size_t width = (size_t)g->m->n_in;
	sl_free(g->a);
	g->a = sl_zalloc_n((size_t)g->m->rank * width, sizeof *g->a);
	if (g->a == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the adapter of %s", t->name);
	for (int j = 0; j < g->m->rank; j++)
		adapter_a_row(g->m, j, g->a + (size_t)j * width);
	return 0;
}

static void add(void *ctx, uint64_t row, float *x)
{
	const struct merge *g = ctx;
	float b[ADAPTER_MAX_RANK];
	int n = g->m->n_in;
	adapter_b_row(g->m, (int)row, b);
	for (int j = 0; j < g->m->rank; j++) {
		const float *a = g->a + (size_t)j * (size_t)n;
		float by = g->m->scale * b[j];
		for (int i = 0; i < n; i++)
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
	if (rc == 0)
		rc = is_not_written(adapter, out, err);
	if (rc == 0)
		rc = quantize_model(base, out, &merging, NULL, p, err);
	sl_free(g.a);
	adapter_close(a);
	return rc;
}
