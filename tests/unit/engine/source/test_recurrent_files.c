/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of models whose layers keep a state: what keys of both formats become, the same model in both with the
 * same tensors, and hostile numbers refused in one line that names the key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/source/quantize_model.h"
#include "tests/unit/engine/source/model_files.h"

/* ---- GGUF ---- */

/* A tiny model's file, and where its bytes are. */
struct bytes {
	struct model_arch arch;
	uint8_t *at;
	size_t n;
};

static void write_file(const char *shape, struct bytes *out)
{
	out->arch = random_arch(shape);
	random_file_of("model.gguf", &out->arch, "f32", 3, 1);
	out->at = md_read(dir, "model.gguf", &out->n);
}

/* The value of a key: behind its name and type; of a list also behind the elements' type and their number. */
static uint8_t *value_of(const struct bytes *b, const char *key, size_t offset)
{
	size_t n = strlen(key);
	for (size_t i = 0; i + n + 16 < b->n; i++)
		if (memcmp(b->at + i, key, n) == 0)
			return b->at + i + n + 4 + offset;
	fail_msg("no key %s", key);
	return NULL;
}

static void same_recurrent(const struct model_arch *a, const struct model_arch *b, bool tiled)
{
	struct arch_recurrent x = a->recurrent, y = b->recurrent;
	y.log_decay = x.log_decay;
	assert_true(y.tiled == tiled);
	y.tiled = x.tiled;
	assert_memory_equal(x.layers, y.layers, sizeof x.layers);
	assert_true(x.kind == y.kind && x.conv == y.conv && x.k_heads == y.k_heads && x.v_heads == y.v_heads &&
		    x.k_dim == y.k_dim && x.v_dim == y.v_dim && x.beta_alpha == y.beta_alpha);
	assert_true(x.conv_bias == y.conv_bias && x.least == y.least && x.most == y.most);
	assert_true(a->one_half == b->one_half && a->no_rope_every == b->no_rope_every && a->act == b->act &&
		    a->ungated == b->ungated);
	assert_memory_equal(a->only_ff, b->only_ff, sizeof a->only_ff);
}

static void same_experts(const struct arch_experts *a, const struct arch_experts *b)
{
	assert_true(a->n == b->n && a->n_used == b->n_used && a->n_ff == b->n_ff && a->n_ff_shared == b->n_ff_shared &&
		    a->n_latent == b->n_latent && a->sigmoid == b->sigmoid && a->norm == b->norm &&
		    a->scale == b->scale);
}

static void written_and_read(void **state)
{
	(void)state;
	static const char *const shapes[] = {
	    "tiny-lfm2",       "tiny-lfm2-2",       "tiny-lfm2moe",   "tiny-qwen3next",  "tiny-qwen3.5-2",
	    "tiny-qwen3.5",    "tiny-qwen3.5moe",   "tiny-granite4",  "tiny-granite4-2", "tiny-granite4moe",
	    "tiny-nemotron-h", "tiny-nemotron-h-2", "tiny-nemotron3", "tiny-nemotron3-2"};
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct bytes b;
		struct model_arch a;
		write_file(shapes[i], &b);
		struct model_file *f = opened("model.gguf");
		arch_of(f, &a);
		model_file_close(f);
		free(b.at);
		same_recurrent(&b.arch, &a, b.arch.recurrent.tiled);
		same_experts(&b.arch.experts, &a.experts);
		assert_true(a.attn_gate == b.arch.attn_gate && a.n_kv_heads == b.arch.n_kv_heads &&
			    a.n_unknown_keys == 0);
		assert_true(arch_state(&a) > 0 && arch_n_recurrent(&a, a.n_layers) < a.n_layers);
	}
}

static void hostile_keys(void **state)
{
	(void)state;
	static const struct {
		const char *shape, *key;
		size_t offset;
		uint32_t value;
		const char *said;
		int code;
	} bad[] = {
	    {"tiny-lfm2", "lfm2.shortconv.l_cache", 0, 0, "lfm2.shortconv.l_cache is 0", SL_EINVAL},
	    {"tiny-lfm2", "lfm2.shortconv.l_cache", 0, 9, "lfm2.shortconv.l_cache is 9", SL_EINVAL},
	    {"tiny-lfm2", "lfm2.shortconv.l_cache", 0, UINT32_MAX, "lfm2.shortconv.l_cache", SL_EINVAL},
	    /* [4 elements' type][8 their number][4 each]: layer 2 is the one that attends. */
	    {"tiny-lfm2", "lfm2.attention.head_count_kv", 12 + 8, 0, "attention.head_count_kv gives no layer",
	     SL_EUNSUPPORTED},
	    {"tiny-lfm2", "lfm2.attention.head_count_kv", 12 + 8, UINT32_MAX, "head_count_kv has -1 for layer 2",
	     SL_EUNSUPPORTED},
	    {"tiny-lfm2", "lfm2.attention.head_count_kv", 12, 1, "head_count_kv has 2 for layer 2", SL_EUNSUPPORTED},
	    {"tiny-lfm2", "lfm2.attention.head_count_kv", 12 + 8, 3, "3 KV heads", SL_EUNSUPPORTED},
	    {"tiny-lfm2", "lfm2.block_count", 0, 5, "head_count_kv is not a list of a number for each of 5", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.conv_kernel", 0, 0, "ssm.conv_kernel is 0", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.conv_kernel", 0, 100, "ssm.conv_kernel is 100", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.group_count", 0, 0, "ssm.group_count is 0", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.group_count", 0, 3,
	     "qwen35.ssm.time_step_rank is no multiple of the key heads", SL_EUNSUPPORTED},
	    {"tiny-qwen3.5", "qwen35.ssm.time_step_rank", 0, 0, "ssm.time_step_rank is 0", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.time_step_rank", 0, 5, "ssm.inner_size 128 is no multiple", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.time_step_rank", 0, 256, "ssm.inner_size 128 is no multiple", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.state_size", 0, 0, "ssm.state_size is 0", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.state_size", 0, 513, "ssm.state_size is 513", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.inner_size", 0, UINT32_MAX, "ssm.inner_size", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.ssm.inner_size", 0, 1 << 18, "qwen35.ssm.inner_size gives no width of a head",
	     SL_EUNSUPPORTED},
	    {"tiny-qwen3.5", "qwen35.attention.recurrent_layers", 12, 0x01010101, "gives no layer with attention",
	     SL_EUNSUPPORTED},
	    {"tiny-qwen3.5", "qwen35.attention.recurrent_layers", 12, 0, "or no other", SL_EUNSUPPORTED},
	    {"tiny-qwen3.5", "qwen35.block_count", 0, 5, "recurrent_layers is not a list of a truth", SL_EINVAL},
	    {"tiny-qwen3.5", "qwen35.rope.dimension_sections", 12 + 12, 2, "dimension_sections has a fourth",
	     SL_EUNSUPPORTED},
	    {"tiny-granite4", "granitehybrid.ssm.conv_kernel", 0, 0, "ssm.conv_kernel is 0", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.conv_kernel", 0, 9, "ssm.conv_kernel is 9", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.group_count", 0, 0, "ssm.group_count is 0", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.group_count", 0, 3,
	     "granitehybrid.ssm.time_step_rank is no multiple of the groups", SL_EUNSUPPORTED},
	    {"tiny-granite4", "granitehybrid.ssm.time_step_rank", 0, 0, "ssm.time_step_rank is 0", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.time_step_rank", 0, 7, "ssm.inner_size 512 is no multiple", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.state_size", 0, 0, "ssm.state_size is 0", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.state_size", 0, 513, "ssm.state_size is 513", SL_EINVAL},
	    {"tiny-granite4", "granitehybrid.ssm.inner_size", 0, 1 << 18, "ssm.inner_size gives no width of a head",
	     SL_EUNSUPPORTED},
	    {"tiny-granite4", "granitehybrid.attention.head_count_kv", 12 + 8, 0, "gives no layer with attention",
	     SL_EUNSUPPORTED},
	    {"tiny-granite4", "granitehybrid.block_count", 0, 3, "is not a list of a number for each of 3", SL_EINVAL},
	    {"tiny-nemotron-h", "nemotron_h.ssm.group_count", 0, 0, "ssm.group_count is 0", SL_EINVAL},
	    {"tiny-nemotron-h", "nemotron_h.ssm.state_size", 0, UINT32_MAX, "ssm.state_size", SL_EINVAL},
	    /* Layer 1 is a feed-forward half, layer 3 attends, layer 0 keeps a state. */
	    {"tiny-nemotron-h", "nemotron_h.feed_forward_length", 12 + 4, 511,
	     "feed_forward_length has 512 for layer 4", SL_EUNSUPPORTED},
	    {"tiny-nemotron-h", "nemotron_h.feed_forward_length", 12 + 4, UINT32_MAX, "feed_forward_length has -1",
	     SL_EUNSUPPORTED},
	    {"tiny-nemotron-h", "nemotron_h.feed_forward_length", 12 + 4, 1 << 19, "feed_forward_length has 524288",
	     SL_EUNSUPPORTED},
	    {"tiny-nemotron-h", "nemotron_h.feed_forward_length", 12 + 12, 512,
	     "feed_forward_length has 512 for layer 3, which attends", SL_EUNSUPPORTED},
	    {"tiny-nemotron-h", "nemotron_h.block_count", 0, 7, "is not a list of a number for each of 7", SL_EINVAL},
	    {"tiny-nemotron3", "nemotron_h_moe.expert_shared_count", 0, 2, "expert_shared_count is 2", SL_EINVAL},
	    {"tiny-nemotron3-2", "nemotron_h_moe.moe_latent_size", 0, 1 << 19, "moe_latent_size is 524288", SL_EINVAL},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct bytes b;
		write_file(bad[i].shape, &b);
		memcpy(value_of(&b, bad[i].key, bad[i].offset), &bad[i].value, 4);
		md_write(dir, "model.gguf", b.at, b.n);
		free(b.at);
		refused("model.gguf", bad[i].code, bad[i].said);
	}
}

/* Tensors of Mamba-2 layers: a name's 4 bytes behind it are the number of dimensions, then 8 for each of them. */
static void hostile_tensors(void **state)
{
	(void)state;
	struct sl_err none;
	static const struct {
		const char *shape, *tensor;
		size_t offset;
		uint32_t value;
		const char *said;
	} bad[] = {
	    {"tiny-granite4", "blk.0.ssm_in.weight", 12, 1127,
	     "tensor blk.0.ssm_in.weight is 256 × 1127, not 256 × 1096"},
	    {"tiny-granite4", "blk.0.ssm_conv1d.weight", 4, 3,
	     "tensor blk.0.ssm_conv1d.weight is not a vector of 2304"},
	    {"tiny-granite4", "blk.0.ssm_conv1d.bias", 4, 64, "tensor blk.0.ssm_conv1d.bias is not a vector of 576"},
	    {"tiny-granite4", "blk.0.ssm_a", 12, 7, "tensor blk.0.ssm_a is not a vector of 8 floats"},
	    {"tiny-granite4", "blk.0.ssm_d", 12, 7, "tensor blk.0.ssm_d is not a vector of 8 floats"},
	    {"tiny-granite4", "blk.0.ssm_dt.bias", 4, 4, "tensor blk.0.ssm_dt.bias is not a vector of 8 floats"},
	    {"tiny-nemotron-h", "blk.0.ssm_norm.weight", 12, 1, "tensor blk.0.ssm_norm.weight is not a vector of 512"},
	    {"tiny-nemotron-h", "blk.0.ssm_out.weight", 4, 256, "tensor blk.0.ssm_out.weight is 256 × 256"},
	    {"tiny-nemotron3-2", "blk.1.ffn_latent_up.weight", 4, 32, "blk.1.ffn_latent_up.weight is 32 × 192"},
	    {"tiny-nemotron3-2", "blk.1.ffn_up_exps.weight", 20, 5, "blk.1.ffn_up_exps.weight is 64 × 96 × 5"},
	    /* A name that nothing reads. */
	    {"tiny-nemotron-h", "blk.0.ssm_", SIZE_MAX, 'x', "is missing"},
	};
	const struct kn_ops *o = kn_select("auto", &none);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct bytes b;
		write_file(bad[i].shape, &b);
		uint8_t *at = random_file_after(b.at, b.n, bad[i].tensor);
		memcpy(at + (bad[i].offset == SIZE_MAX ? 0 : bad[i].offset), &bad[i].value,
		       bad[i].offset == SIZE_MAX ? 1 : 4);
		md_write(dir, "model.gguf", b.at, b.n);
		free(b.at);
		random_file_refused("model.gguf", o, bad[i].said);
	}
}

/* Decays that are no numbers, in either format's form. */
static void hostile_decays(void **state)
{
	(void)state;
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	struct sl_err none;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct bytes b;
		write_file("tiny-granite4", &b);
		struct model_file *f = opened("model.gguf");
		const struct model_tensor *t = model_file_find(f, "blk.3.ssm_a");
		uint8_t *at = memmem(b.at, b.n, t->data, (size_t)t->bytes);
		assert_non_null(at);
		memcpy(at + 2 * sizeof(float), &bad[i], sizeof(float));
		model_file_close(f);
		md_write(dir, "model.gguf", b.at, b.n);
		free(b.at);
		random_file_refused("model.gguf", kn_select("auto", &none),
				    "tensor blk.3.ssm_a gives head 2 a decay that is no number");
	}
}

/* Norms of groups and taps stay floats when files are quantized, on disk and on load: a product reads neither. */
static void quantized(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-granite4", "tiny-nemotron-h", "tiny-qwen3.5", "tiny-lfm2"};
	static const char *const types[] = {"f16", "q8_0", "q4_k"};
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	char in[256], out[256];
	md_path(in, dir, "model.gguf");
	md_path(out, dir, "out.gguf");
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
			struct sl_err err = {0};
			struct quantize_how how = {.replace = true, .n_threads = 1};
			struct model_quantize on_load = {.type = KN_Q8_0, .n_threads = 1};
			struct model_how loading = {.quantize = k == 0 ? &on_load : NULL};
			const struct kn_ops *o = kn_select("auto", &err);
			struct kn_backend *b;
			struct model *m = NULL;
			random_file("model.gguf", shapes[i], "f32", 3, 1);
			assert_int_equal(weight_plan_parse(types[k], &how.plan, &err), 0);
			if (quantize_model(in, out, &how, NULL, NULL, &err) != 0)
				fail_msg("%s", err.text);
			struct model_file *f = opened("out.gguf");
			for (size_t t = 0; t < model_file_n_tensors(f); t++) {
				const struct model_tensor *x = model_file_tensor_at(f, t);
				if (strstr(x->name, "norm") != NULL || strstr(x->name, "conv1d") != NULL ||
				    strstr(x->name, ".conv.") != NULL)
					assert_int_equal(x->type, KN_F32);
			}
			model_file_close(f);
			assert_int_equal(o->open(&kc, &b, &err), 0);
			if (model_load_as(out, &loading, o, b, 4, 0, &m, &err) != 0)
				fail_msg("%s as %s: %s", shapes[i], types[k], err.text);
			model_free(m);
			o->close(b);
		}
}

/* ---- Hugging Face ---- */

#define HYBRID                                                                                           \
	"\"hidden_size\":8,\"num_hidden_layers\":4,\"num_attention_heads\":2,\"num_key_value_heads\":1," \
	"\"intermediate_size\":16,\"max_position_embeddings\":8192,\"head_dim\":8"
#define LFM2 "{\"model_type\":\"lfm2\"," HYBRID
#define GRANITE4 "{\"model_type\":\"granitemoehybrid\"," HYBRID EPS ",\"mamba_n_heads\":4,\"num_local_experts\":0"
#define SOME_MAMBA ",\"layer_types\":[\"mamba\",\"attention\",\"mamba\",\"mamba\"]"
#define NEMOTRON                                                                                               \
	"{\"model_type\":\"nemotron_h\"," HYBRID ",\"mamba_num_heads\":4,\"mamba_head_dim\":4,\"n_groups\":2," \
	"\"mlp_hidden_act\":\"relu2\""
#define LETTERS ",\"hybrid_override_pattern\":\"M-*M\""
#define QWEN35 "{\"model_type\":\"qwen3_5\",\"text_config\":{\"model_type\":\"qwen3_5_text\"," HYBRID EPS
#define EPS ",\"rms_norm_eps\":1e-6"

static void described(const char *config, struct model_arch *a)
{
	md_text(dir, "config.json", config);
	struct model_file *f = opened("");
	arch_of(f, a);
	model_file_close(f);
}

static void configurations(void **state)
{
	(void)state;
	struct model_arch a;
	md_llama_folder(dir);
	described(LFM2 ",\"layer_types\":[\"conv\",\"conv\",\"full_attention\",\"conv\"],\"block_ff_dim\":600,"
		       "\"block_multiple_of\":256,\"norm_eps\":1e-4,\"block_use_swiglu\":true,\"conv_dim\":8}",
		  &a);
	assert_true(a.recurrent.kind == ARCH_SHORT_CONV && a.recurrent.conv == 3 && a.recurrent.layers[0] == 0xB);
	assert_true(a.n_ff == 512 && a.rms_eps == 1e-4f && a.qk_norm && a.rope.base == 1e6 && a.n_unknown_keys == 0);
	assert_true(arch_state(&a) == 3 * 2 * 8);
	described(LFM2 ",\"full_attn_idxs\":[0,3],\"conv_L_cache\":4,\"block_auto_adjust_ff_dim\":false}", &a);
	assert_true(a.recurrent.layers[0] == 0x6 && a.recurrent.conv == 4 && a.n_ff == 16);
	described("{\"model_type\":\"lfm2_moe\"," HYBRID ",\"full_attn_idxs\":[1],\"num_experts\":4,"
		  "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"num_dense_layers\":1}",
		  &a);
	assert_true(a.experts.n == 4 && a.experts.sigmoid && a.experts.norm && a.experts.n_dense == 1);
	described(QWEN35 ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":4,"
			 "\"linear_value_head_dim\":3,\"attn_output_gate\":true,\"mtp_num_hidden_layers\":1,"
			 "\"rope_parameters\":{\"rope_theta\":1e7,\"partial_rotary_factor\":0.5,\"rope_type\":"
			 "\"default\",\"mrope_section\":[1,0,0],\"mrope_interleaved\":true}}}",
		  &a);
	assert_true(a.recurrent.kind == ARCH_DELTA && a.recurrent.layers[0] == 0x7 && a.recurrent.log_decay);
	assert_true(!a.recurrent.tiled && a.attn_gate && a.norm_gain_offset == 1 && a.rope.n_rot == 4);
	assert_true(arch_channels(&a) == 2 * 2 * 4 + 6 * 3 && arch_state(&a) == 3 * (3 * 34 + 6 * 4 * 3));
	described("{\"model_type\":\"qwen3_next\"," HYBRID ",\"rms_norm_eps\":1e-6,\"num_experts\":4,"
		  "\"num_experts_per_tok\":2,\"linear_num_key_heads\":1,\"linear_num_value_heads\":2,"
		  "\"partial_rotary_factor\":0.5,\"full_attention_interval\":2}",
		  &a);
	assert_true(a.recurrent.layers[0] == 0x5 && a.recurrent.beta_alpha && a.experts.n == 4 &&
		    a.experts.shared_gate);
	described(GRANITE4 SOME_MAMBA ",\"shared_intermediate_size\":24,\"mamba_d_state\":3,\"mamba_d_head\":\"auto\","
				      "\"position_embedding_type\":\"nope\",\"residual_multiplier\":0.5,"
				      "\"mamba_chunk_size\":256,\"num_experts_per_tok\":0}",
		  &a);
	assert_true(a.recurrent.kind == ARCH_SSM && a.recurrent.layers[0] == 0xD && a.recurrent.log_decay);
	assert_true(a.n_ff == 24 && a.experts.n == 0 && a.no_rope_every == 1 && a.residual_scale == 0.5f &&
		    a.recurrent.conv_bias && a.n_unknown_keys == 0);
	assert_true(arch_channels(&a) == 16 + 2 * 3 && arch_state(&a) == 3 * (3 * 22 + 4 * 3 * 4));
	assert_true(a.recurrent.least == 0 && isinf(a.recurrent.most));
	/* All layers attend: a model without states, whose queries turn. */
	described("{\"model_type\":\"granitemoehybrid\"," HYBRID EPS
		  ",\"num_local_experts\":4,\"num_experts_per_tok\":2,"
		  "\"mamba_n_heads\":4,\"layer_types\":[\"attention\",\"attention\",\"attention\",\"attention\"],"
		  "\"position_embedding_type\":\"rope\",\"shared_intermediate_size\":8}",
		  &a);
	assert_true(!arch_is_recurrent(&a) && a.no_rope_every == 0 && a.experts.n == 4 && a.experts.n_ff == 16 &&
		    a.experts.n_ff_shared == 8 && a.experts.norm && arch_state(&a) == 0);
	/* Python's word for an infinite bound, and a string with that word. */
	described(NEMOTRON LETTERS ",\"time_step_limit\":[0.0, Infinity],\"layer_norm_epsilon\":1e-4,"
				   "\"_name_or_path\":\"\\\"Infinity\"}",
		  &a);
	assert_true(a.recurrent.layers[0] == 0x9 && a.only_ff[0] == 0x2 && a.one_half && a.ungated &&
		    a.rms_eps == 1e-4f);
	assert_true(isinf(a.recurrent.most) && arch_n_attending(&a, 4) == 1 && a.n_unknown_keys == 0);
	assert_true(!arch_mixes(&a, 1) && arch_has_ff(&a, 1) && arch_attends(&a, 2) && !arch_attends(&a, 1));
	described(
	    "{\"model_type\":\"nemotron_h\",\"hidden_size\":8,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
	    "\"attention_head_dim\":6,\"mamba_num_heads\":4,\"mamba_head_dim\":4,\"n_groups\":2,"
	    "\"layers_block_type\":[\"linear_attention\",\"moe\",\"full_attention\"],\"n_routed_experts\":4,"
	    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"moe_shared_expert_intermediate_size\":12,"
	    "\"moe_latent_size\":6,\"time_step_limit\":[0.001,{\"__float__\":\"Infinity\"}]}",
	    &a);
	assert_true(a.n_layers == 3 && a.head_dim == 6 && arch_mixes(&a, 1) && !arch_mixes(&a, 0) && a.experts.sigmoid);
	assert_true(a.experts.n_latent == 6 && a.experts.n_ff_shared == 12 && a.recurrent.least == 0.001f);
	described(NEMOTRON LETTERS ",\"time_step_limit\":[0.5,2]}", &a);
	assert_true(a.recurrent.least == 0.5f && a.recurrent.most == 2 && a.experts.n == 0);
	static const struct {
		const char *config, *said;
		int code;
	} bad[] = {
	    {LFM2 "}", "layer_types gives no layer with attention", SL_EUNSUPPORTED},
	    {LFM2 ",\"full_attn_idxs\":[4]}", "full_attn_idxs", SL_EINVAL},
	    {LFM2 ",\"full_attn_idxs\":[-1]}", "full_attn_idxs", SL_EINVAL},
	    {LFM2 ",\"layer_types\":[\"conv\",\"full_attention\"]}", "layer_types", SL_EUNSUPPORTED},
	    {LFM2 ",\"layer_types\":[\"conv\",\"full_attention\",\"mamba\",\"conv\"]}", "layer_types", SL_EUNSUPPORTED},
	    {LFM2 ",\"full_attn_idxs\":[1],\"conv_L_cache\":0}", "conv_L_cache", SL_EINVAL},
	    {LFM2 ",\"full_attn_idxs\":[1],\"conv_L_cache\":99}", "conv_L_cache", SL_EINVAL},
	    {LFM2 ",\"full_attn_idxs\":[1],\"conv_bias\":true}", "conv_bias", SL_EUNSUPPORTED},
	    {LFM2 ",\"full_attn_idxs\":[1],\"block_multiple_of\":0}", "block_multiple_of", SL_EINVAL},
	    {LFM2 ",\"full_attn_idxs\":[1],\"block_ff_dim\":262144,\"block_ffn_dim_multiplier\":16}", "block_ff_dim",
	     SL_EINVAL},
	    {QWEN35 ",\"linear_num_key_heads\":3,\"linear_num_value_heads\":4}}",
	     "linear_num_value_heads is no multiple of the key heads", SL_EUNSUPPORTED},
	    {QWEN35 ",\"linear_key_head_dim\":513}}", "linear_key_head_dim", SL_EINVAL},
	    {QWEN35 ",\"linear_value_head_dim\":0}}", "linear_value_head_dim", SL_EINVAL},
	    {QWEN35 ",\"linear_conv_kernel_dim\":9}}", "linear_conv_kernel_dim", SL_EINVAL},
	    {QWEN35 ",\"linear_num_value_heads\":2048,\"linear_value_head_dim\":512}}",
	     "linear_value_head_dim gives heads that are too wide together", SL_EUNSUPPORTED},
	    {QWEN35 ",\"full_attention_interval\":1}}", "full_attention_interval", SL_EINVAL},
	    {QWEN35 ",\"full_attention_interval\":9}}", "gives no layer with attention", SL_EUNSUPPORTED},
	    {QWEN35 ",\"attn_output_gate\":false}}", "attn_output_gate", SL_EUNSUPPORTED},
	    {GRANITE4 "}", "layer_types gives no layer with attention, or no other", SL_EUNSUPPORTED},
	    {GRANITE4 SOME_MAMBA ",\"mamba_n_groups\":0}", "mamba_n_groups", SL_EINVAL},
	    {GRANITE4 SOME_MAMBA ",\"mamba_n_groups\":2}", "mamba_n_groups", SL_EUNSUPPORTED},
	    {GRANITE4 SOME_MAMBA ",\"mamba_d_state\":513}", "mamba_d_state", SL_EINVAL},
	    {GRANITE4 SOME_MAMBA ",\"mamba_d_conv\":0}", "mamba_d_conv", SL_EINVAL},
	    {GRANITE4 SOME_MAMBA ",\"mamba_d_head\":5}", "mamba_d_head times mamba_n_heads", SL_EINVAL},
	    {GRANITE4 SOME_MAMBA ",\"mamba_d_head\":\"some\"}", "mamba_d_head", SL_EINVAL},
	    {GRANITE4 SOME_MAMBA ",\"mamba_proj_bias\":true}", "mamba_proj_bias", SL_EUNSUPPORTED},
	    {GRANITE4 SOME_MAMBA ",\"position_embedding_type\":\"alibi\"}", "position_embedding_type", SL_EUNSUPPORTED},
	    {GRANITE4 ",\"layer_types\":[\"mamba\",\"conv\",\"mamba\",\"attention\"]}", "layer_types", SL_EUNSUPPORTED},
	    {NEMOTRON "}", "hybrid_override_pattern", SL_EUNSUPPORTED},
	    {NEMOTRON ",\"hybrid_override_pattern\":\"M-*\"}", "hybrid_override_pattern", SL_EUNSUPPORTED},
	    {NEMOTRON ",\"hybrid_override_pattern\":\"M-*M*\"}", "more layers than num_hidden_layers", SL_EUNSUPPORTED},
	    {NEMOTRON ",\"hybrid_override_pattern\":\"M-*X\"}", "hybrid_override_pattern", SL_EUNSUPPORTED},
	    {NEMOTRON ",\"hybrid_override_pattern\":\"M-M-\"}", "gives no layer with attention", SL_EUNSUPPORTED},
	    {NEMOTRON ",\"hybrid_override_pattern\":\"M-*E\"}", "dense layers and mixtures", SL_EUNSUPPORTED},
	    {NEMOTRON LETTERS ",\"ssm_state_size\":0}", "ssm_state_size", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"conv_kernel\":9}", "conv_kernel", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"use_bias\":true}", "use_bias", SL_EUNSUPPORTED},
	    {NEMOTRON LETTERS ",\"mamba_hidden_act\":\"gelu\"}", "mamba_hidden_act", SL_EUNSUPPORTED},
	    {NEMOTRON LETTERS ",\"time_step_limit\":[0]}", "time_step_limit", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"time_step_limit\":[2,1]}", "time_step_limit", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"time_step_limit\":[0,NaN]}", "config.json: line", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"time_step_limit\":[0,-Infinity]}", "time_step_limit", SL_EINVAL},
	    {NEMOTRON LETTERS ",\"intermediate_size\":Infinity}", "intermediate_size", SL_EINVAL},
	    {"{\"model_type\":\"nemotron_h\"," HYBRID LETTERS ",\"mamba_num_heads\":3,\"n_groups\":2}",
	     "mamba_num_heads is no multiple of the groups", SL_EUNSUPPORTED},
	    {"{\"model_type\":\"nemotron_h\"," HYBRID LETTERS ",\"mlp_hidden_act\":\"silu\"}", "mlp_hidden_act",
	     SL_EUNSUPPORTED},
	    {"{\"model_type\":\"llama\"," HYBRID ",\"rms_norm_eps\":1e-6,\"mamba_n_heads\":4}", "mamba_n_heads",
	     SL_EUNSUPPORTED},
	    /* Of other families. */
	    {"{\"model_type\":\"qwen3\"," HYBRID ",\"rms_norm_eps\":1e-6,\"linear_num_key_heads\":2}",
	     "linear_num_key_heads", SL_EUNSUPPORTED},
	    {"{\"model_type\":\"llama\"," HYBRID ",\"rms_norm_eps\":1e-6,\"attn_output_gate\":true}",
	     "attn_output_gate", SL_EUNSUPPORTED},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		md_text(dir, "config.json", bad[i].config);
		refused("", bad[i].code, bad[i].said);
	}
}

/* ---- the same model in both formats ---- */

/* A tensor of a folder: the name there, dims with the slowest first. */
struct entry {
	char name[128];
	int n_dims;
	uint64_t dims[3];
	const float *data;
	size_t n;
};

struct folder {
	struct entry entries[128];
	size_t n;
};

static void add(struct folder *f, const char *name, int n_dims, const uint64_t *dims, const float *data)
{
	struct entry *e = &f->entries[f->n++];
	snprintf(e->name, sizeof e->name, "%s", name);
	e->n_dims = n_dims;
	e->data = data;
	e->n = 1;
	for (int i = 0; i < n_dims; i++)
		e->n *= (size_t)(e->dims[i] = dims[i]);
}

static void write_folder(const struct folder *f, const char *config)
{
	static char head[1 << 15];
	size_t n = (size_t)snprintf(head, sizeof head, "{"), bytes = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct entry *e = &f->entries[i];
		n += (size_t)snprintf(head + n, sizeof head - n, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[",
				      i > 0 ? "," : "", e->name);
		for (int d = 0; d < e->n_dims; d++)
			n += (size_t)snprintf(head + n, sizeof head - n, "%s%llu", d > 0 ? "," : "",
					      (unsigned long long)e->dims[d]);
		n += (size_t)snprintf(head + n, sizeof head - n, "],\"data_offsets\":[%zu,%zu]}", bytes,
				      bytes + 4 * e->n);
		bytes += 4 * e->n;
	}
	n += (size_t)snprintf(head + n, sizeof head - n, "}");
	while (n % 8 != 0)
		head[n++] = ' ';
	uint8_t *file = malloc(8 + n + bytes), *at = file + 8 + n;
	for (int i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)n >> 8 * i);
	memcpy(file + 8, head, n);
	for (size_t i = 0; i < f->n; at += 4 * f->entries[i++].n)
		memcpy(at, f->entries[i].data, 4 * f->entries[i].n);
	md_text(dir, "config.json", config);
	md_write(dir, "model.safetensors", file, 8 + n + bytes);
	free(file);
}

/* Names in the folder of what GGUF has in a layer; a convolution's taps have a dimension more. */
static const char *const nemotron_names[][2] = {
    {"attn_norm.weight", "norm.weight"},
    {"attn_q.weight", "mixer.q_proj.weight"},
    {"attn_k.weight", "mixer.k_proj.weight"},
    {"attn_v.weight", "mixer.v_proj.weight"},
    {"attn_output.weight", "mixer.o_proj.weight"},
    {"ssm_in.weight", "mixer.in_proj.weight"},
    {"ssm_out.weight", "mixer.out_proj.weight"},
    {"ssm_conv1d.weight", "mixer.conv1d.weight"},
    {"ssm_conv1d.bias", "mixer.conv1d.bias"},
    {"ssm_dt.bias", "mixer.dt_bias"},
    {"ssm_a", "mixer.A_log"},
    {"ssm_d", "mixer.D"},
    {"ssm_norm.weight", "mixer.norm.weight"},
    {"ffn_up.weight", "mixer.up_proj.weight"},
    {"ffn_down.weight", "mixer.down_proj.weight"},
    {NULL, NULL},
};

static const char *const lfm2_names[][2] = {
    {"attn_norm.weight", "operator_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.out_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_layernorm.weight"},
    {"attn_k_norm.weight", "self_attn.k_layernorm.weight"},
    {"shortconv.conv.weight", "conv.conv.weight"},
    {"shortconv.in_proj.weight", "conv.in_proj.weight"},
    {"shortconv.out_proj.weight", "conv.out_proj.weight"},
    {"ffn_gate.weight", "feed_forward.w1.weight"},
    {"ffn_up.weight", "feed_forward.w3.weight"},
    {"ffn_down.weight", "feed_forward.w2.weight"},
    {NULL, NULL},
};

static void add_renamed(struct folder *f, const struct model_tensor *t, const char *const (*names)[2])
{
	char name[128] = "";
	int layer, at = 0;
	if (strcmp(t->name, "token_embd.weight") == 0)
		snprintf(name, sizeof name,
			 names == lfm2_names ? "model.embed_tokens.weight" : "backbone.embeddings.weight");
	else if (strcmp(t->name, "output_norm.weight") == 0)
		snprintf(name, sizeof name, "backbone.norm_f.weight");
	else if (strcmp(t->name, "output.weight") == 0)
		snprintf(name, sizeof name, "lm_head.weight");
	else if (strcmp(t->name, "token_embd_norm.weight") == 0)
		snprintf(name, sizeof name, "model.embedding_norm.weight");
	else if (sscanf(t->name, "blk.%d.%n", &layer, &at) == 1)
		for (size_t i = 0; names[i][0] != NULL; i++)
			if (strcmp(names[i][0], t->name + at) == 0)
				snprintf(name, sizeof name, "%s.layers.%d.%s",
					 names == lfm2_names ? "model" : "backbone", layer, names[i][1]);
	if (name[0] == '\0')
		fail_msg("no name for %s", t->name);
	bool taps = strstr(t->name, "shortconv.conv") != NULL || strstr(t->name, "ssm_conv1d.weight") != NULL;
	if (strstr(t->name, ".ssm_a") != NULL || strstr(t->name, ".ssm_d") != NULL ||
	    strstr(t->name, ".ssm_norm") != NULL) {
		const uint64_t all[] = {t->dims[0] * t->dims[1]}; /* vectors there */
		add(f, name, 1, all, t->data);
		return;
	}
	const uint64_t dims[] = {t->n_dims == 1 ? t->dims[0] : t->dims[1], taps ? 1 : t->dims[0], t->dims[0]};
	add(f, name, t->n_dims + taps, dims, t->data);
}

static void as_in_gguf(const struct model_file *gguf, const struct model_file *folder)
{
	struct model_arch a, b;
	arch_of(gguf, &a);
	arch_of(folder, &b);
	same_recurrent(&a, &b, false);
	assert_true(a.n_layers == b.n_layers && a.n_ff == b.n_ff && a.n_kv_heads == b.n_kv_heads &&
		    a.head_dim == b.head_dim && a.rms_eps == b.rms_eps && a.qk_norm == b.qk_norm &&
		    a.rope.base == b.rope.base && a.rope.halves == b.rope.halves && a.n_vocab == b.n_vocab);
	assert_true(a.norm_name == b.norm_name || strcmp(a.norm_name, b.norm_name) == 0);
	assert_int_equal(model_file_n_tensors(gguf), model_file_n_tensors(folder));
	for (size_t i = 0; i < model_file_n_tensors(gguf); i++) {
		const struct model_tensor *t = model_file_tensor_at(gguf, i), *u = model_file_find(folder, t->name);
		if (u == NULL)
			fail_msg("the folder has no %s", t->name);
		assert_int_equal(t->bytes, u->bytes);
		assert_memory_equal(t->data, u->data, (size_t)t->bytes);
	}
}

static void lfm2_in_both_formats(void **state)
{
	(void)state;
	struct bytes b;
	static struct folder f;
	f.n = 0;
	write_file("tiny-lfm2-2", &b);
	struct model_file *gguf = opened("model.gguf");
	for (size_t i = 0; i < model_file_n_tensors(gguf); i++)
		add_renamed(&f, model_file_tensor_at(gguf, i), lfm2_names);
	write_folder(&f,
		     "{\"model_type\":\"lfm2\",\"hidden_size\":192,\"num_hidden_layers\":5,\"num_attention_heads\":6,"
		     "\"num_key_value_heads\":2,\"head_dim\":32,\"intermediate_size\":320,\"norm_eps\":1e-5,"
		     "\"block_auto_adjust_ff_dim\":false,\"max_position_embeddings\":1024,\"rope_theta\":10000,"
		     "\"conv_L_cache\":4,\"layer_types\":[\"conv\",\"full_attention\",\"conv\",\"conv\","
		     "\"full_attention\"]}");
	struct model_file *folder = opened("");
	as_in_gguf(gguf, folder);
	model_file_close(folder);
	char out[256];
	struct sl_err err = {0};
	struct quantize_how how = {.n_threads = 1};
	md_path(out, dir, "out.gguf");
	assert_int_equal(weight_plan_parse("q8_0", &how.plan, &err), 0);
	assert_int_equal(quantize_model(dir, out, &how, NULL, NULL, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "whose layers keep a state"));
	model_file_close(gguf);
	free(b.at);
}

/* Its decays are logarithms in the folder, which this does not turn; models that read them are compared in
 * test_families.c. */
static void nemotron_in_both_formats(void **state)
{
	(void)state;
	struct bytes b;
	static struct folder f;
	f.n = 0;
	write_file("tiny-nemotron-h-2", &b);
	struct model_file *gguf = opened("model.gguf");
	for (size_t i = 0; i < model_file_n_tensors(gguf); i++)
		add_renamed(&f, model_file_tensor_at(gguf, i), nemotron_names);
	write_folder(&f,
		     "{\"model_type\":\"nemotron_h\",\"hidden_size\":192,\"num_hidden_layers\":7,"
		     "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":48,\"intermediate_size\":320,"
		     "\"layer_norm_epsilon\":1e-5,\"max_position_embeddings\":1024,\"mamba_num_heads\":12,"
		     "\"mamba_head_dim\":32,\"n_groups\":4,\"ssm_state_size\":40,\"conv_kernel\":2,"
		     "\"hybrid_override_pattern\":\"*M--M*M\",\"time_step_limit\":[0.0,Infinity]}");
	struct model_file *folder = opened("");
	as_in_gguf(gguf, folder);
	model_file_close(folder);
	model_file_close(gguf);
	free(b.at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(written_and_read, setup, teardown),
	    cmocka_unit_test_setup_teardown(hostile_keys, setup, teardown),
	    cmocka_unit_test_setup_teardown(hostile_tensors, setup, teardown),
	    cmocka_unit_test_setup_teardown(hostile_decays, setup, teardown),
	    cmocka_unit_test_setup_teardown(quantized, setup, teardown),
	    cmocka_unit_test_setup_teardown(configurations, setup, teardown),
	    cmocka_unit_test_setup_teardown(lfm2_in_both_formats, setup, teardown),
	    cmocka_unit_test_setup_teardown(nemotron_in_both_formats, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
