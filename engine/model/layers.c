/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers as they are loaded: which tensors each has, by its family's description.
 */
#include "engine/model/model_priv.h"

#include <stdio.h>

#include "base/alloc.h"

/* Queries with gates of the output are not joined with keys and values. */
static int load_gated_qkv(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, rc;
	char name[64];
	if ((rc = model_load_matrix(m, model_in_layer(i, "attn_q.weight", name), 2 * q_width, a->n_embd, &l->q, err)) !=
		0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "attn_k.weight", name), kv_width, a->n_embd, &l->k, err)) != 0)
		return rc;
	return model_load_matrix(m, model_in_layer(i, "attn_v.weight", name), kv_width, a->n_embd, &l->v, err);
}

/* q, k and v, or all three in one matrix. */
int model_load_qkv(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, rc;
	char name[64], names[3][64];
	if (a->attn_gate)
		return load_gated_qkv(m, i, err);
	if (model_file_find(m->file, model_in_layer(i, "attn_qkv.weight", name)) != NULL) {
		const struct model_tensor *t = NULL;
		if (m->ops->weight_load_joined != NULL)
			return model_load_matrix(m, name, q_width + 2 * kv_width, a->n_embd, &l->qkv, err);
		if ((rc = model_find_matrix(m, name, q_width + 2 * kv_width, a->n_embd, &t, err)) != 0 ||
		    (rc = model_load_rows(m, t, 0, q_width, a->n_embd, &l->q, err)) != 0 ||
		    (rc = model_load_rows(m, t, q_width, kv_width, a->n_embd, &l->k, err)) != 0 ||
		    (rc = model_load_rows(m, t, q_width + kv_width, kv_width, a->n_embd, &l->v, err)) != 0)
			return rc;
		if (l->q.data != t->data)
			model_file_let_go(m->file, t);
		return 0;
	}
	const char *const all[] = {model_in_layer(i, "attn_q.weight", names[0]),
				   model_in_layer(i, "attn_k.weight", names[1]),
				   model_in_layer(i, "attn_v.weight", names[2])};
	/* A joined product's norm is of each head. */
	rc = a->qk_norm_row
		 ? SL_EUNSUPPORTED
		 : model_load_joined(m, all, (const int[]){q_width, kv_width, kv_width}, 3, a->n_embd, &l->qkv, err);
	if (rc != SL_EUNSUPPORTED)
		return rc;
	if ((rc = model_load_matrix(m, model_in_layer(i, "attn_q.weight", name), q_width, a->n_embd, &l->q, err)) !=
		0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "attn_k.weight", name), kv_width, a->n_embd, &l->k, err)) != 0)
		return rc;
	return model_load_matrix(m, model_in_layer(i, "attn_v.weight", name), kv_width, a->n_embd, &l->v, err);
}

/* gate and up, or both in ffn_up; or up alone. */
int model_load_gate_up(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	char name[64], names[2][64];
	int rc;
	if (a->ungated)
		return model_load_matrix(m, model_in_layer(i, "ffn_up.weight", name), a->n_ff, a->n_embd, &l->up, err);
	if (model_file_find(m->file, model_in_layer(i, "ffn_gate.weight", name)) == NULL) {
		const struct model_tensor *t = NULL;
		if (m->ops->weight_load_joined != NULL)
			return model_load_matrix(m, model_in_layer(i, "ffn_up.weight", name), 2 * a->n_ff, a->n_embd,
						 &l->gate_up, err);
		if ((rc = model_find_matrix(m, model_in_layer(i, "ffn_up.weight", name), 2 * a->n_ff, a->n_embd, &t,
					    err)) != 0 ||
		    (rc = model_load_rows(m, t, 0, a->n_ff, a->n_embd, &l->gate, err)) != 0 ||
		    (rc = model_load_rows(m, t, a->n_ff, a->n_ff, a->n_embd, &l->up, err)) != 0)
			return rc;
		if (l->gate.data != t->data)
			model_file_let_go(m->file, t);
		return 0;
	}
	const char *const both[] = {model_in_layer(i, "ffn_gate.weight", names[0]),
				    model_in_layer(i, "ffn_up.weight", names[1])};
	if ((rc = model_load_joined(m, both, (const int[]){a->n_ff, a->n_ff}, 2, a->n_embd, &l->gate_up, err)) !=
	    SL_EUNSUPPORTED)
		return rc;
	if ((rc = model_load_matrix(m, name, a->n_ff, a->n_embd, &l->gate, err)) != 0)
		return rc;
	return model_load_matrix(m, model_in_layer(i, "ffn_up.weight", name), a->n_ff, a->n_embd, &l->up, err);
}

/* Of queries, keys and values: joined like their products. */
int model_load_biases(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, rc;
	bool joined = l->qkv.data != NULL;
	char name[64];
	if ((rc = model_alloc_floats(m, "biases", (size_t)(joined ? q_width + 2 * kv_width : q_width), &l->q_bias,
				     err)) != 0 ||
	    (!joined && (rc = model_alloc_floats(m, "biases", (size_t)kv_width, &l->k_bias, err)) != 0) ||
	    (!joined && (rc = model_alloc_floats(m, "biases", (size_t)kv_width, &l->v_bias, err)) != 0))
		return rc;
	float *k = joined ? l->q_bias + q_width : l->k_bias, *v = joined ? k + kv_width : l->v_bias;
	if (model_file_find(m->file, model_in_layer(i, "attn_qkv.bias", name)) != NULL) {
		int all = q_width + 2 * kv_width;
		if ((rc = model_put_part(m, name, all, 0, q_width, 0, l->q_bias, err)) != 0 ||
		    (rc = model_put_part(m, name, all, q_width, kv_width, 0, k, err)) != 0)
			return rc;
		return model_put_part(m, name, all, q_width + kv_width, kv_width, 0, v, err);
	}
	if ((rc = model_put_part(m, model_in_layer(i, "attn_q.bias", name), q_width, 0, q_width, 0, l->q_bias, err)) !=
		0 ||
	    (rc = model_put_part(m, model_in_layer(i, "attn_k.bias", name), kv_width, 0, kv_width, 0, k, err)) != 0)
		return rc;
	return model_put_part(m, model_in_layer(i, "attn_v.bias", name), kv_width, 0, kv_width, 0, v, err);
}

static int load_dense(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	char name[64];
	l->n_ff = a->n_ff;
	int rc = model_load_gate_up(m, i, err);
	return rc != 0 ? rc
		       : model_load_matrix(m, model_in_layer(i, "ffn_down.weight", name), a->n_embd, a->n_ff, &l->down,
					   err);
}

/* The gains of a norm that has none. */
static int load_ones(struct model *m, int n, float **out, struct sl_err *err)
{
	float ones[ARCH_MAX_ROT * 2];
	for (int i = 0; i < n; i++)
		ones[i] = 1;
	return model_put_floats(m, "of ones", ones, (size_t)n, out, err);
}

static int load_layer(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, v_width = arch_value_width(a);
	float gain = a->norm_gain_offset;
	bool two = a->parallel == ARCH_PARALLEL_TWO_NORMS, mixes = arch_mixes(a, i), attends = arch_attends(a, i);
	bool dense = arch_has_ff(a, i) && !mixes;
	const char *second = a->attn_norm_is_2 ? "attn_norm" : a->ffn_norm_is_post ? "post_attention_norm" : "ffn_norm";
	const char *first = a->attn_norm_is_2 ? "attn_norm_2" : "attn_norm";
	bool has_first = !a->no_pre_norms;
	bool has_second = has_first && !a->one_half && (a->parallel == ARCH_PARALLEL_NONE || two);
	const struct {
		bool has;
		const char *name, *kind;
		int n;
		float offset;
		float **out;
	} vectors[] = {
	    {has_first, first, "weight", a->n_embd, gain, &l->attn_norm},
	    {has_first && a->norm_biases, first, "bias", a->n_embd, 0, &l->attn_norm_bias},
	    {has_second, second, "weight", a->n_embd, gain, &l->ffn_norm},
	    {has_second && a->norm_biases, second, "bias", a->n_embd, 0, &l->ffn_norm_bias},
	    {a->post_norms, "post_attention_norm", "weight", a->n_embd, gain, &l->post_attn_norm},
	    {a->post_norms, "post_ffw_norm", "weight", a->n_embd, gain, &l->post_ffn_norm},
	    {attends && a->o_bias, "attn_output", "bias", a->n_embd, 0, &l->o_bias},
	    {dense && a->ff_biases, "ffn_up", "bias", a->n_ff, 0, &l->up_bias},
	    {dense && a->ff_biases, "ffn_down", "bias", a->n_embd, 0, &l->down_bias},
	    {attends && a->sinks, "attn_sinks", "weight", a->n_heads, 0, &l->sinks},
	    {attends && a->qk_norm, "attn_q_norm", "weight", a->qk_norm_row ? q_width : a->head_dim, gain, &l->q_norm},
	    {attends && a->qk_norm, "attn_k_norm", "weight", a->qk_norm_row ? kv_width : a->head_dim, gain, &l->k_norm},
	};
	char name[64];
	if (a->encoder)
		return encoder_load_layer(m, i, err);
	int rc = arch_recurs(a, i) ? recurrent_load(m, i, err)
		 : !attends        ? 0
		 : a->latent.n > 0 ? latent_load(m, i, err)
				   : model_load_qkv(m, i, err);
	if (rc == 0 && attends && a->qkv_bias)
		rc = model_load_biases(m, i, err);
	if (rc == 0 && attends)
		rc =
		    model_load_matrix(m, model_in_layer(i, "attn_output.weight", name), a->n_embd, v_width, &l->o, err);
	if (rc == 0)
		rc = mixes ? experts_load(m, i, err) : dense ? load_dense(m, i, err) : 0;
	for (size_t k = 0; k < sizeof vectors / sizeof *vectors && rc == 0; k++)
		if (vectors[k].has) {
			char what[40];
			snprintf(what, sizeof what, "%s.%s", vectors[k].name, vectors[k].kind);
			rc = model_load_vector(m, model_in_layer(i, what, name), vectors[k].n, vectors[k].offset,
					       vectors[k].out, err);
		}
	if (rc == 0 && a->qk_norm_plain && arch_turns(a, i)) {
		rc = load_ones(m, a->head_dim, &l->q_norm, err);
		rc = rc == 0 ? load_ones(m, a->head_dim, &l->k_norm, err) : rc;
	}
	int window = arch_window(a, i);
	l->attn = (struct kn_attn){.scale = a->attn_scale,
				   .softcap = a->attn_softcap,
				   .window = window,
				   .chunked = window > 0 && a->window_chunked,
				   .sinks = l->sinks};
	if (l->qkv.data != NULL)
		l->attn.q_row = l->qkv.n_out;
	l->rope = !arch_turns(a, i) ? &m->no_rope : window > 0 ? &m->rope_windowed : &m->rope;
	return rc;
}

int layers_load(struct model *m, struct sl_err *err)
{
	int n = model_n_layers(m), rc = 0;
	m->layers = sl_zalloc_n((size_t)n, sizeof *m->layers);
	if (m->layers == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	for (int i = 0; i < n && rc == 0; i++)
		rc = load_layer(m, i, err);
	return rc;
}

void layers_free(struct model *m)
{
	for (int i = 0; m->layers != NULL && i < model_n_layers(m); i++) {
		struct layer *l = &m->layers[i];
		struct kn_weight *weights[] = {&l->q,  &l->k,    &l->v,   &l->o,      &l->gate,
					       &l->up, &l->down, &l->qkv, &l->gate_up};
		for (size_t k = 0; k < sizeof weights / sizeof weights[0]; k++)
			model_free_weight(m, weights[k]);
		experts_free(m, l->experts);
		latent_free(m, l->latent);
		recurrent_free(m, l->recurrent);
		float *vectors[] = {l->attn_norm, l->ffn_norm,       l->post_attn_norm, l->post_ffn_norm,
				    l->q_norm,    l->k_norm,         l->q_bias,         l->k_bias,
				    l->v_bias,    l->attn_norm_bias, l->ffn_norm_bias,  l->o_bias,
				    l->up_bias,   l->down_bias,      l->sinks};
		for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++)
			model_free_floats(m, vectors[k]);
	}
	sl_free(m->layers);
}
