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

#include "engine/source/quantize_model.h"
#include "tests/unit/engine/source/packed_files.h"

enum { OUT = 24, IN = 256, MOST_GROUPS = IN / 32 };

/* ---- a matrix ---- */

static uint32_t code[OUT][IN], zero[OUT][MOST_GROUPS];
static float scale[OUT][MOST_GROUPS];
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

/* ---- how each form packs ---- */

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

static void check(const char *config, int group, int type)
{
	static float row[IN];
	struct sl_err err = {0};
	write_folder(config);
	struct model_file *f = opened();
	const struct model_tensor *t = the_matrix(f, config, OUT, IN, type);
	assert_int_equal(t->bytes, OUT * kn_row_bytes(type, IN));
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

/* ---- eight bits, and groups of any columns ---- */

static struct {
	int bits, group;
	bool packed, shuffled, zeros;
} as;

/* The group of a column: a permutation's, if columns are shuffled. */
static int group_of(int k, int n_in) { return (as.shuffled ? (k * 7 + 3) % n_in : k) / as.group; }

static float scale_of_group(int o, int g, int n_in)
{
	double most = 0;
	for (int k = 0; k < n_in; k++)
		if (group_of(k, n_in) == g)
			most = fmax(most, fabs((double)drawn[o][k]));
	return (float)(most / ((1 << (as.bits - 1)) - 1));
}

static void put_field(uint32_t *words, int at, int place, int value)
{
	words[at] |= (uint32_t)value << as.bits * place;
}

static void pack_words(int n_out, int n_in)
{
	int each = 32 / as.bits, groups = n_in / as.group, middle = 1 << (as.bits - 1);
	uint64_t out = (uint64_t)n_out, in = (uint64_t)n_in, n = (uint64_t)groups, by = (uint64_t)each;
	uint32_t *q = as.packed ? add(".weight_packed", "I32", out, in / by) : add(".qweight", "I32", in / by, out);
	uint32_t *z = as.packed && as.zeros ? add(".weight_zero_point", "I32", out / by, n)
		      : as.packed           ? NULL
					    : add(".qzeros", "I32", n, out / by);
	float *s = as.packed ? add(".weight_scale", "F32", out, n) : add(".scales", "F32", n, out);
	int32_t *order = add(as.packed ? ".weight_g_idx" : ".g_idx", "I32", 0, in);
	for (int k = 0; k < n_in; k++)
		order[k] = group_of(k, n_in);
	for (int o = 0; o < n_out; o++)
		for (int g = 0; g < groups; g++) {
			int at = as.packed ? o * groups + g : g * n_out + o, mid = middle + (as.zeros ? g % 3 - 1 : 0);
			s[at] = scale_of_group(o, g, n_in);
			if (as.packed && z != NULL)
				put_field(z, o / each * groups + g, o % each, mid);
			else if (z != NULL)
				put_field(z, g * (n_out / each) + o / each, o % each, mid - 1);
			for (int k = 0; k < n_in; k++) {
				if (group_of(k, n_in) != g)
					continue;
				long word = lrint((double)drawn[o][k] / (double)s[at]) + mid;
				word = word < 0 ? 0 : word > 2 * middle - 1 ? 2 * middle - 1 : word;
				put_field(q, as.packed ? o * (n_in / each) + k / each : k / each * n_out + o, k % each,
					  (int)word);
				wanted[o][k] = (double)(word - mid) * (double)s[at];
				slack[o][k] = fabs(wanted[o][k]) * 0x1p-11 + 128 * 0x1p-25;
			}
		}
	if (as.shuffled || as.zeros)
		slack_of_q8(n_out, n_in);
}

#define GPTQ8(more) "{\"quant_method\":\"gptq\",\"bits\":8" more "}"
#define PACKED8(more)                                                                               \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":" \
	"{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"int\"" more "}}}}"
#define GROUP64 ",\"strategy\":\"group\",\"group_size\":64"

static void test_orders_and_bytes(void **arg)
{
	(void)arg;
	as.bits = 8, as.group = 64;
	check_matrix(GPTQ8(",\"group_size\":64"), pack_words, OUT, IN, 2, KN_Q8_0);
	as.zeros = true;
	check_matrix(GPTQ8(",\"group_size\":64,\"sym\":false"), pack_words, OUT, IN, 2, KN_Q8_0);
	as.packed = true;
	check_matrix(PACKED8(GROUP64 ",\"symmetric\":false"), pack_words, OUT, IN, 2, KN_Q8_0);
	as.zeros = false;
	check_matrix(PACKED8(GROUP64), pack_words, OUT, IN, 2, KN_Q8_0);
	as.shuffled = true;
	check_matrix(PACKED8(GROUP64 ",\"actorder\":\"group\""), pack_words, OUT, IN, 2, KN_Q8_0);
	as.bits = 4;
	check_matrix(PACKED(GROUP64 ",\"actorder\":\"dynamic\"", ""), pack_words, OUT, IN, 2, KN_Q8_0);
	as.zeros = true;
	check_matrix(PACKED(GROUP64 ",\"symmetric\":false,\"actorder\":true", ""), pack_words, OUT, IN, 2, KN_Q8_0);
	as.packed = false;
	check_matrix(GPTQ(",\"group_size\":64,\"sym\":false,\"desc_act\":true"), pack_words, OUT, IN, 2, KN_Q8_0);
	as.zeros = false;
	check_matrix(GPTQ(",\"group_size\":64,\"desc_act\":true"), pack_words, OUT, IN, 2, KN_Q8_0);
	/* Logits: Q8_0 of numbers that lie on a grid of their own, each off by up to half a step. */
	check_logits(GPTQ(",\"group_size\":64,\"desc_act\":true"), 64, 0, pack_words, 2.4 / 127 / sqrt(12));
	as.shuffled = false; /* declared, but in order: four bits stay four bits */
	check_matrix(GPTQ(",\"group_size\":64,\"desc_act\":true"), pack_words, OUT, IN, 2, KN_Q4_0);
	as.packed = true;
	check_matrix(PACKED(GROUP64 ",\"actorder\":\"weight\"", ""), pack_words, OUT, IN, 2, KN_Q4_0);
	as.bits = 8;
	check_logits(PACKED8(GROUP64), 64, 0, pack_words, 0x1p-11);
}

/* Gate and up, row by row: each has every second row. */
static void check_turns(const char *config, int bits, bool packed, bool shuffled)
{
	static const char *const halves[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"};
	static float row[IN];
	struct sl_err err = {0};
	as.bits = bits, as.group = 64, as.packed = packed, as.shuffled = shuffled, as.zeros = false;
	prefix = "model.layers.0.mlp.experts.gate_up_proj";
	draw_floats(OUT, IN, 2);
	pack_words(OUT, IN);
	write_folder(config);
	struct model_file *f = opened();
	for (int half = 0; half < 2; half++) {
		const struct model_tensor *t = model_file_find(f, halves[half]);
		assert_true(t != NULL && t->dims[0] == IN && t->dims[1] == OUT / 2);
		if (model_file_bring(f, t, &err) != 0)
			fail_msg("%s", err.text);
		for (int o = 0; o < OUT / 2; o++) {
			const uint8_t *at = (const uint8_t *)t->data + (size_t)o * kn_row_bytes(t->type, IN);
			int theirs = 2 * o + half;
			kn_dequantize(t->type, at, IN, row);
			for (int k = 0; k < IN; k++)
				if (!(fabs((double)row[k] - wanted[theirs][k]) <= slack[theirs][k]))
					fail_msg("%s: weight %d of %d is %.9g, not %.9g", config, k, theirs,
						 (double)row[k], wanted[theirs][k]);
		}
	}
	model_file_close(f);
	drop_raws();
}

static void test_turns(void **arg)
{
	(void)arg;
	check_turns(GPTQ(",\"group_size\":64"), 4, false, false);
	check_turns(PACKED(GROUP64, ""), 4, true, false);
	check_turns(GPTQ8(",\"group_size\":64"), 8, false, false);
	check_turns(PACKED(GROUP64 ",\"actorder\":\"group\"", ""), 4, true, true);
}

static void test_order_faults(void **arg)
{
	static const char act[] = GPTQ(",\"group_size\":64,\"desc_act\":true");
	(void)arg;
	as.bits = 4, as.group = 64, as.shuffled = true, as.packed = as.zeros = false;
	draw_floats(OUT, IN, 0);
	pack_words(OUT, IN);
	refused(act, 0, "");
	int32_t *order = (int32_t *)(void *)raw_of(".g_idx")->at, kept = order[9];
	order[9] = IN / 64;
	refused(act, SL_EINVAL, "q_proj.qweight has a g_idx beyond its groups");
	order[9] = -1;
	refused(act, SL_EINVAL, "q_proj.qweight has a g_idx beyond its groups");
	order[9] = kept;
	refused(GPTQ(",\"group_size\":64"), SL_EINVAL, "has a g_idx in another order");
	raw_of(".g_idx")->dtype = "F32";
	refused(act, SL_EINVAL, "has a g_idx of another shape");
	snprintf(raw_of(".g_idx")->name, 90, "other");
	refused(act, SL_EINVAL, "q_proj.qweight has no g_idx");
	drop_raws();
	as.packed = true;
	pack_words(OUT, IN);
	for (int k = 0; k < IN; k++) /* never used */
		((int32_t *)(void *)raw_of(".weight_g_idx")->at)[k] = -1;
	refused(PACKED(GROUP64 ",\"actorder\":\"group\"", ""), 0, "");
	drop_raws();
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
	    {GPTQ(",\"group_size\":128,\"dynamic\":[\"+:down\"]"), "dynamic"},
	    {GPTQ(",\"group_size\":128,\"checkpoint_format\":\"marlin\""), "(checkpoint_format, is_marlin_format)"},
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
	    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\"}",
	     "config_groups without a group"},
	    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{}}",
	     "config_groups without a group"},
	    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":1}}",
	     "int of 4 or 8 bits"},
	    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\",\"config_groups\":{\"a\":{\"weights\":{"
	     "}}}}",
	     "the format \"marlin-24\""},
	    {PACKED(",\"strategy\":\"tensor\"", ""), "a strategy"},
	    {PACKED(",\"strategy\":\"group\",\"group_size\":128,\"actorder\":\"weights\"", ""),
	     "an actorder other than"},
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

enum { WIDE = 64 };

/* All of a model in groups of 32, any bits for the integers. */
static void write_model(void)
{
	static char names[N_MATRICES][96];
	add_ends(WIDE);
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
	write_config(WIDE, GPTQ(",\"group_size\":32"));
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
	add_ends(WIDE);
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
	write_config(WIDE, NULL);
	write_tensors();
	drop_raws();
}

/* A model says with four bits what it says with the same numbers as floats; a GGUF file made of it has the very blocks.
 */
static void test_model(void **arg)
{
	static float packed[N_TOKENS], plain[N_TOKENS];
	const struct quantize_how how = {.plan = {KN_Q8_0, KN_Q8_0}, .replace = true, .n_threads = 1};
	struct sl_err err = {0};
	struct quantize_kept kept;
	struct model_file *g = NULL;
	char out[256];
	(void)arg;
	md_path(out, dir, "out.gguf");
	write_model();
	logits_of(dir, WIDE, packed);
	if (quantize_model(dir, out, &how, &kept, NULL, &err) != 0 || model_file_open(out, &g, &err) != 0)
		fail_msg("%s", err.text);
	struct model_file *f = opened();
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_v.weight"),
				  *written = model_file_find(g, "blk.0.attn_v.weight");
	assert_int_equal(model_file_bring(f, t, &err), 0);
	assert_int_equal(written->bytes, t->bytes);
	assert_memory_equal(written->data, t->data, (size_t)t->bytes);
	assert_int_equal(kept.n, N_MATRICES);
	assert_string_equal(kept.types, "Q4_0 ×7");
	assert_true(kept.loss > 0 && kept.loss < 0.01); /* of Q8_0 */
	model_file_close(f);
	model_file_close(g);
	write_plain();
	logits_of(dir, WIDE, plain);
	for (int i = 0; i < N_TOKENS; i++) {
		assert_true(isfinite(plain[i]) && fabsf(plain[i]) > 0);
		assert_true(fabsf(packed[i] - plain[i]) <= 1e-4f * (1 + fabsf(plain[i])));
	}
}

/* Rows of q and k move, pair by pair, in GGUF files of this family (quantize_model.h). */
static int row_in_gguf(const char *name, int row, int wide)
{
	int d = wide / 2;
	bool moves = strstr(name, "attn_q") != NULL || strstr(name, "attn_k") != NULL;
	return moves ? row / d * d + row % d % (d / 2) * 2 + row % d / (d / 2) : row;
}

static void same_weights(const struct model_file *g, struct model_file *f, const char *name, int wide)
{
	static float x[MOST_IN], y[MOST_IN];
	struct sl_err err = {0};
	const struct model_tensor *a = model_file_find(f, name), *b = model_file_find(g, name);
	assert_int_equal(model_file_bring(f, a, &err), 0);
	for (int r = 0; r < wide; r++) {
		size_t n = (size_t)wide, to = (size_t)row_in_gguf(name, r, wide);
		kn_dequantize(a->type, (const uint8_t *)a->data + (size_t)r * kn_row_bytes(a->type, n), n, x);
		kn_dequantize(b->type, (const uint8_t *)b->data + to * kn_row_bytes(b->type, n), n, y);
		assert_memory_equal(x, y, n * sizeof *x);
	}
}

/* Four bits stay what they are, INT4 as Q4_0, wherever rows move; unless it is asked for. */
static void test_kept(void **arg)
{
	enum { LARGE = 256 };
	struct quantize_how how = {.plan = {KN_Q4_K, KN_Q4_K}, .replace = true, .n_threads = 2};
	struct quantize_kept kept;
	struct sl_err err = {0};
	struct model_file *g = NULL;
	char out[256];
	(void)arg;
	md_path(out, dir, "out.gguf");
	as.bits = 4, as.group = 128, as.packed = as.shuffled = as.zeros = false;
	add_model(LARGE, 0, pack_words, false);
	write_config(LARGE, GPTQ(",\"group_size\":128"));
	write_tensors();
	drop_raws();
	if (quantize_model(dir, out, &how, &kept, NULL, &err) != 0 || model_file_open(out, &g, &err) != 0)
		fail_msg("%s", err.text);
	assert_string_equal(kept.types, "Q4_0 ×7");
	assert_true(kept.loss > 0.02 && kept.loss < 0.2);
	struct model_file *f = opened();
	same_weights(g, f, "blk.0.attn_q.weight", LARGE);
	same_weights(g, f, "blk.0.attn_v.weight", LARGE);
	same_weights(g, f, "blk.0.ffn_down.weight", LARGE);
	assert_int_equal(model_file_find(g, "output.weight")->type, KN_Q4_K);
	model_file_close(f);
	model_file_close(g);
	how.requantize = true;
	if (quantize_model(dir, out, &how, &kept, NULL, &err) != 0 || model_file_open(out, &g, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(kept.n, 0);
	assert_int_equal(model_file_find(g, "blk.0.attn_q.weight")->type, KN_Q4_K);
	model_file_close(g);
}

static void test_no_memory(void **arg)
{
	(void)arg;
	draw_matrix(true);
	pack_gptq(128, 1, "F16");
	write_folder(GPTQ(",\"group_size\":128"));
	lack_memory();
	drop_raws();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_forms, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_orders_and_bytes, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_turns, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_order_faults, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_configs, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_shapes, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_model, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_kept, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, begin, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
