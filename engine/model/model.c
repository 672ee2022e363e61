/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading a model; forward.c runs it. Everything that the forward pass needs is looked up by name, checked
 * against the shape that the head promises, and given to the backend before the model is called
 * READY; after that nothing can be missing.
 *
 * Activations live in buffers of the backend, allocated once for max_rows. The file's mapping stays
 * open as long as the model, because a backend may use weights in place.
 */
#include "engine/model/model_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/model/adapters.h"
#include "engine/model/rope.h"
#include "kernels/quantize.h"

/* ---- the head's metadata ---- */

/* What follows "blk.N." in a tensor's name, and N; NULL: it belongs to no layer. */
static const char *in_a_layer(const char *name, long *layer)
{
	char *end;
	if (strncmp(name, "blk.", 4) != 0)
		return NULL;
	*layer = strtol(name + 4, &end, 10);
	return end > name + 4 && *end == '.' ? end + 1 : NULL;
}

/* "blk.3.ffn_up_exps.weight", "blk.3.ffn_up.7.weight" */
static bool is_expert(const char *name)
{
	long layer;
	const char *what = in_a_layer(name, &layer);
	if (what == NULL || strncmp(what, "ffn_", 4) != 0)
		return false;
	const char *dot = strchr(what, '.');
	return strstr(what, "_exps.") != NULL || (dot != NULL && dot[1] >= '0' && dot[1] <= '9');
}

static void read_info(const struct model_file *f, struct model_info *info)
{
	snprintf(info->name, sizeof info->name, "%.63s", model_file_name(f));
	snprintf(info->note, sizeof info->note, "%s", model_file_note(f));
	info->file_bytes = model_file_bytes(f);
	info->n_params = info->expert_bytes = info->n_expert_params = 0;
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	info->embed_bytes = embed != NULL ? embed->bytes : 0;

	int counts[64] = {0};
	for (size_t i = 0; i < model_file_n_tensors(f); i++) {
		const struct model_tensor *t = model_file_tensor_at(f, i);
		uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		bool expert = is_expert(t->name);
		info->n_params += n;
		info->n_expert_params += expert ? n : 0;
		info->expert_bytes += expert ? t->bytes : 0;
		if (t->type >= 0 && t->type < 64)
			counts[t->type]++;
	}
	size_t at = 0;
	for (int type = 0; type < 64; type++)
		if (counts[type] > 0 && at < sizeof info->weight_types)
			at += (size_t)snprintf(info->weight_types + at, sizeof info->weight_types - at, "%s%s ×%d",
					       at ? ", " : "", kn_type_name(type), counts[type]);
}

int model_inspect(const char *path, struct model_info *out, struct sl_err *err)
{
	struct model_file *f;
	int rc = model_file_open(path, &f, err);
	if (rc != 0)
		return rc;
	*out = (struct model_info){0};
	read_info(f, out);
	rc = model_file_arch(f, &out->arch, err);
	model_file_close(f);
	return rc;
}

/* ---- loading ---- */

static int unknown_type(const struct model *m, const struct model_tensor *t, struct sl_err *err)
{
	return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which is not supported",
		       model_file_path(m->file), t->name, kn_type_name(t->type));
}

/* The tensor of that name, marked as used; NULL with *err when there is none. */
const struct model_tensor *model_take_tensor(struct model *m, const char *name, struct sl_err *err)
{
	const struct model_tensor *t = model_file_find(m->file, name);
	if (t == NULL)
		sl_errf(err, SL_EINVAL, "%s: tensor %s is missing", model_file_path(m->file), name);
	else
		m->used[t - model_file_tensor_at(m->file, 0)] = true;
	return t;
}

/* The layers after the last that computes the next token are for drafts, which are made otherwise. */
static bool drafts(const struct model *m, const char *name)
{
	const struct model_arch *a = &m->info.arch;
	long layer;
	return in_a_layer(name, &layer) != NULL && layer >= a->n_layers && layer < a->n_layers + a->n_drafting;
}

/* A tensor that this forward pass left out (a bias, for example) would silently change every answer. */
static int check_all_used(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < model_file_n_tensors(m->file); i++)
		if (!m->used[i] && !drafts(m, model_file_tensor_at(m->file, i)->name))
			return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is not supported by this version",
				       model_file_path(m->file), model_file_tensor_at(m->file, i)->name);
	return 0;
}

static int wrong_shape(const struct model *m, const struct model_tensor *t, int n, int n_out, int n_in,
		       struct sl_err *err)
{
	const unsigned long long dims[] = {t->dims[0], t->dims[1], t->dims[2]};
	if (n == 0)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is %llu × %llu, not %d × %d", model_file_path(m->file),
			       t->name, dims[0], dims[1], n_in, n_out);
	return sl_errf(err, SL_EINVAL, "%s: tensor %s is %llu × %llu × %llu, not %d × %d × %d",
		       model_file_path(m->file), t->name, dims[0], dims[1], dims[2], n_in, n_out, n);
}

/* The tensor of that name, marked as used: n matrices [n_out][n_in]; 0: one of two dimensions, or a row of one. */
static int find_matrices(struct model *m, const char *name, int n, int n_out, int n_in, const struct model_tensor **out,
			 struct sl_err *err)
{
	const struct model_tensor *t = model_take_tensor(m, name, err);
	if (t == NULL)
		return SL_EINVAL;
	*out = t;
	if (kn_type_block(t->type) == 0)
		return unknown_type(m, t, err);
	bool flat = t->n_dims == 2 || (t->n_dims == 1 && n_out == 1);
	/* Some writers leave out last dimensions of one. */
	bool several = t->n_dims == 3 || (t->n_dims == 2 && n == 1);
	bool fits = n == 0 ? flat : several && t->dims[2] == (uint64_t)n;
	if (!fits || t->dims[0] != (uint64_t)n_in || t->dims[1] != (uint64_t)n_out)
		return wrong_shape(m, t, n, n_out, n_in, err);
	return model_file_bring(m->file, t, err);
}

int model_find_matrix(struct model *m, const char *name, int n_out, int n_in, const struct model_tensor **out,
		      struct sl_err *err)
{
	return find_matrices(m, name, 0, n_out, n_in, out, err);
}

int model_load_matrix(struct model *m, const char *name, int n_out, int n_in, struct kn_weight *out, struct sl_err *err)
{
	const struct model_tensor *t = NULL;
	int rc = model_find_matrix(m, name, n_out, n_in, &t, err);
	if (rc == 0)
		rc = weight_store_load(m->store, t, 0, n_out, n_in, out, err);
	if (rc == 0 && out->data != t->data)
		model_file_let_go(m->file, t);
	return rc;
}

/* Rows first_row and on of a matrix that the family keeps fused with others: a view of its own. */
int model_load_rows(struct model *m, const struct model_tensor *t, int first_row, int n_out, int n_in,
		    struct kn_weight *out, struct sl_err *err)
{
	return weight_store_load(m->store, t, first_row, n_out, n_in, out, err);
}

int model_load_matrices(struct model *m, const char *name, int n, int n_out, int n_in, struct kn_weight *out,
			struct sl_err *err)
{
	const struct model_tensor *t = NULL;
	int rc = find_matrices(m, name, n, n_out, n_in, &t, err);
	for (int i = 0; i < n && rc == 0; i++)
		rc = model_load_rows(m, t, i * n_out, n_out, n_in, &out[i], err);
	if (rc == 0 && out[0].data != t->data)
		model_file_let_go(m->file, t);
	return rc;
}

/* Matrices of one width below one another, as one: SL_EUNSUPPORTED, and nothing else has changed, where the backend or
 * their types don't allow it. */
static int load_joined(struct model *m, const char *const *names, const int *n_outs, int n, int n_in,
		       struct kn_weight *out, struct sl_err *err)
{
	const struct model_tensor *t[WEIGHT_STORE_JOINED];
	int rc = m->ops->weight_load_joined == NULL ? SL_EUNSUPPORTED : 0;
	for (int i = 0; i < n && rc == 0; i++) {
		rc = model_find_matrix(m, names[i], n_outs[i], n_in, &t[i], err);
		if (rc == 0 && t[i]->type != t[0]->type)
			rc = SL_EUNSUPPORTED;
	}
	if (rc == 0)
		rc = weight_store_load_joined(m->store, t, n, out, err);
	for (int i = 0; i < n && rc == 0; i++)
		model_file_let_go(m->file, t[i]);
	return rc;
}

/* n floats of the backend, in *out; whatever comes of it, model_free gives them back. */
int model_alloc_floats(struct model *m, const char *what, size_t n, float **out, struct sl_err *err)
{
	void *p = NULL;
	if (m->ops->mem_alloc(m->backend, n * sizeof(float), &p) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %s of %zu floats", model_file_path(m->file), what, n);
	*out = p;
	return 0;
}

/* The tensor of that name, of `all` floats in up to three dimensions, in memory. */
static int find_floats(struct model *m, const char *name, int all, const struct model_tensor **out, struct sl_err *err)
{
	const struct model_tensor *t = model_take_tensor(m, name, err);
	if (t == NULL)
		return SL_EINVAL;
	if (t->n_dims > 3 || t->dims[0] * t->dims[1] * t->dims[2] != (uint64_t)all ||
	    (t->type != KN_F32 && t->type != KN_F16 && t->type != KN_BF16))
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is not a vector of %d floats", model_file_path(m->file),
			       name, all);
	*out = t;
	return model_file_bring(m->file, t, err);
}

/* n floats from number `first` on of a vector of `all`. */
static int host_part(struct model *m, const char *name, int all, int first, int n, float **out, struct sl_err *err)
{
	const struct model_tensor *t = NULL;
	int rc = find_floats(m, name, all, &t, err);
	if (rc != 0)
		return rc;
	float *host = *out = sl_zalloc_n((size_t)n, sizeof *host);
	if (host == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for tensor %s of %d floats", model_file_path(m->file),
			       name, n);
	kn_dequantize(t->type, (const uint8_t *)t->data + (size_t)first * kn_type_block_bytes(t->type), (size_t)n,
		      host);
	if (t->made != NULL)
		model_file_let_go(m->file, t);
	return 0;
}

int model_host_floats(struct model *m, const char *name, int n, float **out, struct sl_err *err)
{
	return host_part(m, name, n, 0, n, out, err);
}

/* Such floats, brought to the backend, with offset added to each. */
static int put_part(struct model *m, const char *name, int all, int first, int n, float offset, float *to,
		    struct sl_err *err)
{
	float *host = NULL;
	int rc = host_part(m, name, all, first, n, &host, err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < n; i++)
		host[i] += offset;
	rc = m->ops->upload(m->backend, to, host, (size_t)n);
	sl_free(host);
	return rc == 0
		   ? 0
		   : sl_errf(err, rc, "%s: tensor %s can't be brought to the device", model_file_path(m->file), name);
}

static int put_vector(struct model *m, const char *name, int n, float offset, float *to, struct sl_err *err)
{
	return put_part(m, name, n, 0, n, offset, to, err);
}

int model_load_vector(struct model *m, const char *name, int n, float offset, float **out, struct sl_err *err)
{
	int rc = model_alloc_floats(m, name, (size_t)n, out, err);
	return rc != 0 ? rc : put_vector(m, name, n, offset, *out, err);
}

/* The gains of a norm that has none. */
static int load_ones(struct model *m, int n, float **out, struct sl_err *err)
{
	float ones[ARCH_MAX_ROT * 2];
	for (int i = 0; i < n; i++)
		ones[i] = 1;
	int rc = model_alloc_floats(m, "gains", (size_t)n, out, err);
	if (rc == 0 && (rc = m->ops->upload(m->backend, *out, ones, (size_t)n)) != 0)
		sl_errf(err, rc, "%s: gains can't be brought to the device", model_file_path(m->file));
	return rc;
}

const char *model_in_layer(int i, const char *what, char name[64])
{
	snprintf(name, 64, "blk.%d.%s", i, what);
	return name;
}

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
		 : load_joined(m, all, (const int[]){q_width, kv_width, kv_width}, 3, a->n_embd, &l->qkv, err);
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
	if ((rc = load_joined(m, both, (const int[]){a->n_ff, a->n_ff}, 2, a->n_embd, &l->gate_up, err)) !=
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
		if ((rc = put_part(m, name, all, 0, q_width, 0, l->q_bias, err)) != 0 ||
		    (rc = put_part(m, name, all, q_width, kv_width, 0, k, err)) != 0)
			return rc;
		return put_part(m, name, all, q_width + kv_width, kv_width, 0, v, err);
	}
	if ((rc = put_vector(m, model_in_layer(i, "attn_q.bias", name), q_width, 0, l->q_bias, err)) != 0 ||
	    (rc = put_vector(m, model_in_layer(i, "attn_k.bias", name), kv_width, 0, k, err)) != 0)
		return rc;
	return put_vector(m, model_in_layer(i, "attn_v.bias", name), kv_width, 0, v, err);
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

static int load_layer(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, v_width = arch_value_width(a);
	float gain = a->norm_gain_offset;
	bool two = a->parallel == ARCH_PARALLEL_TWO_NORMS, dense = !arch_mixes(a, i), attends = !arch_recurs(a, i);
	const char *second = a->attn_norm_is_2 ? "attn_norm" : a->ffn_norm_is_post ? "post_attention_norm" : "ffn_norm";
	const char *first = a->attn_norm_is_2 ? "attn_norm_2" : "attn_norm";
	bool has_first = !a->no_pre_norms, has_second = has_first && (a->parallel == ARCH_PARALLEL_NONE || two);
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
	int rc = !attends          ? recurrent_load(m, i, err)
		 : a->latent.n > 0 ? latent_load(m, i, err)
				   : model_load_qkv(m, i, err);
	if (rc == 0 && attends && a->qkv_bias)
		rc = model_load_biases(m, i, err);
	if (rc == 0 && attends)
		rc =
		    model_load_matrix(m, model_in_layer(i, "attn_output.weight", name), a->n_embd, v_width, &l->o, err);
	if (rc == 0)
		rc = arch_mixes(a, i) ? experts_load(m, i, err) : load_dense(m, i, err);
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

/* Vectors between the last layer and the logits. */
static int load_output(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	char name[64];
	snprintf(name, sizeof name, "%s.weight", a->norm_name != NULL ? a->norm_name : "output_norm");
	int rc = model_load_vector(m, name, a->n_embd, a->norm_gain_offset, &m->output_norm, err);
	if (rc == 0 && a->norm_biases)
		rc = model_load_vector(m, "output_norm.bias", a->n_embd, 0, &m->output_norm_bias, err);
	if (rc == 0 && a->head_bias)
		rc = model_load_vector(m, "output.bias", a->n_vocab, 0, &m->head_bias, err);
	return rc;
}

static int load_weights(struct model *m, struct sl_err *err)
{
	struct model_arch *a = &m->info.arch;
	if (a->sinks && !m->ops->sinks)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no attention sinks",
			       model_file_path(m->file), m->ops->name);
	m->layers = sl_zalloc_n((size_t)a->n_layers, sizeof *m->layers);
	m->used = sl_zalloc_n(model_file_n_tensors(m->file), sizeof *m->used);
	if (m->layers == NULL || m->used == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	int rc = model_load_matrix(m, "token_embd.weight", a->n_vocab, a->n_embd, &m->embed, err);
	if (rc == 0 && a->tied_embeddings)
		m->head = m->embed;
	else if (rc == 0)
		rc = model_load_matrix(m, "output.weight", a->n_vocab, a->n_embd, &m->head, err);
	if (rc == 0)
		rc = a->encoder ? encoder_load(m, err) : load_output(m, err);
	if (rc == 0)
		rc = pooling_load(m, err);
	/* The head's reader has these in arch.rope. */
	static const char *const ropes[] = {"rope_freqs.weight", "rope_factors_long.weight",
					    "rope_factors_short.weight"};
	for (size_t i = 0; i < sizeof ropes / sizeof *ropes && rc == 0; i++)
		if (model_file_find(m->file, ropes[i]) != NULL)
			model_take_tensor(m, ropes[i], err);
	for (int i = 0; i < a->n_layers && rc == 0; i++)
		rc = load_layer(m, i, err);
	return rc != 0 ? rc : check_all_used(m, err);
}

static int alloc_activations(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	size_t q_width = (size_t)arch_query_width(a), v_width = (size_t)arch_value_width(a);
	size_t heads = (size_t)a->n_heads, latent = (size_t)a->latent.n;
	size_t kv_width = (size_t)a->n_kv_heads * (size_t)a->head_dim, ff = 0, work = 0;
	size_t channels = (size_t)arch_channels(a), v_heads = (size_t)a->recurrent.v_heads;
	bool recurrent = arch_is_recurrent(a), delta = a->recurrent.kind == ARCH_DELTA;
	bool three = false, qkv = false, two = false, gate_up = false; /* some layer has them */
	for (int i = 0; i < a->n_layers; i++) {
		const struct layer *l = &m->layers[i];
		if (l->recurrent == NULL)
			*(l->qkv.data != NULL ? &qkv : &three) = true;
		*(l->gate_up.data != NULL ? &gate_up : &two) = true;
		ff = (size_t)l->n_ff > ff ? (size_t)l->n_ff : ff;
		if (l->experts != NULL)
			work = kn_experts_work(&l->experts->op);
	}
	const struct {
		float **out;
		size_t width;
		bool has;
	} buffers[] = {
	    {&m->x, (size_t)a->n_embd, true},
	    {&m->normed, (size_t)a->n_embd, true},
	    {&m->attn, v_width, true},
	    {&m->beside, (size_t)a->n_embd, a->parallel != ARCH_PARALLEL_NONE},
	    {&m->q, q_width, three},
	    {&m->k, kv_width, three},
	    {&m->v, kv_width, three && latent == 0},
	    {&m->q_low, (size_t)a->latent.n_query, a->latent.n_query > 0},
	    {&m->q_latent, heads * kv_width, latent > 0},
	    {&m->out_latent, heads * latent, latent > 0},
	    {&m->heads_work, latent_work(a), latent > 0},
	    {&m->gate, ff, ff > 0},
	    {&m->up, ff, two && ff > 0 && !a->ungated},
	    {&m->logits, (size_t)a->n_vocab, !a->encoder},
	    {&m->sums, (size_t)a->n_embd, a->pooling == ARCH_POOL_MEAN},
	    {&m->gate_up, 2 * ff, gate_up},
	    {&m->routed, (size_t)a->experts.n, work > 0},
	    {&m->work, work, work > 0},
	    {&m->shared, (size_t)a->n_embd, a->experts.n_ff_shared > 0},
	    {&m->shared_gate, 1, a->experts.shared_gate},
	    {&m->qkv, q_width + 2 * kv_width, qkv},
	    {&m->conv_in, delta ? channels : 3 * channels, recurrent},
	    {&m->conv_out, channels, recurrent},
	    {&m->delta, v_heads * (size_t)(a->recurrent.v_dim > 2 ? a->recurrent.v_dim : 2), delta},
	    {&m->delta_gate, v_heads * (size_t)a->recurrent.v_dim, delta},
	    {&m->beta, v_heads, delta},
	    {&m->alpha, v_heads, delta},
	    {&m->q_gated, 2 * q_width, a->attn_gate},
	    {&m->attn_gate, q_width, a->attn_gate},
	};
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
		void *p;
		size_t rows = (size_t)(buffers[i].out == &m->logits ? m->logit_rows : m->max_rows);
		size_t bytes = buffers[i].width * rows * sizeof(float);
		if (!buffers[i].has)
			continue;
		if (m->ops->mem_alloc(m->backend, bytes, &p) != 0)
			return sl_errf(err, SL_ENOMEM,
				       "%s: no memory for steps of %d rows: %zu bytes for %zu floats of each",
				       model_file_path(m->file), m->max_rows, bytes, buffers[i].width);
		*buffers[i].out = p;
	}
	return 0;
}

static int load_text(struct model *m, struct sl_err *err)
{
	int rc = model_file_tokenizer(m->file, &m->tokenizer, err);
	if (rc != 0)
		return rc;
	/* Files often have more rows than tokens, never fewer. */
	int n_vocab = m->info.arch.n_vocab;
	if (tokenizer_n_vocab(m->tokenizer) < n_vocab && tokenizer_pad(m->tokenizer, (size_t)n_vocab) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	if (tokenizer_n_vocab(m->tokenizer) != n_vocab)
		return sl_errf(err, SL_EINVAL, "%s: the tokenizer has %d tokens, token_embd.weight %d rows",
			       model_file_path(m->file), tokenizer_n_vocab(m->tokenizer), m->info.arch.n_vocab);
	m->info.text = model_file_text(m->file);
	struct proto_str source;
	rc = model_file_template(m->file, &source, err);
	if (rc == SL_ENOTFOUND)
		return 0;
	return rc != 0 ? rc : chat_template_compile(source.at, source.n, &m->template, err);
}

static int check_size(const struct model *m, uint64_t max_bytes, struct sl_err *err)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
	uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
	bool by_config = max_bytes > 0 && max_bytes < memory;
	uint64_t most = by_config ? max_bytes : memory;
	if (m->info.file_bytes <= most ||
	    (!by_config && model_file_is_random(m->file))) /* it needs the device's alone */
		return 0;
	return sl_errf(err, SL_ELIMIT, "%s: too big: the file has %llu MiB, %s %llu MiB", model_file_path(m->file),
		       (unsigned long long)(m->info.file_bytes >> 20),
		       by_config ? "engine.max_model_memory allows" : "this machine has",
		       (unsigned long long)(most >> 20));
}

static int check_types(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < model_file_n_tensors(m->file); i++) {
		const struct model_tensor *t = model_file_tensor_at(m->file, i);
		if (kn_type_block(t->type) == 0)
			return unknown_type(m, t, err);
	}
	return 0;
}

/* All that comes before the weights. */
static int open_model(struct model *m, const char *path, uint64_t max_bytes, struct sl_err *err)
{
	int rc = model_file_open(path, &m->file, err);
	if (rc != 0)
		return rc;
	read_info(m->file, &m->info);
	if ((rc = check_size(m, max_bytes, err)) != 0 || (rc = model_file_arch(m->file, &m->info.arch, err)) != 0 ||
	    (rc = check_types(m, err)) != 0)
		return rc;
	return load_text(m, err);
}

static struct kn_rope make_rope(const struct arch_rope *r, int n_ctx, double *inv_freq)
{
	rope_frequencies(r, inv_freq);
	return (struct kn_rope){.n_rot = r->n_rot,
				.halves = r->halves,
				.inv_freq = inv_freq,
				.magnitude = (float)rope_magnitude(r, n_ctx),
				.grow = r->grow,
				.grow_every = r->grow_every,
				.grow_from = r->grow_from};
}

static void set_rope(struct model *m)
{
	const struct model_arch *a = &m->info.arch;
	m->rope = make_rope(&a->rope, a->n_ctx, m->inv_freq[0]);
	m->rope_windowed = make_rope(&a->rope_windowed, a->n_ctx, m->inv_freq[1]);
	/* An angle of zero is the identity, bit for bit. */
	m->no_rope = (struct kn_rope){.n_rot = a->rope.n_rot,
				      .halves = a->rope.halves,
				      .magnitude = 1,
				      .inv_freq = m->no_freq,
				      .grow = a->still_grow,
				      .grow_every = a->still_grow_every,
				      .grow_from = 1};
}

int model_check(const char *path, uint64_t max_bytes, struct sl_err *err)
{
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	int rc = open_model(m, path, max_bytes, err);
	model_free(m);
	return rc;
}

int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows, uint64_t max_bytes,
	       struct model **out, struct sl_err *err)
{
	const struct model_how how = {0};
	return model_load_as(path, &how, ops, backend, max_rows, max_bytes, out, err);
}

/* Converted weights do not match the file's stamp: they are not cached. */
static int open_store(struct model *m, const struct model_how *how, struct sl_err *err)
{
	const struct weight_cache_config *cache = how->quantize == NULL ? how->cache : NULL;
	if (how->rearranging != NULL)
		how->rearranging->total = m->info.file_bytes;
	return weight_store_open(m->ops, m->backend, m->file, cache, how->rearranging, &m->store, err);
}

int model_load_as(const char *path, const struct model_how *how, const struct kn_ops *ops, struct kn_backend *backend,
		  int max_rows, uint64_t max_bytes, struct model **out, struct sl_err *err)
{
	const struct model_quantize *q = how->quantize;
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	m->ops = ops;
	m->backend = backend;
	m->max_rows = max_rows;
	/* Twice, because a backend may fill up the rows to a power of two. */
	m->logit_rows = how->max_want > 0 && 2 * how->max_want < max_rows ? 2 * how->max_want : max_rows;
	int rc = open_model(m, path, max_bytes, err);
	if (rc == 0)
		rc = model_set_pooling(&m->info.arch, how->pooling, err);
	if (rc == 0 && q != NULL && (rc = model_file_quantize(m->file, q->type, q->n_threads, q->progress, err)) == 0)
		read_info(m->file, &m->info);
	if (rc == 0)
		rc = open_store(m, how, err);
	if (rc == 0)
		set_rope(m);
	if (rc == 0)
		rc = load_weights(m, err);
	if (rc == 0)
		rc = alloc_activations(m, err);
	if (rc != 0) {
		model_free(m);
		return rc;
	}
	weight_store_loaded(m->store);
	*out = m;
	return 0;
}

void model_free_weight(struct model *m, struct kn_weight *w)
{
	if (w->data != NULL)
		m->ops->weight_free(m->backend, w);
}

void model_free_floats(struct model *m, float *p)
{
	if (p != NULL)
		m->ops->mem_free(m->backend, p);
}

void model_free(struct model *m)
{
	if (m == NULL)
		return;
	weight_store_close(m->store);
	adapters_free(m);
	for (int i = 0; m->layers != NULL && i < m->info.arch.n_layers; i++) {
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
	if (!m->info.arch.tied_embeddings)
		model_free_weight(m, &m->head);
	model_free_weight(m, &m->embed);
	model_free_weight(m, &m->rank_dense);
	model_free_weight(m, &m->rank_out);
	sl_free(m->picks);
	sl_free(m->runs);
	float *memory[] = {m->positions,
			   m->types,
			   m->embed_norm,
			   m->embed_norm_bias,
			   m->rank_dense_bias,
			   m->rank_out_bias,
			   m->sums,
			   m->output_norm,
			   m->output_norm_bias,
			   m->head_bias,
			   m->beside,
			   m->x,
			   m->normed,
			   m->q,
			   m->k,
			   m->v,
			   m->attn,
			   m->gate,
			   m->up,
			   m->routed,
			   m->work,
			   m->shared,
			   m->shared_gate,
			   m->logits,
			   m->qkv,
			   m->gate_up,
			   m->q_low,
			   m->q_latent,
			   m->out_latent,
			   m->heads_work,
			   m->conv_in,
			   m->conv_out,
			   m->delta,
			   m->delta_gate,
			   m->beta,
			   m->alpha,
			   m->q_gated,
			   m->attn_gate};
	for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
		model_free_floats(m, memory[i]);
	sl_free(m->layers);
	sl_free(m->used);
	chat_template_free(m->template);
	tokenizer_destroy(m->tokenizer);
	model_file_close(m->file);
	sl_free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
const struct residence *model_residence(const struct model *m) { return weight_store_residence(m->store); }
bool model_keep_weights(struct model *m) { return weight_store_finish(m->store); }
bool model_was_kept(const struct model *m) { return weight_store_was_kept(m->store); }
const struct tokenizer *model_tokenizer(const struct model *m) { return m->tokenizer; }
const struct chat_template *model_template(const struct model *m) { return m->template; }
