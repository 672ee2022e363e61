/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of a model's file: found by name, marked as used, checked against the shape that the head promises, and
 * brought to the backend. The pages of the file that a backend copied are let go of.
 */
#include "engine/model/model_priv.h"

#include <stdio.h>

#include "base/alloc.h"
#include "kernels/quantize.h"

int model_unknown_type(const struct model *m, const struct model_tensor *t, struct sl_err *err)
{
	return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which is not supported",
		       model_file_path(m->file), t->name, kn_type_name(t->type));
}

const struct model_tensor *model_take_tensor(struct model *m, const char *name, struct sl_err *err)
{
	const struct model_tensor *t = model_file_find(m->file, name);
	if (t == NULL)
		sl_errf(err, SL_EINVAL, "%s: tensor %s is missing", model_file_path(m->file), name);
	else
		m->used[t - model_file_tensor_at(m->file, 0)] = true;
	return t;
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
		return model_unknown_type(m, t, err);
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
	bool at_once = m->ops->weights_load != NULL;
	if (rc == 0 && at_once)
		rc = weight_store_load_all(m->store, t, n, n_out, n_in, out, err);
	for (int i = 0; i < n && rc == 0 && !at_once; i++)
		rc = model_load_rows(m, t, i * n_out, n_out, n_in, &out[i], err);
	if (rc == 0 && out[0].data != t->data)
		model_file_let_go(m->file, t);
	return rc;
}

int model_load_joined(struct model *m, const char *const *names, const int *n_outs, int n, int n_in,
		      struct kn_weight *out, struct sl_err *err)
{
	const struct model_tensor *t[WEIGHT_STORE_JOINED] = {NULL};
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

static int upload(struct model *m, const char *what, const float *host, size_t n, float *to, struct sl_err *err)
{
	int rc = m->ops->upload(m->backend, to, host, n);
	return rc == 0
		   ? 0
		   : sl_errf(err, rc, "%s: tensor %s can't be brought to the device", model_file_path(m->file), what);
}

int model_put_floats(struct model *m, const char *what, const float *host, size_t n, float **out, struct sl_err *err)
{
	int rc = model_alloc_floats(m, what, n, out, err);
	return rc != 0 ? rc : upload(m, what, host, n, *out, err);
}

/* Such floats, brought to the backend, with offset added to each. */
int model_put_part(struct model *m, const char *name, int all, int first, int n, float offset, float *to,
		   struct sl_err *err)
{
	float *host = NULL;
	int rc = host_part(m, name, all, first, n, &host, err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < n; i++)
		host[i] += offset;
	rc = upload(m, name, host, (size_t)n, to, err);
	sl_free(host);
	return rc;
}

int model_load_vector(struct model *m, const char *name, int n, float offset, float **out, struct sl_err *err)
{
	int rc = model_alloc_floats(m, name, (size_t)n, out, err);
	return rc != 0 ? rc : model_put_part(m, name, n, 0, n, offset, *out, err);
}

const char *model_in_layer(int i, const char *what, char name[64])
{
	snprintf(name, 64, "blk.%d.%s", i, what);
	return name;
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
