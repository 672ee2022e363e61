/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that keep a state in place of attention: LFM2's gated convolutions, and the gated delta rule of Qwen3-Next and
 * Qwen3.5; state spaces are in mamba.c. The layers' states lie one behind the other in a sequence's floats: the last
 * inputs of the convolution, then the heads' matrices.
 */
#include "engine/model/model_priv.h"

#include <math.h>

#include "base/alloc.h"

/* The convolution's taps, by position: files have them by channel. */
int recurrent_load_taps(struct model *m, int i, const char *what, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer_recurrent *x = m->layers[i].recurrent;
	int n = arch_channels(a), width = a->recurrent.conv;
	float *host = NULL, *turned = sl_zalloc_n((size_t)n * (size_t)width, sizeof *turned);
	char name[64];
	int rc = turned == NULL ? sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file)) : 0;
	if (rc == 0)
		rc = model_host_floats(m, model_in_layer(i, what, name), n * width, &host, err);
	for (int c = 0; c < n && rc == 0; c++)
		for (int k = 0; k < width; k++)
			turned[(size_t)k * (size_t)n + (size_t)c] = host[(size_t)c * (size_t)width + (size_t)k];
	if (rc == 0)
		rc = model_put_floats(m, name, turned, (size_t)n * (size_t)width, &x->taps, err);
	sl_free(host);
	sl_free(turned);
	x->conv = (struct kn_conv){.w = x->taps,
				   .n = n,
				   .width = width,
				   .gated = a->recurrent.kind == ARCH_SHORT_CONV,
				   .at = (size_t)arch_n_recurrent(a, i) * (size_t)arch_layer_state(a)};
	return rc;
}

static int load_short_conv(struct model *m, int i, struct sl_err *err)
{
	struct layer_recurrent *x = m->layers[i].recurrent;
	int n = m->info.arch.n_embd, rc;
	char name[64];
	if ((rc = model_load_matrix(m, model_in_layer(i, "shortconv.in_proj.weight", name), 3 * n, n, &x->in, err)) !=
		0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "shortconv.out_proj.weight", name), n, n, &x->out, err)) != 0)
		return rc;
	return recurrent_load_taps(m, i, "shortconv.conv.weight", err);
}

/* The decay of each head, from its logarithm where the file has that. */
int recurrent_load_decay(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer_recurrent *x = m->layers[i].recurrent;
	int n = a->recurrent.v_heads;
	float *host = NULL;
	char name[64];
	int rc = model_host_floats(m, model_in_layer(i, "ssm_a", name), n, &host, err);
	for (int h = 0; h < n && rc == 0 && a->recurrent.log_decay; h++)
		host[h] = -expf(host[h]);
	for (int h = 0; h < n && rc == 0; h++)
		if (!isfinite(host[h]))
			rc = sl_errf(err, SL_EINVAL, "%s: tensor %s gives head %d a decay that is no number",
				     model_file_path(m->file), name, h);
	if (rc == 0)
		rc = model_put_floats(m, name, host, (size_t)n, &x->a, err);
	sl_free(host);
	return rc;
}

static int load_delta(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	const struct arch_recurrent *r = &a->recurrent;
	struct layer_recurrent *x = m->layers[i].recurrent;
	int values = r->v_heads * r->v_dim, n = a->n_embd;
	const struct {
		const char *name;
		int n_out, n_in;
		struct kn_weight *out;
	} matrices[] = {{"attn_qkv.weight", arch_channels(a), n, &x->in},
			{"attn_gate.weight", values, n, &x->gate},
			{r->beta_alpha ? "ssm_ba.weight" : "ssm_beta.weight",
			 r->beta_alpha ? 2 * r->v_heads : r->v_heads, n, &x->beta},
			{r->beta_alpha ? NULL : "ssm_alpha.weight", r->v_heads, n, &x->alpha},
			{"ssm_out.weight", n, values, &x->out}};
	char name[64];
	int rc = recurrent_load_taps(m, i, "ssm_conv1d.weight", err);
	for (size_t k = 0; k < sizeof matrices / sizeof *matrices && rc == 0; k++)
		if (matrices[k].name != NULL)
			rc = model_load_matrix(m, model_in_layer(i, matrices[k].name, name), matrices[k].n_out,
					       matrices[k].n_in, matrices[k].out, err);
	if (rc == 0)
		rc = recurrent_load_decay(m, i, err);
	if (rc == 0)
		rc = model_load_vector(m, model_in_layer(i, "ssm_dt.bias", name), r->v_heads, 0, &x->dt, err);
	if (rc == 0)
		rc = model_load_vector(m, model_in_layer(i, "ssm_norm.weight", name), r->v_dim, 0, &x->norm, err);
	x->delta = (struct kn_delta){.k_heads = r->k_heads,
				     .v_heads = r->v_heads,
				     .k_dim = r->k_dim,
				     .v_dim = r->v_dim,
				     .tiled = r->tiled,
				     .a = x->a,
				     .dt = x->dt,
				     .at = x->conv.at + (size_t)(r->conv - 1) * (size_t)arch_channels(a)};
	return rc;
}

int recurrent_load(struct model *m, int i, struct sl_err *err)
{
	enum arch_mixer kind = m->info.arch.recurrent.kind;
	m->layers[i].recurrent = sl_zalloc(sizeof *m->layers[i].recurrent);
	if (m->layers[i].recurrent == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	if (kind == ARCH_SSM)
		return mamba_load(m, i, err);
	return kind == ARCH_DELTA ? load_delta(m, i, err) : load_short_conv(m, i, err);
}

void recurrent_free(struct model *m, struct layer_recurrent *x)
{
	if (x == NULL)
		return;
	struct kn_weight *weights[] = {&x->in, &x->out, &x->gate, &x->beta, &x->alpha};
	float *vectors[] = {x->taps, x->a, x->dt, x->norm, x->conv_bias, x->d};
	for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
		model_free_weight(m, weights[i]);
	for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
		model_free_floats(m, vectors[i]);
	sl_free(x);
}

static int run_beta_alpha(struct model *m, const struct layer_recurrent *x, const float *from, int n)
{
	const struct kn_ops *o = m->ops;
	const struct kn_delta *d = &x->delta;
	int rc;
	if (x->alpha.data != NULL) {
		rc = o->matmul(m->backend, &x->beta, from, n, m->beta);
		return rc != 0 ? rc : o->matmul(m->backend, &x->alpha, from, n, m->alpha);
	}
	rc = o->matmul(m->backend, &x->beta, from, n, m->delta); /* which is wide enough */
	return rc != 0 ? rc
		       : o->halve(m->backend, m->delta, n * d->k_heads, d->v_heads / d->k_heads, m->beta, m->alpha);
}

static int run_delta(struct model *m, const struct layer_recurrent *x, const float *from, int n, float *out)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int heads = n * x->delta.v_heads, rc;
	if ((rc = o->matmul(b, &x->in, from, n, m->conv_in)) != 0 ||
	    (rc = o->matmul(b, &x->gate, from, n, m->delta_gate)) != 0 || (rc = run_beta_alpha(m, x, from, n)) != 0 ||
	    (rc = o->conv(b, &x->conv, m->conv_in, n, m->conv_out)) != 0 ||
	    (rc = o->delta(b, &x->delta, m->conv_out, m->beta, m->alpha, n, m->delta)) != 0 ||
	    (rc = o->rmsnorm(b, m->delta, x->norm, a->rms_eps, heads, x->delta.v_dim, m->delta)) != 0 ||
	    (rc = o->silu_mul(b, m->delta_gate, m->delta, heads, x->delta.v_dim)) != 0)
		return rc;
	return o->matmul(b, &x->out, m->delta_gate, n, out);
}

int recurrent_run(struct model *m, const struct layer *l, const float *from, int n, float *out)
{
	const struct layer_recurrent *x = l->recurrent;
	const struct kn_ops *o = m->ops;
	int rc;
	if (m->info.arch.recurrent.kind == ARCH_DELTA)
		return run_delta(m, x, from, n, out);
	if (m->info.arch.recurrent.kind == ARCH_SSM)
		return mamba_run(m, x, from, n, out);
	if ((rc = o->matmul(m->backend, &x->in, from, n, m->conv_in)) != 0 ||
	    (rc = o->conv(m->backend, &x->conv, m->conv_in, n, m->conv_out)) != 0)
		return rc;
	return o->matmul(m->backend, &x->out, m->conv_out, n, out);
}
