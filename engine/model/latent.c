/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention (arch.h: struct arch_latent), in one form for prompts and answers: a head's plain query is
 * multiplied with the head's key matrix, transposed, and thereby meets latent vectors instead of keys; what attention
 * makes of latent vectors is multiplied with the head's value matrix ("absorbed", DeepSeek-V2, 2.1.2 and its appendix).
 * Keys and values of heads would cost less for long prompts, but have other bits.
 *
 * GGUF files have the transposed key matrices and the value matrices as tensors of all heads; older ones, and Hugging
 * Face folders, have both in one, not transposed. Then values' rows are used where they lie, and keys are transposed on
 * load: in their type if that is one of floats, else as F32, since blocks along the other dimension would round anew.
 */
#include "engine/model/model_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/quantize.h"

/* ---- loading ---- */

static bool is_float(int type) { return type == KN_F32 || type == KN_F16 || type == KN_BF16; }

/* Row `from` of t, of n elements, becomes column `to` of a matrix of n rows of `width`. */
static void turn_row(const struct model_tensor *t, int from, int n, uint8_t *out, int to, int width, float *row)
{
	const uint8_t *at = (const uint8_t *)t->data + (size_t)from * kn_row_bytes(t->type, (size_t)n);
	size_t each = is_float(t->type) ? kn_type_block_bytes(t->type) : sizeof(float);
	if (!is_float(t->type))
		kn_dequantize(t->type, at, (size_t)n, row);
	at = is_float(t->type) ? at : (const uint8_t *)row;
	for (size_t i = 0; i < (size_t)n; i++)
		memcpy(out + (i * (size_t)width + (size_t)to) * each, at + i * each, each);
}

/* The key matrices of all heads, transposed. */
static int turn_keys(struct model *m, const struct model_tensor *t, struct layer_latent *x, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	int plain = a->latent.plain, n = a->latent.n, type = is_float(t->type) ? t->type : KN_F32, rc = 0;
	size_t bytes = (size_t)n * kn_row_bytes(type, (size_t)plain);
	float *row = sl_zalloc_n((size_t)n, sizeof *row);
	x->turned = sl_zalloc_n((size_t)a->n_heads, bytes);
	if (row == NULL || x->turned == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory to transpose tensor %s", model_file_path(m->file), t->name);
	for (int h = 0; h < a->n_heads && rc == 0; h++) {
		uint8_t *to = (uint8_t *)x->turned + (size_t)h * bytes;
		for (int i = 0; i < plain; i++)
			turn_row(t, h * (plain + a->latent.n_value) + i, n, to, i, plain, row);
		rc = m->ops->weight_load(m->backend, to, type, n, plain, &x->k_b[h], err);
	}
	sl_free(row);
	return rc;
}

/* Keys' and values' products of the latent vector in one tensor: of each head first its keys', then its values'. */
static int load_joined(struct model *m, const char *name, struct layer_latent *x, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	const struct model_tensor *t = NULL;
	int plain = a->latent.plain, value = a->latent.n_value, n = a->latent.n;
	int rc = model_find_matrix(m, name, a->n_heads * (plain + value), n, &t, err);
	for (int h = 0; h < a->n_heads && rc == 0; h++)
		rc = model_load_rows(m, t, h * (plain + value) + plain, value, n, &x->v_b[h], err);
	if (rc == 0)
		rc = turn_keys(m, t, x, err);
	if (rc != 0)
		return rc;
	const uint8_t *first = (const uint8_t *)t->data + (size_t)plain * kn_row_bytes(t->type, (size_t)n);
	if (x->v_b[0].data != first)
		model_file_let_go(m->file, t);
	if (x->k_b[0].data != x->turned) {
		sl_free(x->turned);
		x->turned = NULL;
	}
	return 0;
}

static int load_heads(struct model *m, int i, struct layer_latent *x, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	const struct arch_latent *d = &a->latent;
	char name[64];
	if (d->joined)
		return load_joined(m, model_in_layer(i, "attn_kv_b.weight", name), x, err);
	int rc =
	    model_load_matrices(m, model_in_layer(i, "attn_k_b.weight", name), a->n_heads, d->n, d->plain, x->k_b, err);
	return rc != 0 ? rc
		       : model_load_matrices(m, model_in_layer(i, "attn_v_b.weight", name), a->n_heads, d->n_value,
					     d->n, x->v_b, err);
}

/* Queries: one product, or two with a norm between them. */
static int load_queries(struct model *m, int i, struct layer_latent *x, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	int low = a->latent.n_query, width = arch_query_width(a), rc;
	struct kn_weight *q = &m->layers[i].q;
	char name[64];
	if (low == 0)
		return model_load_matrix(m, model_in_layer(i, "attn_q.weight", name), width, a->n_embd, q, err);
	if ((rc = model_load_matrix(m, model_in_layer(i, "attn_q_a.weight", name), low, a->n_embd, &x->q_a, err)) !=
		0 ||
	    (rc = model_load_vector(m, model_in_layer(i, "attn_q_a_norm.weight", name), low, 0, &x->q_a_norm, err)) !=
		0)
		return rc;
	return model_load_matrix(m, model_in_layer(i, "attn_q_b.weight", name), width, low, q, err);
}

int latent_load(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	size_t heads = (size_t)a->n_heads;
	char name[64];
	int rc;
	struct layer_latent *x = m->layers[i].latent = sl_zalloc(sizeof *x);
	if (x != NULL)
		x->k_b = sl_zalloc_n(2 * heads, sizeof *x->k_b);
	if (x == NULL || x->k_b == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	x->v_b = x->k_b + heads;
	if ((rc = load_queries(m, i, x, err)) != 0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "attn_kv_a_mqa.weight", name), a->head_dim, a->n_embd,
				    &x->kv_a, err)) != 0 ||
	    (rc = model_load_vector(m, model_in_layer(i, "attn_kv_a_norm.weight", name), a->latent.n, 0, &x->kv_a_norm,
				    err)) != 0)
		return rc;
	return load_heads(m, i, x, err);
}

void latent_free(struct model *m, struct layer_latent *x)
{
	if (x == NULL)
		return;
	model_free_weight(m, &x->q_a);
	model_free_weight(m, &x->kv_a);
	for (int i = 0; x->k_b != NULL && i < 2 * m->info.arch.n_heads; i++)
		model_free_weight(m, &x->k_b[i]);
	model_free_floats(m, x->q_a_norm);
	model_free_floats(m, x->kv_a_norm);
	sl_free(x->k_b);
	sl_free(x->turned);
	sl_free(x);
}

/* ---- the pass ---- */

size_t latent_work(const struct model_arch *a)
{
	const struct arch_latent *d = &a->latent;
	int widest = d->plain > d->n_value ? d->plain : d->n_value;
	return kn_heads_work(a->n_heads, d->n, widest);
}

/* Queries of heads, in m->q. */
static int make_queries(struct model *m, const struct layer *l, const float *from, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	const struct layer_latent *x = l->latent;
	int rc, low = a->latent.n_query;
	if (low == 0)
		return o->matmul(m->backend, &l->q, from, n, m->q);
	if ((rc = o->matmul(m->backend, &x->q_a, from, n, m->q_low)) != 0 ||
	    (rc = o->rmsnorm(m->backend, m->q_low, x->q_a_norm, a->rms_eps, n, low, m->q_low)) != 0)
		return rc;
	return o->matmul(m->backend, &l->q, m->q_low, n, m->q);
}

int latent_attend(struct model *m, const struct layer *l, const float *from, int n, const struct kn_kv *kv, int layer)
{
	const struct model_arch *a = &m->info.arch;
	const struct arch_latent *d = &a->latent;
	const struct layer_latent *x = l->latent;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int query = d->plain + a->rope.n_rot, heads = a->n_heads, rc;
	if ((rc = make_queries(m, l, from, n)) != 0 || (rc = o->matmul(b, &x->kv_a, from, n, m->k)) != 0 ||
	    (rc = o->latent_write(b, l->rope, x->kv_a_norm, a->rms_eps, m->q, heads, query, m->k, m->q_latent, kv,
				  layer)) != 0 ||
	    (rc = o->matmul_heads(b, x->k_b, heads, m->q, query, n, m->heads_work, m->q_latent, a->head_dim)) != 0 ||
	    (rc = o->attention(b, m->q_latent, heads, kv, layer, &l->attn, m->out_latent)) != 0)
		return rc;
	return o->matmul_heads(b, x->v_b, heads, m->out_latent, d->n, n, m->heads_work, m->attn, d->n_value);
}
