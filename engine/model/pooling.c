/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduces a text's rows after the last layer: to their mean, the first or the last row, or the score that a head
 * computes from the first. A mean is a sum that is kept from step to step, one row per slot.
 */
#include "engine/model/model_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "kernels/hadamard.h"
#include "kernels/kv_type.h"

int model_set_pooling(struct model_arch *a, const char *name, struct sl_err *err)
{
	static const char *const names[] = {"none", "mean", "cls", "last"}; /* in the order of enum arch_pooling */
	if (name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0)
		return 0;
	int i = 0, n = (int)(sizeof names / sizeof *names);
	while (i < n && strcmp(names[i], name) != 0)
		i++;
	if (i == n)
		return sl_errf(err, SL_EINVAL,
			       "pooling '%.16s' is not supported (supported: auto, none, mean, cls, last)", name);
	if (a->pooling == ARCH_POOL_RANK)
		return sl_errf(err, SL_EINVAL, "this model scores pairs of texts: it has no other pooling");
	if ((i == ARCH_POOL_CLS && !a->encoder) || (i == ARCH_POOL_NONE && a->encoder))
		return sl_errf(err, SL_EINVAL, "pooling '%s' is not for %s", name,
			       a->encoder ? "an encoder, which makes nothing else"
					  : "a model whose first row sees nothing");
	a->pooling = (enum arch_pooling)i;
	return 0;
}

unsigned model_does(const struct model_arch *a)
{
	unsigned does = a->encoder ? 0 : PROTO_DOES_GENERATE;
	if (a->pooling == ARCH_POOL_RANK)
		return does | PROTO_DOES_RANK;
	if (a->pooling == ARCH_POOL_NONE)
		return does;
	return does | PROTO_DOES_EMBED | (a->shortens ? PROTO_DOES_SHORTEN : 0);
}

struct kn_kv model_kv_layout(const struct model_arch *a, int type, int page_tokens, int n_layers)
{
	return (struct kn_kv){.type = type,
			      .page_tokens = page_tokens,
			      .n_layers = n_layers,
			      .n_kv_heads = a->n_kv_heads,
			      .head_dim = a->head_dim,
			      .latent = a->latent.n};
}

int model_kv_rotation_from_name(const char *name)
{
	static const char *const names[] = {"auto", "on", "off"}; /* in the order of enum model_kv_rotation */
	if (name == NULL || name[0] == '\0')
		return MODEL_ROTATE_AUTO;
	for (int i = 0; i < 3; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

/* One scale for a head's elements: a large channel leaves few steps to the others. Floats have their own exponents
 * (tests/bench/results/quality-0.1.0.md). */
int model_kv_rotated(const struct model_arch *a, int type, enum model_kv_rotation how, const struct kn_ops *ops)
{
	bool on = how == MODEL_ROTATE_ON || (how == MODEL_ROTATE_AUTO && type == KN_KV_Q8 && ops->rotates);
	int block = kn_hadamard_block(a->head_dim);
	block = block < KN_MAX_ROTATED ? block : KN_MAX_ROTATED;
	return !on || a->latent.n > 0 || block == 1 ? 0 : block;
}

int model_kv_type(const struct model_arch *a, const struct kn_ops *ops)
{
	return a->pooling != ARCH_POOL_NONE && ops->kv_type(KN_F32) ? KN_F32 : kn_kv_type_auto(ops);
}

int model_pooled_width(const struct model *m)
{
	const struct model_arch *a = &m->info.arch;
	return a->pooling == ARCH_POOL_NONE ? 0 : a->pooling == ARCH_POOL_RANK ? 1 : a->n_embd;
}

static int load_rank(struct model *m, struct sl_err *err)
{
	int n = m->info.arch.n_embd, rc = 0;
	if (m->info.arch.rank_dense && ((rc = model_load_matrix(m, "cls.weight", n, n, &m->rank_dense, err)) != 0 ||
					(rc = model_load_vector(m, "cls.bias", n, 0, &m->rank_dense_bias, err)) != 0))
		return rc;
	if ((rc = model_load_matrix(m, "cls.output.weight", 1, n, &m->rank_out, err)) != 0)
		return rc;
	return model_load_vector(m, "cls.output.bias", 1, 0, &m->rank_out_bias, err);
}

int pooling_load(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	/* BERT's pooler was trained for next-sentence prediction; no pooling uses it. */
	static const char *const pooler[] = {"cls.weight", "cls.bias"};
	for (int i = 0; i < 2 && a->encoder && a->pooling != ARCH_POOL_RANK; i++)
		if (model_file_find(m->file, pooler[i]) != NULL)
			model_take_tensor(m, pooler[i], err);
	if (a->pooling == ARCH_POOL_NONE)
		return 0;
	if (a->n_embd > PROTO_MAX_EMBEDDING)
		return sl_errf(err, SL_ELIMIT, "%s: embeddings of %d numbers; at most %d are supported",
			       model_file_path(m->file), a->n_embd, PROTO_MAX_EMBEDDING);
	m->picks = sl_zalloc_n((size_t)m->max_rows, sizeof *m->picks);
	m->runs = sl_zalloc_n((size_t)m->max_rows, sizeof *m->runs);
	if (m->picks == NULL || m->runs == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	return a->pooling == ARCH_POOL_RANK ? load_rank(m, err) : 0;
}

/* Normalises n rows from x to y, if the family has a norm after its layers. */
static int norm(struct model *m, const float *x, int n, float *y)
{
	const struct model_arch *a = &m->info.arch;
	return m->ops->rmsnorm(m->backend, x, m->output_norm, a->rms_eps, n, a->n_embd, y);
}

static int run_mean(struct model *m, const struct model_pooling *p, int n)
{
	size_t width = (size_t)m->info.arch.n_embd;
	const float *rows = m->output_norm != NULL ? m->normed : m->x;
	int rc = m->output_norm != NULL ? norm(m, m->x, n, m->normed) : 0;
	for (int i = 0; i < p->n; i++)
		m->runs[i] = p->texts[i].at;
	if (rc == 0)
		rc = m->ops->pool_rows(m->backend, rows, m->runs, p->n, (int)width, m->sums);
	for (int i = 0; i < p->n && rc == 0; i++)
		if (p->texts[i].ends)
			rc = m->ops->read_back(m->backend, m->sums + (size_t)p->texts[i].at.slot * width, width,
					       p->out + (size_t)i * width);
	return rc;
}

/* Scores n rows of m->normed: m->gate [n]. */
static int score(struct model *m, int n)
{
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int width = m->info.arch.n_embd, rc;
	const float *from = m->normed;
	if (m->info.arch.rank_dense) {
		if ((rc = o->matmul(b, &m->rank_dense, m->normed, n, m->attn)) != 0 ||
		    (rc = o->add_row(b, m->attn, m->rank_dense_bias, n, width)) != 0 ||
		    (rc = o->softcap(b, m->attn, 1, n, width)) != 0) /* 1 · tanh(x / 1) */
			return rc;
		from = m->attn;
	}
	if ((rc = o->matmul(b, &m->rank_out, from, n, m->gate)) != 0)
		return rc;
	return o->add_row(b, m->gate, m->rank_out_bias, n, 1);
}

/* Copies one row of each text that ends into m->normed. Returns how many. */
static int pick(struct model *m, const struct model_pooling *p, int *n)
{
	const struct model_arch *a = &m->info.arch;
	*n = 0;
	for (int i = 0; i < p->n; i++) {
		const struct kn_text *t = &p->texts[i].at;
		if (p->texts[i].ends)
			m->picks[(*n)++] = a->pooling == ARCH_POOL_LAST ? t->row + t->n_rows - 1 : t->row;
	}
	int rc = *n > 0 ? m->ops->gather(m->backend, m->x, m->picks, *n, a->n_embd, m->normed) : 0;
	return rc == 0 && *n > 0 && m->output_norm != NULL ? norm(m, m->normed, *n, m->normed) : rc;
}

static int run_picked(struct model *m, const struct model_pooling *p)
{
	size_t width = (size_t)model_pooled_width(m);
	bool ranks = m->info.arch.pooling == ARCH_POOL_RANK;
	const float *from = ranks ? m->gate : m->normed;
	int n, rc = pick(m, p, &n);
	if (rc == 0 && n > 0 && ranks)
		rc = score(m, n);
	for (int i = 0, k = 0; i < p->n && rc == 0; i++)
		if (p->texts[i].ends)
			rc = m->ops->read_back(m->backend, from + (size_t)k++ * width, width,
					       p->out + (size_t)i * width);
	return rc;
}

int pooling_run(struct model *m, const struct model_pooling *p, int n)
{
	return m->info.arch.pooling == ARCH_POOL_MEAN ? run_mean(m, p, n) : run_picked(m, p);
}
