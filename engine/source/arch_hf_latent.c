/* SPDX-License-Identifier: Apache-2.0
 *
 * From config.json of DeepSeek's line (V2, V3, R1, Kimi K2): latent attention and its experts. Sources: the
 * configuration classes of the models' own code and of the transformers library.
 */
#include <string.h>

#include "engine/source/arch_conf.h"
#include "kernels/kernels.h"

enum { MOST = 1 << 14, MISSING = -1 };

void conf_latent(struct conf *r, struct model_arch *a)
{
	struct arch_latent *d = &a->latent;
	d->n = conf_int(r, "kv_lora_rank", 1, MOST, MISSING);
	d->n_query = conf_int(r, "q_lora_rank", 0, ARCH_MAX_WIDTH, conf_has(r, "q_lora_rank") ? 0 : 1536);
	d->plain = conf_int(r, "qk_nope_head_dim", 1, MOST, MISSING);
	d->n_value = conf_int(r, "v_head_dim", 1, MOST, MISSING);
	d->joined = true;
	a->rope.n_rot = conf_int(r, "qk_rope_head_dim", 2, 2 * ARCH_MAX_ROT, MISSING);
	if (r->rc == 0 && a->rope.n_rot % 2 != 0)
		conf_fault(r, SL_EINVAL, "qk_rope_head_dim", "is odd");
	if (r->rc == 0 && !arch_latent_finish(a))
		conf_fault(r, SL_EUNSUPPORTED, "num_attention_heads", "is too much for the width of latent rows");
	a->head_dim = a->rope.n_rot; /* the part of a head that conf_rope is about */
}

void conf_latent_rope(struct conf *r, struct model_arch *a)
{
	if (r->rc != 0)
		return;
	(void)arch_latent_finish(a);
	a->rope.halves = a->rope_windowed.halves = !conf_bool(r, "rope_interleave", true);
	a->attn_scale = arch_latent_scale(a);
}

/* How experts are chosen: by what, and of which groups. */
static void read_choice(struct conf *r, bool v2, struct arch_experts *x)
{
	const char *scores = conf_text(r, r->config, "scoring_func"), *method = conf_text(r, r->config, "topk_method");
	scores = scores != NULL ? scores : v2 ? "softmax" : "sigmoid";
	method = method != NULL ? method : v2 ? "greedy" : "noaux_tc";
	bool sigmoid = strcmp(scores, "sigmoid") == 0, grouped = strcmp(method, "greedy") != 0;
	if (!sigmoid && strcmp(scores, "softmax") != 0)
		conf_fault(r, SL_EUNSUPPORTED, "scoring_func", "is not supported (supported: softmax, sigmoid)");
	if (strcmp(method, sigmoid ? "noaux_tc" : "group_limited_greedy") != 0 && (sigmoid || grouped))
		conf_fault(r, SL_EUNSUPPORTED, "topk_method",
			   sigmoid ? "is not supported with sigmoid (supported: noaux_tc)"
				   : "is not supported with softmax (supported: greedy, group_limited_greedy)");
	x->sigmoid = sigmoid;
	x->group_best = !sigmoid;
	x->n_groups = conf_int(r, "n_group", 1, x->n > 0 ? x->n : 1, v2 || x->n < 8 ? 1 : 8);
	int used = x->n_groups == 8 && !v2 ? 4 : x->n_groups;
	x->n_groups_used = conf_int(r, "topk_group", 1, x->n_groups, used);
	if (x->n_groups == 1 || !grouped)
		x->n_groups = x->n_groups_used = 0;
	if (r->rc == 0 && arch_groups_fault(x) != NULL)
		conf_fault(r, SL_EINVAL, "n_group", arch_groups_fault(x));
}

void conf_latent_experts(struct conf *r, const char *type, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	bool v2 = strcmp(type, "deepseek_v2") == 0;
	(void)conf_int(r, "num_nextn_predict_layers", 0, 8, 0); /* hf_tensors.c leaves out these layers */
	if (conf_has(r, "n_routed_experts") && conf_get(r, r->config, "n_routed_experts") == NULL)
		return; /* null: a dense model */
	conf_experts(r, "n_routed_experts", MISSING, MISSING, x);
	if (r->rc != 0)
		return;
	x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH / 64, MISSING);
	bool none = conf_has(r, "n_shared_experts") && conf_get(r, r->config, "n_shared_experts") == NULL;
	x->n_ff_shared = x->n_ff * conf_int(r, "n_shared_experts", 0, 64, none ? 0 : v2 ? 2 : 1);
	x->n_dense = conf_int(r, "first_k_dense_replace", 0, a->n_layers, v2 ? 0 : MISSING);
	x->scale = (float)conf_number(r, r->config, "routed_scaling_factor", 1e-6, 1e6, v2 ? 1 : 2.5);
	x->norm = conf_bool(r, "norm_topk_prob", !v2);
	if (conf_int(r, "moe_layer_freq", 1, ARCH_MAX_LAYERS, 1) != 1)
		conf_fault(r, SL_EUNSUPPORTED, "moe_layer_freq", "is not supported (supported: 1)");
	read_choice(r, v2, x);
	/* The model's own code then leaves the factor out, other code does not. */
	if (x->norm && !x->sigmoid && x->scale != 1.0f)
		conf_fault(r, SL_EUNSUPPORTED, "norm_topk_prob",
			   "is true, which is not supported with softmax and a routed_scaling_factor");
}
