/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT and its relatives (Devlin et al., "BERT", 2018): rows attend to their whole text, norms follow the sums,
 * products have biases, and positions come from a table or, in NomicBERT, from a rotary embedding.
 *
 *   x = norm(token + type + position)
 *   x = norm(x + o · attention(x) + bias)            for each layer
 *   x = norm(x + down · act(up · x + bias) + bias)
 */
#include "engine/model/model_priv.h"

#include "base/alloc.h"
#include "kernels/quantize.h"

/* The rows of a table from `first` on, as floats of the backend. The tables are small and their rows are added to
 * tokens. */
static int load_table(struct model *m, const char *name, int first, int rows, float **out, struct sl_err *err)
{
	int width = m->info.arch.n_embd;
	const struct model_tensor *t = model_take_tensor(m, name, err);
	if (t == NULL)
		return SL_EINVAL;
	if (t->n_dims != 2 || t->dims[0] != (uint64_t)width || t->dims[1] < (uint64_t)first + (uint64_t)rows ||
	    t->data == NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is no table of %d × %d", model_file_path(m->file), name,
			       first + rows, width);
	size_t n = (size_t)rows * (size_t)width;
	float *host = sl_zalloc_n(n, sizeof *host);
	if (host == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for tensor %s", model_file_path(m->file), name);
	kn_dequantize(t->type, (const uint8_t *)t->data + (size_t)first * kn_row_bytes(t->type, (size_t)width), n,
		      host);
	int rc = model_alloc_floats(m, name, n, out, err);
	if (rc == 0 && (rc = m->ops->upload(m->backend, *out, host, n)) != 0)
		rc = sl_errf(err, rc, "%s: tensor %s can't be brought to the device", model_file_path(m->file), name);
	sl_free(host);
	return rc;
}

int encoder_load(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	int rc = 0;
	if (a->rope.n_rot == 0)
		rc = load_table(m, "position_embd.weight", a->first_pos, a->n_ctx, &m->positions, err);
	if (rc == 0 && a->n_types > 0)
		rc = load_table(m, "token_types.weight", 0, a->n_types, &m->types, err);
	if (rc == 0)
		rc = model_load_vector(m, "token_embd_norm.weight", a->n_embd, 0, &m->embed_norm, err);
	return rc != 0 ? rc : model_load_vector(m, "token_embd_norm.bias", a->n_embd, 0, &m->embed_norm_bias, err);
}

static int load_vectors(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	const struct {
		bool has;
		const char *name;
		int n;
		float **out;
	} all[] = {
	    {true, "attn_output_norm.weight", a->n_embd, &l->attn_norm},
	    {true, "attn_output_norm.bias", a->n_embd, &l->attn_norm_bias},
	    {true, "layer_output_norm.weight", a->n_embd, &l->ffn_norm},
	    {true, "layer_output_norm.bias", a->n_embd, &l->ffn_norm_bias},
	    {!a->no_biases, "attn_output.bias", a->n_embd, &l->o_bias},
	    {a->ff_biases, "ffn_up.bias", a->n_ff, &l->up_bias},
	    {a->ff_biases, "ffn_down.bias", a->n_embd, &l->down_bias},
	};
	char name[64];
	int rc = 0;
	for (size_t k = 0; k < sizeof all / sizeof *all && rc == 0; k++)
		if (all[k].has)
			rc = model_load_vector(m, model_in_layer(i, all[k].name, name), all[k].n, 0, all[k].out, err);
	return rc;
}

int encoder_load_layer(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, rc;
	char name[64];
	l->n_ff = a->n_ff;
	if ((rc = model_load_qkv(m, i, err)) != 0 || (a->qkv_bias && (rc = model_load_biases(m, i, err)) != 0) ||
	    (rc = model_load_matrix(m, model_in_layer(i, "attn_output.weight", name), a->n_embd, q_width, &l->o,
				    err)) != 0 ||
	    (rc = model_load_gate_up(m, i, err)) != 0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "ffn_down.weight", name), a->n_embd, a->n_ff, &l->down,
				    err)) != 0)
		return rc;
	l->attn = (struct kn_attn){.scale = a->attn_scale, .q_row = l->qkv.data != NULL ? l->qkv.n_out : 0};
	l->rope = &m->rope;
	return load_vectors(m, i, err);
}

/* ---- the forward pass ---- */

int encoder_begin(struct model *m, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int rc = 0;
	if (m->types != NULL)
		rc = o->embed_add(b, m->types, KN_EMBED_TYPE, a->n_embd, m->x);
	if (rc == 0 && m->positions != NULL)
		rc = o->embed_add(b, m->positions, KN_EMBED_POS, a->n_embd, m->x);
	return rc != 0 ? rc
		       : o->layernorm(b, m->x, NULL, m->embed_norm, m->embed_norm_bias, a->rms_eps, n, a->n_embd, m->x);
}

int encoder_layer(struct model *m, int i, int n, const struct kn_kv *kv)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	const struct layer *l = &m->layers[i];
	float *added = m->normed;
	int rc;
	if ((rc = model_project(m, l, m->x, n, kv, i)) != 0 ||
	    (rc = o->attention(b, l->qkv.data != NULL ? m->qkv : m->q, a->n_heads, kv, i, &l->attn, m->attn)) != 0 ||
	    (rc = o->matmul(b, &l->o, m->attn, n, added)) != 0 ||
	    (rc = model_add_bias(m, added, l->o_bias, n, a->n_embd)) != 0 ||
	    (rc = o->layernorm(b, m->x, added, l->attn_norm, l->attn_norm_bias, a->rms_eps, n, a->n_embd, m->x)) != 0 ||
	    (rc = model_widen(m, l, m->x, n)) != 0 || (rc = o->matmul(b, &l->down, m->gate, n, added)) != 0 ||
	    (rc = model_add_bias(m, added, l->down_bias, n, a->n_embd)) != 0)
		return rc;
	return o->layernorm(b, m->x, added, l->ffn_norm, l->ffn_norm_bias, a->rms_eps, n, a->n_embd, m->x);
}
