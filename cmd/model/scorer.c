/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/model/scorer.h"

#include <stdio.h>
#include <strings.h>

#include "base/alloc.h"
#include "engine/kv/kv.h"
#include "engine/model/adapters.h"
#include "engine/kv/kv_states.h"
#include "kernels/kv_type.h"

enum { PAGE = 16, MOST_ROWS = 256, LEAST_ROWS = 8, LOGIT_BYTES = 64 << 20 };

struct scorer {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	struct kv_states *states; /* NULL: no layer keeps one */
	int rows, most_tokens, n_pages;
	int32_t *pages, *pos, *seq, *want, *adapters;
	char kv_name[24];
};

/* Fewer rows where logits of many would be large. */
static int rows_of(const struct model_arch *a, const struct scorer_how *how)
{
	size_t rows = how->host_logits ? LOGIT_BYTES / sizeof(float) / (size_t)a->n_vocab : MOST_ROWS;
	return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : (int)rows;
}

static int load_model(struct scorer *s, const struct scorer_how *how, const struct model_arch *a, struct sl_err *err)
{
	bool fp8 = how->quantize != NULL && strcasecmp(how->quantize, "fp8") == 0;
	const struct model_quantize q = {.type = how->quantize != NULL ? kn_type_from_name(how->quantize) : -1,
					 .n_threads = how->n_threads};
	const struct model_how load = {.quantize = q.type >= 0 && !fp8 ? &q : NULL};
	const struct kn_config kc = {.n_threads = how->n_threads,
				     .max_rows = s->rows,
				     .max_width = arch_widest(a),
				     .pad_rows = true,
				     .fp8_weights = fp8};
	int rc = s->ops->open(&kc, &s->b, err);
	return rc != 0 ? rc : model_load_as(how->path, &load, s->ops, s->b, s->rows, 0, &s->m, err);
}

static int load_adapter(struct scorer *s, const char *path, struct sl_err *err)
{
	int slot, rc = model_load_adapter(s->m, path, &slot, err);
	if (rc != 0)
		return rc;
	s->adapters = sl_zalloc_n((size_t)s->rows, sizeof *s->adapters);
	if (s->adapters == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	for (int i = 0; i < s->rows; i++)
		s->adapters[i] = slot;
	return 0;
}

static int make_pages(struct scorer *s, const struct scorer_how *how, struct sl_err *err)
{
	const struct model_arch *a = &model_info(s->m)->arch;
	bool automatic = how->kv_type == NULL || strcasecmp(how->kv_type, "auto") == 0;
	int type = automatic ? model_kv_type(a, s->ops) : kn_kv_type_from_name(how->kv_type);
	struct kn_kv layout = model_kv_layout(a, type, PAGE, a->n_layers);
	s->n_pages = (s->most_tokens + PAGE - 1) / PAGE;
	layout.n_pages = s->n_pages;
	layout.rotate =
	    model_kv_rotated(a, type, (enum model_kv_rotation)model_kv_rotation_from_name(how->kv_rotation), s->ops);
	snprintf(s->kv_name, sizeof s->kv_name, "%s%s", kn_kv_type_name(type), layout.rotate > 0 ? ", rotated" : "");
	int rc = kv_pool_make(s->ops, s->b, &layout, &s->pool, err);
	if (rc == 0 && arch_is_recurrent(a))
		rc = kv_states_create(s->ops, s->b, arch_state(a), 1, 0, &s->states, err);
	return rc;
}

static int make_rows(struct scorer *s, struct sl_err *err)
{
	size_t rows = (size_t)s->rows;
	s->pages = sl_zalloc_n((size_t)s->n_pages, sizeof *s->pages);
	s->pos = sl_zalloc_n(rows, sizeof *s->pos);
	s->seq = sl_zalloc_n(rows, sizeof *s->seq);
	s->want = sl_zalloc_n(rows, sizeof *s->want);
	if (s->pages == NULL || s->pos == NULL || s->seq == NULL || s->want == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	for (int i = 0; i < s->n_pages; i++)
		s->pages[i] = i;
	return 0;
}

int scorer_open(const struct scorer_how *how, struct scorer **out, struct sl_err *err)
{
	struct model_info info;
	int rc = model_inspect(how->path, &info, err);
	if (rc != 0)
		return rc;
	if (info.arch.encoder)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: an encoder predicts no tokens", how->path);
	struct scorer *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	s->rows = rows_of(&info.arch, how);
	s->most_tokens = how->most_tokens < info.arch.n_ctx ? how->most_tokens : info.arch.n_ctx;
	s->ops = kn_select(how->backend, err);
	if (s->ops != NULL && how->wrap != NULL)
		s->ops = how->wrap(how->wrap_ctx, s->ops);
	rc = s->ops != NULL ? load_model(s, how, &info.arch, err) : SL_EUNSUPPORTED;
	if (rc == 0 && how->adapter != NULL)
		rc = load_adapter(s, how->adapter, err);
	if (rc == 0)
		rc = make_pages(s, how, err);
	if (rc == 0)
		rc = make_rows(s, err);
	if (rc != 0)
		scorer_close(s);
	else
		*out = s;
	return rc;
}

void scorer_close(struct scorer *s)
{
	if (s == NULL)
		return;
	if (s->pool != NULL)
		kv_pool_destroy(s->pool);
	kv_states_destroy(s->states);
	model_free(s->m);
	if (s->b != NULL)
		s->ops->close(s->b);
	sl_free(s->pages);
	sl_free(s->pos);
	sl_free(s->seq);
	sl_free(s->want);
	sl_free(s->adapters);
	sl_free(s);
}

const struct model *scorer_model(const struct scorer *s) { return s->m; }
int scorer_most_tokens(const struct scorer *s) { return s->most_tokens; }
int scorer_rows(const struct scorer *s) { return s->rows; }
const char *scorer_kv_name(const struct scorer *s) { return s->kv_name; }

int scorer_step(struct scorer *s, const int32_t *ids, int at, int n, int n_want, float *logits)
{
	BUG_IF(n < 1 || n > s->rows || n_want > n || at + n > s->most_tokens, "%d tokens at %d", n, at);
	for (int i = 0; i < n; i++)
		s->pos[i] = at + i;
	for (int i = 0; i < n_want; i++)
		s->want[i] = n - n_want + i;
	struct kn_step step = {.n_rows = n,
			       .row_token = ids + at,
			       .row_pos = s->pos,
			       .row_seq = s->seq,
			       .row_adapter = s->adapters,
			       .n_seqs = 1,
			       .page_table = s->pages,
			       .max_pages = s->n_pages};
	kv_states_in_step(s->states, &step);
	return model_forward(s->m, &step, kv_pool_layout(s->pool), s->want, n_want, logits);
}
