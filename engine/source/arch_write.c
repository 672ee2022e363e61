/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the keys that llama.cpp's converter writes, so that its engine can read the file too. GGUF has no keys for
 * Llama 3's frequency ramp, so the resulting divisors are stored as a tensor.
 */
#include "engine/source/arch_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"

static const char *key_of(const struct model_arch *a, const char *field)
{
	static _Thread_local char key[128];
	snprintf(key, sizeof key, "%s.%s", a->family, field);
	return key;
}

static void put_u32(struct gguf_writer *w, const struct model_arch *a, const char *field, int v)
{
	gguf_put_u32(w, key_of(a, field), (uint32_t)v);
}

static void put_f32(struct gguf_writer *w, const struct model_arch *a, const char *field, double v)
{
	gguf_put_f32(w, key_of(a, field), (float)v);
}

static void put_scaling(struct gguf_writer *w, const struct model_arch *a)
{
	const struct arch_rope *r = &a->rope;
	switch (r->scaling) {
	case ARCH_ROPE_PLAIN:
	case ARCH_ROPE_LLAMA3: break;
	case ARCH_ROPE_LINEAR:
		gguf_put_str(w, key_of(a, "rope.scaling.type"), "linear", 6);
		put_f32(w, a, "rope.scaling.factor", r->factor);
		break;
	case ARCH_ROPE_YARN:
		if (r->all_dim > 0) /* a tenth, as readers of this family expect */
			put_f32(w, a, "rope.scaling.yarn_log_multiplier", 0.1 * r->all_dim);
		gguf_put_str(w, key_of(a, "rope.scaling.type"), "yarn", 4);
		put_f32(w, a, "rope.scaling.factor", r->factor);
		put_u32(w, a, "rope.scaling.original_context_length", r->original_ctx);
		put_f32(w, a, "rope.scaling.yarn_beta_fast", r->beta_fast);
		put_f32(w, a, "rope.scaling.yarn_beta_slow", r->beta_slow);
		/* In GGUF this factor multiplies the scaling's own rule. */
		if (r->magnitude == 1 && arch_family_find(a->family, strlen(a->family))->grows)
			put_f32(w, a, "rope.scaling.yarn_log_multiplier", 1);
		else if (r->magnitude > 0 && a->latent.n == 0)
			put_f32(w, a, "rope.scaling.attn_factor", r->magnitude / (0.1 * log(r->factor) + 1));
		break;
	case ARCH_ROPE_LONGROPE:
		put_u32(w, a, "rope.scaling.original_context_length", r->original_ctx);
		put_f32(w, a, "rope.scaling.attn_factor", r->magnitude > 0 ? r->magnitude : 1);
		break;
	}
}

/* A list of numbers for layers: n for those that have it, otherwise 0. */
static void put_layer_list(struct gguf_writer *w, const struct model_arch *a, const char *field,
			   bool (*has)(const struct model_arch *a, int layer), int n)
{
	int all = a->n_layers + a->n_drafting;
	gguf_put_array(w, key_of(a, field), GGUF_I32, (uint64_t)all);
	for (int i = 0; i < all; i++) {
		int32_t number = has(a, i) ? n : 0;
		gguf_item_bytes(w, &number, sizeof number);
	}
}

/* Keys of every family. */
static void put_shape(struct gguf_writer *w, const struct model_arch *a)
{
	gguf_put_str(w, "general.architecture", a->family, strlen(a->family));
	put_u32(w, a, "block_count", a->n_layers + a->n_drafting);
	if (a->n_drafting > 0)
		put_u32(w, a, "nextn_predict_layers", a->n_drafting);
	put_u32(w, a, "context_length", a->n_ctx);
	put_u32(w, a, "embedding_length", a->n_embd);
	if (a->one_half)
		put_layer_list(w, a, "feed_forward_length", arch_has_ff, a->n_ff);
	else
		put_u32(w, a, "feed_forward_length", a->n_ff);
	put_u32(w, a, "attention.head_count", a->n_heads);
	if (a->pooling != ARCH_POOL_NONE)
		put_u32(w, a, "pooling_type", (int)a->pooling);
}

static void put_encoder(struct gguf_writer *w, const struct model_arch *a)
{
	put_shape(w, a);
	put_f32(w, a, "attention.layer_norm_epsilon", (double)a->rms_eps);
	gguf_put_bool(w, key_of(a, "attention.causal"), false);
	gguf_put_u32(w, "tokenizer.ggml.token_type_count", (uint32_t)a->n_types);
	if (a->rope.n_rot > 0)
		put_f32(w, a, "rope.freq_base", a->rope.base);
}

/* Layers that keep a state have no key heads. */
static void put_kv_heads(struct gguf_writer *w, const struct model_arch *a)
{
	if (a->recurrent.kind != ARCH_SHORT_CONV && a->recurrent.kind != ARCH_SSM)
		put_u32(w, a, "attention.head_count_kv", a->n_kv_heads);
	else
		put_layer_list(w, a, "attention.head_count_kv", arch_attends, a->n_kv_heads);
}

/* Of latent attention: the widths of heads, or those of a row and, under other names, of heads. */
static void put_widths(struct gguf_writer *w, const struct model_arch *a)
{
	const struct arch_latent *d = &a->latent;
	int query = d->plain + a->rope.n_rot;
	bool split = d->n > 0 && !d->joined;
	if (d->joined)
		put_u32(w, a, "attention.head_count_kv", a->n_heads);
	else
		put_kv_heads(w, a);
	put_u32(w, a, "attention.key_length", d->joined ? query : a->head_dim);
	put_u32(w, a, "attention.value_length", d->joined ? d->n_value : split ? d->n : a->head_dim);
	if (d->n == 0)
		return;
	put_u32(w, a, "attention.kv_lora_rank", d->n);
	if (d->n_query > 0)
		put_u32(w, a, "attention.q_lora_rank", d->n_query);
	if (split) {
		put_u32(w, a, "attention.key_length_mla", query);
		put_u32(w, a, "attention.value_length_mla", d->n_value);
	}
}

static void put_experts(struct gguf_writer *w, const struct model_arch *a)
{
	put_u32(w, a, "expert_count", a->experts.n);
	put_u32(w, a, "expert_used_count", a->experts.n_used);
	put_u32(w, a, "expert_feed_forward_length", a->experts.n_ff);
	if (strcmp(a->family, "lfm2moe") == 0) {
		put_u32(w, a, "expert_gating_func", 2);
		put_u32(w, a, "leading_dense_block_count", a->experts.n_dense);
		return;
	}
	if (a->one_half) {
		put_u32(w, a, "expert_shared_count", 1);
		put_u32(w, a, "expert_shared_feed_forward_length", a->experts.n_ff_shared);
		put_f32(w, a, "expert_weights_scale", (double)a->experts.scale);
		gguf_put_bool(w, key_of(a, "expert_weights_norm"), a->experts.norm);
		if (a->experts.n_latent > 0)
			put_u32(w, a, "moe_latent_size", a->experts.n_latent);
		return;
	}
	if (a->experts.every > 0) {
		put_u32(w, a, "interleave_moe_layer_step", a->experts.every);
		return;
	}
	if (a->experts.sigmoid && strcmp(a->family, "minimax-m2") == 0) {
		put_u32(w, a, "expert_gating_func", 2);
		return;
	}
	if (a->latent.n > 0) {
		put_u32(w, a, "expert_gating_func", a->experts.sigmoid ? 2 : 1);
		put_u32(w, a, "expert_group_count", a->experts.n_groups > 0 ? a->experts.n_groups : 1);
		put_u32(w, a, "expert_group_used_count", a->experts.n_groups > 0 ? a->experts.n_groups_used : 1);
	}
	if (a->experts.sigmoid || a->latent.n > 0) {
		put_u32(w, a, "expert_shared_count", a->experts.n_ff_shared / a->experts.n_ff);
		put_u32(w, a, "leading_dense_block_count", a->experts.n_dense);
		put_f32(w, a, "expert_weights_scale", (double)a->experts.scale);
		gguf_put_bool(w, key_of(a, "expert_weights_norm"), a->experts.norm);
		return;
	}
	if (a->experts.n_ff_shared > 0)
		put_u32(w, a, "expert_shared_feed_forward_length", a->experts.n_ff_shared);
}

/* How a layer's halves are put together, and queries that grow. */
static void put_halves(struct gguf_writer *w, const struct model_arch *a)
{
	const struct arch_family *f = arch_family_find(a->family, strlen(a->family));
	if (a->layer_norm && !a->norm_biases)
		put_f32(w, a, "logit_scale", (double)a->logit_scale);
	if (f->common.parallel == ARCH_PARALLEL_TWO_NORMS)
		gguf_put_bool(w, key_of(a, "use_parallel_residual"), a->parallel != ARCH_PARALLEL_NONE);
	if (a->rope.grow > 0)
		put_f32(w, a, "attention.temperature_scale", (double)a->rope.grow);
}

static void put_recurrent(struct gguf_writer *w, const struct model_arch *a)
{
	const struct arch_recurrent *x = &a->recurrent;
	if (x->kind == ARCH_SHORT_CONV) {
		put_u32(w, a, "shortconv.l_cache", x->conv);
		return;
	}
	put_u32(w, a, "ssm.conv_kernel", x->conv);
	put_u32(w, a, "ssm.group_count", x->k_heads);
	put_u32(w, a, "ssm.time_step_rank", x->v_heads);
	put_u32(w, a, "ssm.state_size", x->k_dim);
	put_u32(w, a, "ssm.inner_size", x->v_heads * x->v_dim);
	if (x->kind == ARCH_SSM)
		return;
	gguf_put_array(w, key_of(a, "attention.recurrent_layers"), GGUF_BOOL, (uint64_t)a->n_layers);
	for (int i = 0; i < a->n_layers; i++)
		gguf_item_bytes(w, arch_recurs(a, i) ? "\1" : "\0", 1);
	if (a->family[5] == '5') { /* Qwen3.5's: all pairs turn alike in text */
		gguf_put_array(w, key_of(a, "rope.dimension_sections"), GGUF_I32, 4);
		int half = a->rope.n_rot / 2, third = half / 3;
		const int32_t sections[4] = {half - 2 * third, third, third, 0};
		gguf_item_bytes(w, sections, sizeof sections);
	}
}

int arch_write_keys(const struct model_arch *a, struct gguf_writer *w, struct sl_err *err)
{
	const struct arch_rope *r = &a->rope;
	if (a->encoder) {
		put_encoder(w, a);
		return 0;
	}
	const struct arch_family *f = arch_family_find(a->family, strlen(a->family));
	bool gemma3 = strcmp(a->family, "gemma3") == 0;
	/* Readers of the format assume these, and no key can change them. */
	if (gemma3 && a->rope_windowed.base != 10000)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for a local rope base of %g",
			       a->rope_windowed.base);
	if (a->window > 0 && a->window_pattern != f->window_pattern)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for a window in all but every %dth layer",
			       a->window_pattern);
	if (a->act != f->common.act)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for this activation in the family %s", a->family);
	if (a->experts.sparse > 0 && a->experts.sparse != 0.01f)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for a router_jitter_noise of %g",
			       (double)a->experts.sparse);
	if (r->scaling == ARCH_ROPE_YARN && r->fractional != f->oss)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "GGUF has no key for truncate %s of a rope scaling yarn in the family %s",
			       r->fractional ? "false" : "true", a->family);
	if (a->latent.n > 0 && r->halves)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for rope_interleave false in the family %s",
			       a->family);
	double own = r->scaling == ARCH_ROPE_YARN && r->all_dim == 0 ? 0.1 * log(r->factor) + 1 : 1;
	if (a->latent.n > 0 && r->magnitude > 0 && fabs(r->magnitude - own) > 1e-9)
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for an mscale that is not mscale_all_dim");
	if (f->chunks && (a->qk_norm_plain != (a->experts.n != 128) || a->no_rope_every != a->window_pattern ||
			  (a->window > 0 && (a->still_grow != 0.1f || a->still_grow_every != ARCH_LLAMA4_CHUNK))))
		return sl_errf(err, SL_EUNSUPPORTED,
			       "GGUF has no keys for these layers without rope, norms and temperatures of Llama 4");
	put_shape(w, a);
	put_widths(w, a);
	if (arch_is_recurrent(a))
		put_recurrent(w, a);
	put_f32(w, a, arch_family_eps_key(f), (double)a->rms_eps);
	if (a->one_half) /* llama.cpp wants both of Nemotron-H */
		put_f32(w, a, "attention.layer_norm_epsilon", (double)a->rms_eps);
	put_u32(w, a, "vocab_size", a->n_vocab);
	put_u32(w, a, "rope.dimension_count", r->n_rot);
	put_f32(w, a, "rope.freq_base", r->base);
	put_scaling(w, a);
	if (a->experts.n > 0)
		put_experts(w, a);
	if (strncmp(a->family, "granite", 7) == 0) {
		put_f32(w, a, "embedding_scale", (double)a->embed_scale);
		put_f32(w, a, "residual_scale", (double)a->residual_scale);
		put_f32(w, a, "logit_scale", 1 / (double)a->logit_scale);
	}
	if (a->recurrent.kind == ARCH_SSM && f->scaled)
		gguf_put_bool(w, key_of(a, "rope.scaling.finetuned"), a->no_rope_every != 1);
	put_halves(w, a);
	if (a->window > 0 || f->chunks)
		put_u32(w, a, "attention.sliding_window", a->window);
	if (fabsf(a->attn_scale / arch_gguf_attn_scale(a) - 1) > 1e-6f)
		put_f32(w, a, "attention.scale", (double)a->attn_scale);
	if (a->attn_softcap > 0)
		put_f32(w, a, "attn_logit_softcapping", (double)a->attn_softcap);
	if (a->final_softcap > 0)
		put_f32(w, a, "final_logit_softcapping", (double)a->final_softcap);
	return 0;
}

/* Llama 3.1's rule: long wavelengths are divided, short ones are not, with a ramp between. */
static float llama3_divisor(const struct arch_rope *r, int pair)
{
	const double turn = 6.283185307179586;
	double wavelength = turn * pow(r->base, 2.0 * pair / r->n_rot);
	double turns = r->original_ctx / wavelength;
	if (turns < r->low_freq)
		return (float)r->factor;
	if (turns > r->high_freq)
		return 1;
	double smooth = (turns - r->low_freq) / (r->high_freq - r->low_freq);
	return (float)(1 / ((1 - smooth) / r->factor + smooth));
}

int arch_write_extras(const struct model_arch *a, struct arch_extra *out)
{
	const struct arch_rope *r = &a->rope;
	int n = r->n_rot / 2;
	if (r->scaling == ARCH_ROPE_LONGROPE) {
		/* The context length has selected the list; a reader that selects the other list must find the same
		 * values. */
		static const char *const names[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
		for (int k = 0; k < 2; k++) {
			out[k] = (struct arch_extra){.name = names[k], .n = n};
			memcpy(out[k].values, r->factors, (size_t)n * sizeof(float));
		}
		return 2;
	}
	if (r->scaling != ARCH_ROPE_LLAMA3 && r->n_factors == 0)
		return 0;
	out[0] = (struct arch_extra){.name = "rope_freqs.weight", .n = n};
	for (int i = 0; i < n; i++)
		out[0].values[i] = r->n_factors > 0 ? r->factors[i] : llama3_divisor(r, i);
	return 1;
}
