/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer is one like the model's own, loaded and run as the one after its last. Before it, the two normed vectors of
 * a row become one: a table has the embeddings of all rows and then their hidden rows, and gathering row i of each, one
 * after the other, joins them.
 *
 * A hidden row is normed as for the model's head first (as vLLM and llama.cpp do), so what goes on from a result reads
 * it after the head's own norm: nextn.shared_head_norm, or the model's where the file has none.
 */
#include "engine/model/draft_head.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/model/adapters.h"
#include "engine/model/model_priv.h"

struct draft_head {
	struct kn_weight joins;       /* nextn.eh_proj: [n_embd][2 · n_embd] */
	struct kn_weight embed, head; /* empty: the model's */
	float *embed_norm, *hidden_norm, *norm;
	float *kept;             /* [slots][DRAFT_HEAD_ROWS][n_embd] */
	float *table;            /* [2][max_rows][n_embd] */
	float *joined;           /* [max_rows][2][n_embd] */
	int32_t *pairs;          /* [max_rows][2], of the host: rows of the table */
	struct kn_place *places; /* of all layers: the head's pages have one */
	int n_slots, n_result;   /* n_result: wanted rows of the last step */
};

static int layer_of(const struct model *m) { return m->info.arch.n_layers; }

bool draft_head_in(const struct model_file *f, const struct model_arch *a)
{
	char prefix[24];
	if (a->n_drafting == 0 || a->encoder || a->layer_norm || a->one_half || a->n_layers >= ARCH_MOST_LAYERS)
		return false;
	int n = snprintf(prefix, sizeof prefix, "blk.%d.", a->n_layers);
	for (size_t i = 0; i < model_file_n_tensors(f); i++)
		if (strncmp(model_file_tensor_at(f, i)->name, prefix, (size_t)n) == 0)
			return true;
	return false;
}

static int load_vector(struct model *m, const char *what, float **out, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	char name[64];
	return model_load_vector(m, model_in_layer(layer_of(m), what, name), a->n_embd, a->norm_gain_offset, out, err);
}

/* A matrix that only some files have. */
static int load_own(struct model *m, const char *what, struct kn_weight *out, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	char name[64];
	if (model_file_find(m->file, model_in_layer(layer_of(m), what, name)) == NULL)
		return 0;
	return model_load_matrix(m, name, a->n_vocab, a->n_embd, out, err);
}

int draft_head_load(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct draft_head *h = m->draft_head = sl_zalloc(sizeof *h);
	char name[64];
	int rc;
	if (h == NULL || (h->pairs = sl_zalloc_n(2 * (size_t)m->max_rows, sizeof *h->pairs)) == NULL ||
	    (h->places = sl_zalloc_n((size_t)a->n_layers + 1, sizeof *h->places)) == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	if ((rc = model_load_matrix(m, model_in_layer(layer_of(m), "nextn.eh_proj.weight", name), a->n_embd,
				    2 * a->n_embd, &h->joins, err)) != 0 ||
	    (rc = load_vector(m, "nextn.enorm.weight", &h->embed_norm, err)) != 0 ||
	    (rc = load_vector(m, "nextn.hnorm.weight", &h->hidden_norm, err)) != 0 ||
	    (rc = load_own(m, "nextn.embed_tokens.weight", &h->embed, err)) != 0 ||
	    (rc = load_own(m, "nextn.shared_head_head.weight", &h->head, err)) != 0)
		return rc;
	if (model_file_find(m->file, model_in_layer(layer_of(m), "nextn.shared_head_norm.weight", name)) != NULL)
		rc = load_vector(m, "nextn.shared_head_norm.weight", &h->norm, err);
	size_t floats = 2 * (size_t)m->max_rows * (size_t)a->n_embd;
	if (rc == 0)
		rc = model_alloc_floats(m, "a head's rows", floats, &h->table, err);
	return rc != 0 ? rc : model_alloc_floats(m, "a head's rows", floats, &h->joined, err);
}

void draft_head_free(struct model *m)
{
	struct draft_head *h = m->draft_head;
	if (h == NULL)
		return;
	model_free_weight(m, &h->joins);
	model_free_weight(m, &h->embed);
	model_free_weight(m, &h->head);
	float *memory[] = {h->embed_norm, h->hidden_norm, h->norm, h->kept, h->table, h->joined};
	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
		model_free_floats(m, memory[i]);
	sl_free(h->pairs);
	sl_free(h->places);
	sl_free(h);
}

bool draft_head_is_here(const struct model *m) { return m->draft_head != NULL; }

/* ---- hidden rows ---- */

uint64_t draft_head_row_bytes(const struct model_arch *a, int n_slots)
{
	return (uint64_t)n_slots * DRAFT_HEAD_ROWS * (uint64_t)a->n_embd * sizeof(float);
}

int draft_head_make_rows(struct model *m, int n_slots, struct sl_err *err)
{
	size_t n = (size_t)(draft_head_row_bytes(&m->info.arch, n_slots) / sizeof(float));
	m->draft_head->n_slots = n_slots;
	return model_alloc_floats(m, "hidden rows", n, &m->draft_head->kept, err);
}

int draft_head_keep(struct model *m, int row, int n, int slot, uint32_t pos)
{
	const struct draft_head *h = m->draft_head;
	size_t width = (size_t)m->info.arch.n_embd;
	BUG_IF(slot < 0 || slot >= h->n_slots || row < 0 || n < 0 || row + n > m->max_rows,
	       "%d rows are kept of slot %d", n, slot);
	int skip = n > DRAFT_HEAD_ROWS ? n - DRAFT_HEAD_ROWS : 0, rc = 0;
	for (int i = skip, run; i < n && rc == 0; i += run) {
		int place = (int)((pos + (uint32_t)i) % DRAFT_HEAD_ROWS);
		run = n - i < DRAFT_HEAD_ROWS - place ? n - i : DRAFT_HEAD_ROWS - place;
		rc = m->ops->state_copy(m->backend, m->x + (size_t)(row + i) * width,
					h->kept + ((size_t)slot * DRAFT_HEAD_ROWS + (size_t)place) * width,
					(size_t)run * width);
	}
	return rc;
}

/* ---- a step ---- */

static int rmsnorm(struct model *m, const float *x, const float *gain, int n, float *y)
{
	return m->ops->rmsnorm(m->backend, x, gain, m->info.arch.rms_eps, n, m->info.arch.n_embd, y);
}

/* Hidden rows, normed, in the second half of the table. They come first: m->x and m->normed have those of the last
 * step. */
static int take_hidden(struct model *m, const int32_t *hidden, bool chained, int n)
{
	const struct draft_head *h = m->draft_head;
	int width = m->info.arch.n_embd, rc;
	float *to = h->table + (size_t)m->max_rows * (size_t)width;
	for (int i = 0; i < n; i++)
		BUG_IF(hidden[i] < 0 || hidden[i] >= (chained ? h->n_result : h->n_slots * DRAFT_HEAD_ROWS),
		       "a draft goes on from row %d", hidden[i]);
	rc = m->ops->gather(m->backend, chained ? m->normed : h->kept, hidden, n, width, to);
	if (rc == 0 && !chained)
		rc = rmsnorm(m, to, m->output_norm, n, to);
	return rc != 0 ? rc : rmsnorm(m, to, h->hidden_norm, n, to);
}

/* What the layer reads, in m->x, from embeddings there and the hidden rows. */
static int join(struct model *m, int n)
{
	const struct draft_head *h = m->draft_head;
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	int rc = rmsnorm(m, m->x, h->embed_norm, n, h->table); /* whatever embeddings are multiplied by */
	for (int i = 0; i < n; i++) {
		h->pairs[2 * i] = i;
		h->pairs[2 * i + 1] = m->max_rows + i;
	}
	if (rc == 0)
		rc = o->gather(m->backend, h->table, h->pairs, 2 * n, a->n_embd, h->joined);
	return rc != 0 ? rc : o->matmul(m->backend, &h->joins, h->joined, n, m->x);
}

/* Logits of the wanted rows, whose hidden rows stay in m->normed. */
static int head_logits(struct model *m, const int32_t *want, int n_want)
{
	const struct draft_head *h = m->draft_head;
	int rc = m->ops->gather(m->backend, m->x, want, n_want, m->info.arch.n_embd, m->normed);
	if (rc == 0)
		rc = rmsnorm(m, m->normed, h->norm != NULL ? h->norm : m->output_norm, n_want, m->normed);
	return rc != 0 ? rc : model_logits(m, h->head.data != NULL ? &h->head : &m->head, NULL, n_want);
}

static int run(struct model *m, int n, const struct kn_kv *kv, const int32_t *hidden, bool chained, const int32_t *want,
	       int n_want, float *logits)
{
	const struct draft_head *h = m->draft_head;
	const struct model_arch *a = &m->info.arch;
	struct kn_kv own = *kv;
	own.places = h->places;
	int rc;
	if ((rc = take_hidden(m, hidden, chained, n)) != 0 ||
	    (rc = m->ops->embed(m->backend, h->embed.data != NULL ? &h->embed : &m->embed, m->x)) != 0 ||
	    (rc = join(m, n)) != 0 || (rc = model_run_layer(m, layer_of(m), n, &own)) != 0)
		return rc;
	if (n_want == 0)
		return 0;
	if ((rc = head_logits(m, want, n_want)) != 0)
		return rc;
	return m->ops->read_back(m->backend, m->logits, (size_t)n_want * (size_t)a->n_vocab, logits);
}

int draft_head_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *hidden,
		       bool chained, const int32_t *want, int n_want, float *logits)
{
	BUG_IF(s->n_rows < 1 || s->n_rows > m->max_rows || n_want > s->n_rows || n_want > m->logit_rows,
	       "a head's step of %d rows, %d wanted", s->n_rows, n_want);
	struct kn_step step = *s;
	step.page_tokens = kv->page_tokens;
	step.n_groups = 1;
	step.row_adapter = NULL; /* adapters are the model's alone */
	step.adapters = adapters_begin(m, &step);
	int rc = m->ops->step_begin(m->backend, &step);
	if (rc != 0)
		return rc;
	rc = run(m, s->n_rows, kv, hidden, chained, want, n_want, logits);
	m->draft_head->n_result = rc == 0 ? n_want : 0;
	int end = m->ops->step_issue(m->backend);
	if (end == 0)
		end = m->ops->step_wait(m->backend);
	return rc != 0 ? rc : end;
}
