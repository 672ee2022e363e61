/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of four bits in Hugging Face folders (engine/packed/hf_words.h): made here from known integers, packed as
 * GPTQ, AWQ and compressed-tensors pack them, they become the weights that their formula says, exactly or within the
 * bound that the header gives; whatever is not supported or does not fit together is one line that names it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "base/fault.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "engine/source/quantize_model.h"
#include "kernels/quantize.h"
#include "tests/support/model_dir_fixture.h"

enum { OUT = 24, IN = 256, MOST_GROUPS = IN / 32 };
#define PREFIX "model.layers.0.self_attn.q_proj"

/* ---- a matrix ---- */

static uint32_t code[OUT][IN], zero[OUT][MOST_GROUPS];
static float scale[OUT][MOST_GROUPS];
static uint64_t random_state;

static uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* Scales are float16's and bfloat16's both. */
static void draw_matrix(bool symmetric)
{
	random_state = 3;
	for (int o = 0; o < OUT; o++) {
		for (int k = 0; k < IN; k++)
			code[o][k] = at_random(16);
		for (int g = 0; g < MOST_GROUPS; g++) {
			zero[o][g] = symmetric ? 8 : 1 + at_random(15);
			scale[o][g] = (float)(1 + at_random(127)) / 4096;
		}
	}
}

/* ---- safetensors ---- */

struct raw {
	char name[96];
	const char *dtype;
	uint64_t rows, width; /* rows 0: a vector */
	size_t bytes;
	uint8_t *at;
};

static struct raw raws[32];
static const char *prefix = PREFIX;
static size_t n_raws;

static void drop_raws(void)
{
	for (size_t i = 0; i < n_raws; i++)
		free(raws[i].at);
	n_raws = 0;
}

static void *add(const char *suffix, const char *dtype, uint64_t rows, uint64_t width)
{
	struct raw *r = &raws[n_raws++];
	size_t each = strcmp(dtype, "I64") == 0 ? 8 : strcmp(dtype, "I32") == 0 || strcmp(dtype, "F32") == 0 ? 4 : 2;
	snprintf(r->name, sizeof r->name, "%s%s", prefix, suffix);
	r->dtype = dtype;
	r->rows = rows;
	r->width = width;
	r->bytes = (size_t)((rows > 0 ? rows : 1) * width) * each;
	r->at = calloc(1, r->bytes);
	return r->at;
}

static void write_tensors(void)
{
	static char head[8192];
	size_t h, at = 0;
	FILE *f;
	char path[256];
	h = (size_t)snprintf(head, sizeof head, "{");
	for (size_t i = 0; i < n_raws; at += raws[i++].bytes) {
		h += (size_t)snprintf(head + h, sizeof head - h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
				      i > 0 ? "," : "", raws[i].name, raws[i].dtype);
		if (raws[i].rows > 0)
			h += (size_t)snprintf(head + h, sizeof head - h, "%d,", (int)raws[i].rows);
		h += (size_t)snprintf(head + h, sizeof head - h, "%d],\"data_offsets\":[%zu,%zu]}", (int)raws[i].width,
				      at, at + raws[i].bytes);
	}
	h += (size_t)snprintf(head + h, sizeof head - h, "}");
	while (h % 8 != 0)
		head[h++] = ' ';
	uint64_t n = h;
	md_path(path, dir, "model.safetensors");
	f = fopen(path, "wb");
	assert_non_null(f);
	fwrite(&n, 8, 1, f);
	fwrite(head, 1, h, f);
	for (size_t i = 0; i < n_raws; i++)
		fwrite(raws[i].at, 1, raws[i].bytes, f);
	assert_int_equal(fclose(f), 0);
}

static void write_folder(const char *config)
{
	static char text[2048];
	snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"quantization_config\":%s}", config);
	md_text(dir, "config.json", text);
	write_tensors();
}

/* ---- how each form packs ---- */

static void put_scale(void *scales, const char *dtype, int i, float v)
{
	uint16_t h;
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	if (strcmp(dtype, "F32") == 0) {
		((float *)scales)[i] = v;
		return;
	}
	h = (uint16_t)(bits >> 16);
	if (strcmp(dtype, "F16") == 0)
		assert_int_equal(kn_quantize_row(KN_F16, &v, 1, (uint8_t *)&h), 0);
	((uint16_t *)scales)[i] = h;
}

static void pack_gptq(int group, uint32_t off, const char *dtype)
{
	int groups = IN / group;
	uint32_t *q = add(".qweight", "I32", IN / 8, OUT), *z = add(".qzeros", "I32", (uint64_t)groups, OUT / 8);
	void *s = add(".scales", dtype, (uint64_t)groups, OUT);
	int32_t *order = add(".g_idx", "I32", 0, IN);
	for (int k = 0; k < IN; k++) {
		order[k] = k / group;
		for (int o = 0; o < OUT; o++)
			q[k / 8 * OUT + o] |= code[o][k] << 4 * (k % 8);
	}
	for (int g = 0; g < groups; g++)
		for (int o = 0; o < OUT; o++) {
			z[g * (OUT / 8) + o / 8] |= (zero[o][g] - off) << 4 * (o % 8);
			put_scale(s, dtype, g * OUT + o, scale[o][g]);
		}
}

static void pack_awq(int group, const char *dtype)
{
	static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
	int groups = IN / group;
	uint32_t *q = add(".qweight", "I32", IN, OUT / 8), *z = add(".qzeros", "I32", (uint64_t)groups, OUT / 8);
	void *s = add(".scales", dtype, (uint64_t)groups, OUT);
	for (int c = 0; c < OUT / 8; c++)
		for (int i = 0; i < 8; i++) {
			int o = 8 * c + order[i];
			for (int k = 0; k < IN; k++)
				q[k * (OUT / 8) + c] |= code[o][k] << 4 * i;
			for (int g = 0; g < groups; g++) {
				z[g * (OUT / 8) + c] |= zero[o][g] << 4 * i;
				put_scale(s, dtype, g * OUT + o, scale[o][g]);
			}
		}
}

static void pack_packed(int group, bool zeros, const char *dtype)
{
	int groups = IN / group;
	uint32_t *q = add(".weight_packed", "I32", OUT, IN / 8),
		 *z = zeros ? add(".weight_zero_point", "I32", OUT / 8, (uint64_t)groups) : NULL;
	void *s = add(".weight_scale", dtype, OUT, (uint64_t)groups);
	int64_t *shape = add(".weight_shape", "I64", 0, 2);
	shape[0] = OUT;
	shape[1] = IN;
	for (int o = 0; o < OUT; o++) {
		for (int k = 0; k < IN; k++)
			q[o * (IN / 8) + k / 8] |= code[o][k] << 4 * (k % 8);
		for (int g = 0; g < groups; g++) {
			if (zeros)
				z[o / 8 * groups + g] |= zero[o][g] << 4 * (o % 8);
			put_scale(s, dtype, o * groups + g, scale[o][g]);
		}
	}
}

#define GPTQ(more) "{\"quant_method\":\"gptq\",\"bits\":4" more "}"
#define AWQ(more) "{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemm\"" more "}"
#define PACKED(weights, more)                                                                       \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":" \
	"{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\"" weights "}}}" more "}"

/* ---- what becomes of them ---- */

static struct model_file *opened(void)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	if (model_file_open(dir, &f, &err) != 0)
		fail_msg("%s", err.text);
	return f;
}

static void check(const char *config, int group, int type)
{
	static float row[IN];
	struct sl_err err = {0};
	write_folder(config);
	struct model_file *f = opened();
	assert_int_equal(model_file_n_tensors(f), 1);
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_q.weight");
	assert_non_null(t);
	if (t->type != type)
		fail_msg("%s: %s, not %s", config, kn_type_name(t->type), kn_type_name(type));
	assert_true(t->n_dims == 2 && t->dims[0] == IN && t->dims[1] == OUT);
	assert_int_equal(t->bytes, OUT * kn_row_bytes(type, IN));
	assert_null(t->data);
	for (int again = 0; again < 2; again++) {
		if (model_file_bring(f, t, &err) != 0)
			fail_msg("%s", err.text);
		assert_int_equal(model_file_bring(f, t, &err), 0);
		for (int o = 0; o < OUT; o++) {
			kn_dequantize(type, (const uint8_t *)t->data + (size_t)o * kn_row_bytes(type, IN), IN, row);
			for (int k = 0; k < IN; k++) {
				int g = k / group;
				double s = (double)scale[o][g], z = zero[o][g], want = s * (code[o][k] - z);
				double bound = type == KN_Q4_1 ? 0x1p-11 * s * z + 0x1p-23 * fabs(want) : 0;
				if (!(fabs((double)row[k] - want) <= bound))
					fail_msg("%s: weight %d of %d is %.9g, not %.9g", config, k, o, (double)row[k],
						 want);
			}
		}
		model_file_let_go(f, t); /* and once more */
		assert_null(t->data);
	}
	model_file_close(f);
	drop_raws();
}

static void test_forms(void **arg)
{
	(void)arg;
	draw_matrix(true);
	pack_gptq(128, 1, "F16");
	check(GPTQ(",\"group_size\":128,\"sym\":true,\"desc_act\":false"), 128, KN_INT4);
	pack_gptq(64, 0, "F16");
	check(GPTQ(",\"group_size\":64,\"checkpoint_format\":\"gptq_v2\",\"dynamic\":{}"), 64, KN_Q4_0);
	pack_gptq(IN, 1, "BF16");
	check(GPTQ(",\"group_size\":-1"), IN, KN_INT4);
	pack_awq(128, "F16");
	check(AWQ(",\"group_size\":128,\"zero_point\":false"), 128, KN_INT4);
	pack_packed(128, false, "BF16");
	check(PACKED(",\"strategy\":\"group\",\"group_size\":128,\"symmetric\":true,\"actorder\":null",
		     ",\"ignore\":[\"lm_head\"]"),
	      128, KN_INT4);
	pack_packed(IN, false, "F32");
	check(
	    PACKED(",\"strategy\":\"channel\",\"group_size\":null", ",\"kv_cache_scheme\":null,\"sparsity_config\":{}"),
	    IN, KN_INT4);
	pack_packed(32, true, "F16");
	check(PACKED(",\"strategy\":\"group\",\"group_size\":32", ""), 32, KN_Q4_0);

	draw_matrix(false);
	pack_gptq(128, 1, "F16");
	check(GPTQ(",\"group_size\":128,\"sym\":false"), 128, KN_Q4_1);
	pack_awq(128, "F16");
	check(AWQ(",\"group_size\":128,\"zero_point\":true"), 128, KN_Q4_1);
	pack_awq(64, "BF16");
	check("{\"quant_method\":\"awq\",\"w_bit\":4,\"group_size\":64}", 64, KN_Q4_1);
	pack_packed(64, true, "BF16");
	check(PACKED(",\"strategy\":\"group\",\"group_size\":64,\"symmetric\":false", ""), 64, KN_Q4_1);
}

/* One line, of that code, with these words: from the head alone, or once the numbers are read. */
static void refused(const char *config, int code_wanted, const char *words)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	write_folder(config);
	int rc = model_file_open(dir, &f, &err);
	for (size_t i = 0; rc == 0 && i < model_file_n_tensors(f); i++)
		rc = model_file_bring(f, model_file_tensor_at(f, i), &err);
	model_file_close(f);
	if (rc != code_wanted || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%s: %d \"%s\", not %d with \"%s\"", config, rc, err.text, code_wanted, words);
}

static void test_configs(void **arg)
{
	static const struct {
		const char *config, *words;
	} cases[] = {
	    {"{\"quant_method\":\"hqq\\n\"}", "quant_method \"hqq?\""},
	    {"{}", "quant_method \"unknown\""},
	    {"[]", "quant_method \"unknown\""},
	    {"{\"quant_method\":\"gptq\"}", "gptq with bits other than 4 and 8"},
    {"{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":128}", "gptq with bits other than 4 and 8"},
    {GPTQ(",\"group_size\":128,\"dynamic\":{\"-:lm\":{},\"+:down\":{\"bits\":8}}"), "dynamic"},
    {GPTQ(",\"group_size\":128,\"checkpoint_format\":\"marlin\""), "the marlin format"},
	    {GPTQ(",\"group_size\":128,\"is_marlin_format\":true"), "the marlin format"},
	    {GPTQ(""), "a group_size"},
	    {GPTQ(",\"group_size\":0"), "a group_size"},
	    {GPTQ(",\"group_size\":100"), "a group_size"},
	    {GPTQ(",\"group_size\":-128"), "a group_size"},
	    {GPTQ(",\"group_size\":9000000000000000000"), "a group_size"},
	    {GPTQ(",\"group_size\":\"128\""), "a group_size"},
	    {"{\"quant_method\":\"awq\",\"bits\":3}", "awq with bits other than 4"},
	    {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\",\"group_size\":128}",
	     "awq of a version other than gemm"},
	    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\"}", "config_groups without a group"},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{}}",
     "config_groups without a group"},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":1}}",
     "int of 4 or 8 bits"},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\",\"config_groups\":{\"a\":{\"weights\":{}}}}",
     "the format \"marlin-24\""},
    {PACKED(",\"strategy\":\"tensor\"", ""), "a strategy"},
    {PACKED(",\"strategy\":\"group\",\"group_size\":128,\"actorder\":\"weights\"", ""), "an actorder other than"},
    {PACKED(",\"strategy\":\"channel\"", ",\"sparsity_config\":{\"format\":\"sparse-24\"}"), "sparsity_config"},
	};
	(void)arg;
	draw_matrix(true);
	pack_gptq(128, 1, "F16");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refused(cases[i].config, SL_EUNSUPPORTED, cases[i].words);
	drop_raws();
}

static void test_shapes(void **arg)
{
	static const char gptq[] = GPTQ(",\"group_size\":128"),
			  packed[] = PACKED(",\"strategy\":\"group\",\"group_size\":128", "");
	(void)arg;
	draw_matrix(true);
	pack_gptq(128, 1, "F16");
	raws[0].dtype = "U32";
	refused(gptq, SL_EINVAL, "is no matrix of I32");
	raws[0].dtype = "I32";
	refused(GPTQ(",\"group_size\":96"), SL_EINVAL, "no multiple of the group size");
	refused(GPTQ(",\"group_size\":64"), SL_EINVAL, "has no scales of its shape");
	raws[2].dtype = "I16";
	refused(gptq, SL_EINVAL, "has no scales of its shape");
	raws[2].dtype = "F16";
	raws[1].rows = 1, raws[1].width *= 2;
	refused(gptq, SL_EINVAL, "has zero points of another shape");
	raws[1].rows = 2, raws[1].width /= 2;
	raws[3].rows = 2, raws[3].width /= 2;
	refused(gptq, SL_EINVAL, "has a g_idx of another shape");
	raws[3].rows = 0, raws[3].width = IN;
	((int32_t *)(void *)raws[3].at)[5] = 1;
	refused(gptq, SL_EINVAL, "in another order, but the configuration says none (desc_act)");
	((int32_t *)(void *)raws[3].at)[5] = 0;
	raws[1].at[0] = 0;
	refused(gptq, SL_EINVAL, "a zero point other than the middle");
	raws[1].at[0] = 0x77;
	memcpy(raws[2].at, "\0\x7c", 2); /* infinite */
	refused(gptq, SL_EINVAL, "a scale that is no number or too large");
	memcpy(raws[2].at, "\1\x7e", 2);
	refused(gptq, SL_EINVAL, "a scale that is no number or too large");
	memcpy(raws[2].at, "\0\x70", 2); /* 8192: fits, but not 16 times */
	refused(GPTQ(",\"group_size\":128,\"sym\":false"), SL_EINVAL, "a scale that is no number or too large");
	snprintf(raws[2].name, sizeof raws[2].name, "%s.scales", "model.layers.0.self_attn.k_proj");
	refused(gptq, SL_EINVAL, "self_attn.k_proj.scales belongs to no quantized matrix");
	snprintf(raws[2].name, sizeof raws[2].name, "model.layers.0.other");
	refused(gptq, SL_EINVAL, "has no scales of its shape");
	drop_raws();

	pack_packed(128, false, "F16");
	refused(PACKED(",\"strategy\":\"group\",\"group_size\":128,\"symmetric\":false", ""), SL_EINVAL,
		"has no zero points");
	raws[2].at[0] = 7;
	refused(packed, SL_EINVAL, "has a weight_shape that is another");
	raws[2].dtype = "F32", raws[2].width = 4;
	refused(packed, SL_EINVAL, "has a weight_shape that is another");
	drop_raws();

	/* Integers that no matrix of a model has stay what they are called. */
	pack_gptq(128, 1, "F16");
	for (size_t i = 0; i < n_raws; i++) {
		char name[96];
		snprintf(name, sizeof name, "model.layers.0.other%s", strrchr(raws[i].name, '.'));
		memcpy(raws[i].name, name, sizeof name);
	}
	write_folder(gptq);
	struct model_file *f = opened();
	assert_non_null(model_file_find(f, "model.layers.0.other.weight"));
	model_file_close(f);
	drop_raws();
}

/* ---- a whole model ---- */

enum { WIDE = 64, N_MATRICES = 7, N_TOKENS = 7 };
static const char *const matrices[N_MATRICES] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
						 "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
						 "mlp.down_proj"};
#define SHAPE                                                                                             \
	"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":2," \
	"\"num_key_value_heads\":2,\"intermediate_size\":64,\"max_position_embeddings\":64,"              \
	"\"rms_norm_eps\":1e-5,\"rope_theta\":20000,\"hidden_act\":\"silu\",\"vocab_size\":7,"            \
	"\"tie_word_embeddings\":false,\"bos_token_id\":0,\"eos_token_id\":[1,2]"

static void add_floats(const char *name, uint64_t rows, uint64_t width, float most)
{
	prefix = name;
	float *x = add("", "F32", rows, width);
	for (uint64_t i = 0; i < (rows > 0 ? rows : 1) * width; i++)
		x[i] = most * (1 + (float)at_random(64) / 64) * (rows > 0 && at_random(2) ? -1.0f : 1.0f);
}

static void add_ends(void)
{
	random_state = 17;
	add_floats("model.embed_tokens.weight", N_TOKENS, WIDE, 0.5f);
	add_floats("lm_head.weight", N_TOKENS, WIDE, 0.5f);
	add_floats("model.norm.weight", 0, WIDE, 0.5f);
	add_floats("model.layers.0.input_layernorm.weight", 0, WIDE, 0.5f);
	add_floats("model.layers.0.post_attention_layernorm.weight", 0, WIDE, 0.5f);
}

/* All of a model in groups of 32, any bits for the integers. */
static void write_model(void)
{
	static char names[N_MATRICES][96];
	add_ends();
	for (int i = 0; i < N_MATRICES; i++) {
		snprintf(names[i], sizeof names[i], "model.layers.0.%s", matrices[i]);
		prefix = names[i];
		uint32_t *q = add(".qweight", "I32", WIDE / 8, WIDE), *z = add(".qzeros", "I32", WIDE / 32, WIDE / 8);
		uint16_t *s = add(".scales", "F16", WIDE / 32, WIDE);
		for (int k = 0; k < WIDE / 8 * WIDE; k++)
			q[k] = at_random(1u << 16) << 16 | at_random(1u << 16);
		for (int k = 0; k < WIDE / 32 * WIDE / 8; k++)
			z[k] = 0x77777777;
		for (int k = 0; k < WIDE / 32 * WIDE; k++)
			s[k] = (uint16_t)(0x2400 + at_random(1024)); /* about 1/64 */
	}
	prefix = PREFIX;
	md_text(dir, "config.json", SHAPE ",\"quantization_config\":" GPTQ(",\"group_size\":32") "}");
	md_text(dir, "tokenizer.json", md_tokenizer);
	write_tensors();
}

/* The same in floats, as the reader made them. */
static void write_plain(void)
{
	static char names[N_MATRICES][96];
	struct model_file *f = opened();
	struct sl_err err = {0};
	static const char *const ours[N_MATRICES] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
						     "ffn_gate", "ffn_up", "ffn_down"};
	drop_raws();
	add_ends();
	for (int i = 0; i < N_MATRICES; i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.0.%s.weight", ours[i]);
		const struct model_tensor *t = model_file_find(f, name);
		assert_non_null(t);
		assert_int_equal(t->type, KN_Q4_0);
		assert_int_equal(model_file_bring(f, t, &err), 0);
		snprintf(names[i], sizeof names[i], "model.layers.0.%s", matrices[i]);
		prefix = names[i];
		kn_dequantize(t->type, t->data, WIDE * WIDE, add(".weight", "F32", WIDE, WIDE));
	}
	prefix = PREFIX;
	model_file_close(f);
	md_text(dir, "config.json", SHAPE "}");
	write_tensors();
	drop_raws();
}

/* Logits of the last of some tokens. */
static void logits_of(const char *path, float *out)
{
	static const int32_t token[3] = {2, 5, 3}, pos[3] = {0, 1, 2}, seq[3], page[1], want = 2;
	const struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 256};
	struct sl_err err = {0};
	struct kn_backend *b = NULL;
	struct model *m = NULL;
	struct kv_pool *pool = NULL;
	const struct kn_ops *o = kn_select("cpu-ref", &err);
	assert_non_null(o);
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	if (model_load(path, o, b, 4, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(kv_pool_create(o, b, KN_F32, 1, 16, 1, 2, 32, &pool, &err), 0);
	struct kn_step s = {.n_rows = 3,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = page,
			    .max_pages = 1};
	assert_int_equal(model_forward(m, &s, kv_pool_layout(pool), &want, 1, out), 0);
	kv_pool_destroy(pool);
	model_free(m);
	o->close(b);
}

/* A model says with four bits what it says with the same numbers as floats; a GGUF file made of it has the very blocks.
 */
static void test_model(void **arg)
{
	static float packed[N_TOKENS], plain[N_TOKENS];
	const struct weight_plan plan = {KN_Q4_0, KN_Q4_0};
	struct sl_err err = {0};
	struct model_file *g = NULL;
	char out[256];
	(void)arg;
	md_path(out, dir, "out.gguf");
	write_model();
	logits_of(dir, packed);
	if (quantize_model(dir, out, true, &plan, 1, NULL, &err) != 0 || model_file_open(out, &g, &err) != 0)
		fail_msg("%s", err.text);
	struct model_file *f = opened();
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_v.weight"),
				  *written = model_file_find(g, "blk.0.attn_v.weight");
	assert_int_equal(model_file_bring(f, t, &err), 0);
	assert_int_equal(written->bytes, t->bytes);
	assert_memory_equal(written->data, t->data, (size_t)t->bytes);
	model_file_close(f);
	model_file_close(g);
	write_plain();
	logits_of(dir, plain);
	for (int i = 0; i < N_TOKENS; i++) {
		assert_true(isfinite(plain[i]) && fabsf(plain[i]) > 0);
		assert_true(fabsf(packed[i] - plain[i]) <= 1e-4f * (1 + fabsf(plain[i])));
	}
}

static void test_no_memory(void **arg)
{
	int n_failed = 0;
	(void)arg;
	draw_matrix(true);
	pack_gptq(128, 1, "F16");
	write_folder(GPTQ(",\"group_size\":128"));
	for (long nth = 1; nth < 200; nth++) {
		struct sl_err err = {0};
		struct model_file *f = NULL;
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = model_file_open(dir, &f, &err);
		if (rc == 0)
			rc = model_file_bring(f, model_file_find(f, "blk.0.attn_q.weight"), &err);
		bool struck = fault_passes(FAULT_ALLOC) - before >= nth;
		fault_disarm_all();
		model_file_close(f);
		assert_true(rc == 0 || err.text[0] != '\0'); /* a file whose name found no memory is not there */
		n_failed += rc != 0;
		if (!struck)
			break;
	}
	assert_true(n_failed > 10);
	drop_raws();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_forms, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_configs, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_model, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
