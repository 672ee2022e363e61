/* SPDX-License-Identifier: Apache-2.0
 *
 * Mamba-2's layers (Dao, Gu, "Transformers are SSMs", 2024): one product gives gates z, what the convolution reads (x,
 * B and C) and steps; the state space reads the convolution's output; the gate comes before the norm, which is of
 * groups of heads. As mamba-ssm's module of that name with norm_before_gate false.
 */
#include "engine/model/model_priv.h"

/* The rows of ssm_in are three matrices: of z, of x, B and C, and of steps. */
static int load_in(struct model *m, int i, int inner, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer_recurrent *x = m->layers[i].recurrent;
	int channels = arch_channels(a), heads = a->recurrent.v_heads, n = a->n_embd, rc;
	const struct model_tensor *t = NULL;
	char name[64];
	if ((rc = model_find_matrix(m, model_in_layer(i, "ssm_in.weight", name), inner + channels + heads, n, &t,
				    err)) != 0 ||
	    (rc = model_load_rows(m, t, 0, inner, n, &x->gate, err)) != 0 ||
	    (rc = model_load_rows(m, t, inner, channels, n, &x->in, err)) != 0 ||
	    (rc = model_load_rows(m, t, inner + channels, heads, n, &x->alpha, err)) != 0)
		return rc;
	if (x->gate.data != t->data)
		model_file_let_go(m->file, t);
	return 0;
}

int mamba_load(struct model *m, int i, struct sl_err *err)
{
	const struct arch_recurrent *r = &m->info.arch.recurrent;
	struct layer_recurrent *x = m->layers[i].recurrent;
	int inner = r->v_heads * r->v_dim;
	const struct {
		bool has;
		const char *name;
		int n;
		float **out;
	} vectors[] = {{r->conv_bias, "ssm_conv1d.bias", arch_channels(&m->info.arch), &x->conv_bias},
		       {true, "ssm_dt.bias", r->v_heads, &x->dt},
		       {true, "ssm_d", r->v_heads, &x->d},
		       {true, "ssm_norm.weight", inner, &x->norm}};
	char name[64];
	int rc = recurrent_load_taps(m, i, "ssm_conv1d.weight", err);
	if (rc == 0)
		rc = load_in(m, i, inner, err);
	if (rc == 0)
		rc = recurrent_load_decay(m, i, err);
	for (size_t k = 0; k < sizeof vectors / sizeof *vectors && rc == 0; k++)
		if (vectors[k].has)
			rc = model_load_vector(m, model_in_layer(i, vectors[k].name, name), vectors[k].n, 0,
					       vectors[k].out, err);
	if (rc == 0)
		rc = model_load_matrix(m, model_in_layer(i, "ssm_out.weight", name), m->info.arch.n_embd, inner,
				       &x->out, err);
	x->conv.bias = x->conv_bias;
	x->ssm = (struct kn_ssm){.groups = r->k_heads,
				 .heads = r->v_heads,
				 .state = r->k_dim,
				 .head_dim = r->v_dim,
				 .a = x->a,
				 .dt = x->dt,
				 .d = x->d,
				 .least = r->least,
				 .most = r->most,
				 .at = x->conv.at + (size_t)(r->conv - 1) * (size_t)arch_channels(&m->info.arch)};
	return rc;
}

int mamba_run(struct model *m, const struct layer_recurrent *x, const float *from, int n, float *out)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int inner = x->ssm.heads * x->ssm.head_dim, groups = x->ssm.groups, rc;
	if ((rc = o->matmul(b, &x->gate, from, n, m->delta_gate)) != 0 ||
	    (rc = o->matmul(b, &x->in, from, n, m->conv_in)) != 0 ||
	    (rc = o->matmul(b, &x->alpha, from, n, m->alpha)) != 0 ||
	    (rc = o->conv(b, &x->conv, m->conv_in, n, m->conv_out)) != 0 ||
	    (rc = o->ssm(b, &x->ssm, m->conv_out, m->alpha, n, m->delta)) != 0 ||
	    (rc = o->silu_mul(b, m->delta_gate, m->delta, n, inner)) != 0 ||
	    (rc = o->rmsnorm_groups(b, m->delta_gate, x->norm, a->rms_eps, n, groups, inner / groups, m->delta_gate)) !=
		0)
		return rc;
	return o->matmul(b, &x->out, m->delta_gate, n, out);
}
