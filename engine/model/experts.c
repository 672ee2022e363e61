/* SPDX-License-Identifier: Apache-2.0
 *
 * A mixture of experts in place of a layer's dense feed-forward half: loaded from a tensor of all experts, as GGUF has
 * it, or from one of each, as Hugging Face folders and older GGUF files have it.
 */
#include "engine/model/adapters.h"
#include "engine/model/model_priv.h"

#include <stdio.h>

#include "base/alloc.h"

enum { KINDS = 3 };

static const char *const kinds[KINDS] = {"ffn_gate", "ffn_up", "ffn_down"};

/* The matrices of one kind: [n_ff][width], or down [width][n_ff]. */
static int load_kind(struct model *m, int layer, int kind, struct kn_weight *out, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	int width = a->experts.n_latent > 0 ? a->experts.n_latent : a->n_embd, rc = 0;
	int n_out = kind == 2 ? width : a->experts.n_ff, n_in = kind == 2 ? a->experts.n_ff : width;
	char what[64], name[64];
	snprintf(what, sizeof what, "%s_exps.weight", kinds[kind]);
	model_in_layer(layer, what, name);
	if (model_file_find(m->file, name) != NULL)
		return model_load_matrices(m, name, a->experts.n, n_out, n_in, out, err);
	for (int e = 0; e < a->experts.n && rc == 0; e++) {
		snprintf(what, sizeof what, "%s.%d.weight", kinds[kind], e);
		rc = model_load_matrix(m, model_in_layer(layer, what, name), n_out, n_in, &out[e], err);
	}
	return rc;
}

/* The expert that computes every row, as the layer's gate, up and down. */
static int load_shared(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int n_ff = l->n_ff = a->experts.n_ff_shared, rc = 0;
	char name[64];
	if (n_ff == 0)
		return 0;
	if ((!a->ungated && (rc = model_load_matrix(m, model_in_layer(i, "ffn_gate_shexp.weight", name), n_ff,
						    a->n_embd, &l->gate, err)) != 0) ||
	    (rc = model_load_matrix(m, model_in_layer(i, "ffn_up_shexp.weight", name), n_ff, a->n_embd, &l->up, err)) !=
		0 ||
	    (rc = model_load_matrix(m, model_in_layer(i, "ffn_down_shexp.weight", name), a->n_embd, n_ff, &l->down,
				    err)) != 0 ||
	    !a->experts.shared_gate)
		return rc;
	return model_load_matrix(m, model_in_layer(i, "ffn_gate_inp_shexp.weight", name), 1, a->n_embd,
				 &l->experts->shared_gate, err);
}

static int load_biases(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer_experts *x = m->layers[i].experts;
	char what[32], name[64];
	int rc =
	    model_load_vector(m, model_in_layer(i, "ffn_gate_inp.bias", name), a->experts.n, 0, &x->router_bias, err);
	for (int kind = 0; kind < KINDS && rc == 0; kind++) {
		snprintf(what, sizeof what, "%s_exps.bias", kinds[kind]);
		rc = model_load_vector(m, model_in_layer(i, what, name),
				       a->experts.n * (kind == 2 ? a->n_embd : a->experts.n_ff), 0, &x->biases[kind],
				       err);
	}
	x->op.gate_bias = x->biases[0];
	x->op.up_bias = x->biases[1];
	x->op.down_bias = x->biases[2];
	return rc;
}

/* The products between the stream and what experts read and write. */
static int load_latent(struct model *m, int i, struct sl_err *err)
{
	struct layer_experts *x = m->layers[i].experts;
	int n = m->info.arch.n_embd, latent = m->info.arch.experts.n_latent;
	char name[64];
	int rc =
	    model_load_matrix(m, model_in_layer(i, "ffn_latent_down.weight", name), latent, n, &x->latent_down, err);
	return rc != 0 ? rc
		       : model_load_matrix(m, model_in_layer(i, "ffn_latent_up.weight", name), n, latent, &x->latent_up,
					   err);
}

int experts_load(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	size_t n = (size_t)a->experts.n;
	char name[64];
	struct layer_experts *x = m->layers[i].experts = sl_zalloc(sizeof *x);
	if (x != NULL)
		x->weights = sl_zalloc_n(KINDS * n, sizeof *x->weights);
	if (x == NULL || x->weights == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	x->op = (struct kn_experts){.route = {.n = a->experts.n,
					      .n_used = a->experts.n_used,
					      .sigmoid = a->experts.sigmoid,
					      .norm = a->experts.norm,
					      .sparse = a->experts.sparse,
					      .n_groups = a->experts.n_groups,
					      .n_groups_used = a->experts.n_groups_used,
					      .group_best = a->experts.group_best,
					      .scale = a->experts.scale},
				    .gate = x->weights,
				    .up = x->weights + n,
				    .down = x->weights + 2 * n,
				    .weighs_input = a->experts.weighs_input,
				    .act = a->ungated                 ? KN_NO_GATE
					   : a->experts.clamped       ? KN_GATE_CLAMPED
					   : a->act == ARCH_GELU_TANH ? KN_GATE_GELU
								      : KN_GATE_SILU};
	int rc = model_load_matrix(m, model_in_layer(i, "ffn_gate_inp.weight", name), a->experts.n, a->n_embd,
				   &x->router, err);
	for (int kind = a->ungated ? 1 : 0; kind < KINDS && rc == 0; kind++)
		rc = load_kind(m, i, kind, x->weights + (size_t)kind * n, err);
	if (rc == 0 && a->experts.n_latent > 0)
		rc = load_latent(m, i, err);
	if (rc == 0 && a->experts.biases)
		rc = load_biases(m, i, err);
	if (rc == 0 && a->experts.sigmoid && !a->experts.unbiased)
		rc = model_load_vector(m, model_in_layer(i, "exp_probs_b.bias", name), a->experts.n, 0, &x->choice_bias,
				       err);
	x->op.route.bias = x->choice_bias;
	if (rc == 0)
		rc = load_shared(m, i, err);
	if (rc != 0 || m->ops->experts_ready == NULL)
		return rc;
	rc = m->ops->experts_ready(m->backend, &x->op);
	return rc == 0
		   ? 0
		   : sl_errf(err, rc, "%s: layer %d: the backend can't take its experts", model_file_path(m->file), i);
}

void experts_free(struct model *m, struct layer_experts *x)
{
	if (x == NULL)
		return;
	model_free_weight(m, &x->router);
	model_free_weight(m, &x->shared_gate);
	model_free_weight(m, &x->latent_down);
	model_free_weight(m, &x->latent_up);
	for (int i = 0; x->weights != NULL && i < KINDS * x->op.route.n; i++)
		model_free_weight(m, &x->weights[i]);
	model_free_floats(m, x->choice_bias);
	model_free_floats(m, x->router_bias);
	for (int kind = 0; kind < KINDS; kind++)
		model_free_floats(m, x->biases[kind]);
	sl_free(x->weights);
	sl_free(x);
}

/* The shared expert's output, in m->shared, and its gate. */
static int run_shared(struct model *m, const struct layer *l, int n)
{
	const struct kn_ops *o = m->ops;
	int rc = model_widen(m, l, m->normed, n);
	if (rc == 0)
		rc = o->matmul(m->backend, &l->down, m->gate, n, m->shared);
	if (rc == 0)
		rc = adapters_down(m, l, m->gate, m->shared);
	if (rc == 0 && l->experts->shared_gate.data != NULL)
		rc = o->matmul(m->backend, &l->experts->shared_gate, m->normed, n, m->shared_gate);
	return rc;
}

/* The routed experts' output, in m->normed. */
static int run_routed(struct model *m, const struct layer_experts *x, int n)
{
	const struct kn_ops *o = m->ops;
	int rc;
	if (x->latent_down.data == NULL)
		return o->experts(m->backend, &x->op, m->routed, m->normed, n, m->work, m->normed);
	if ((rc = o->matmul(m->backend, &x->latent_down, m->normed, n, m->latent_rows)) != 0 ||
	    (rc = o->experts(m->backend, &x->op, m->routed, m->latent_rows, n, m->work, m->latent_rows)) != 0)
		return rc;
	return o->matmul(m->backend, &x->latent_up, m->latent_rows, n, m->normed);
}

int experts_run(struct model *m, const struct layer *l, int n)
{
	const struct kn_ops *o = m->ops;
	struct layer_experts *x = l->experts;
	x->op.lora = adapters_experts(m, l);
	int rc = o->matmul(m->backend, &x->router, m->normed, n, m->routed), width = m->info.arch.n_embd;
	if (rc == 0 && x->router_bias != NULL)
		rc = o->add_row(m->backend, m->routed, x->router_bias, n, x->op.route.n);
	if (rc == 0 && l->n_ff > 0)
		rc = run_shared(m, l, n);
	if (rc == 0)
		rc = run_routed(m, x, n);
	if (rc != 0 || l->n_ff == 0)
		return rc;
	return x->shared_gate.data != NULL ? o->add_gated(m->backend, m->normed, m->shared, m->shared_gate, n, width)
					   : o->add(m->backend, m->normed, m->shared, n, width);
}
