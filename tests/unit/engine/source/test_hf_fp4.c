/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of four-bit floats in Hugging Face folders (engine/packed/hf_fp4.h): NVFP4 as ModelOpt and
 * compressed-tensors store it, MXFP4 as compressed-tensors and gpt-oss do. Packed here by their definitions, the
 * reader's weights are the same numbers, MXFP4's exactly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/packed/hf_fp4.h"
#include "engine/source/quantize_model.h"
#include "tests/unit/engine/source/packed_files.h"

enum { OUT = 24 };

/* ---- writers ---- */

static bool compressed, exact_q6; /* NVFP4's layout; whether no scale is far below its block's largest */

static double largest(int o, int k, int n)
{
	double most = 0;
	for (int i = k; i < k + n; i++)
		most = fmax(most, fabs((double)drawn[o][i]));
	return most;
}

/* Pairs from the low nibble on; scale is that of the group. */
static void put_pairs(uint8_t *q, int o, int k, int n, double scale)
{
	for (int i = k; i < k + n; i++) {
		uint8_t code = scale > 0 ? e2m1_nearest((double)drawn[o][i] / scale) : 0;
		q[i / 2] |= (uint8_t)(code << (i % 2 * 4));
		wanted[o][i] = e2m1_value(code) * scale;
	}
}

/* Q6_K's: a float16 for 256, and scales in 1/64 of the largest one's binade. */
static void slack_of_q6(const uint8_t *s, double global, int o, int k)
{
	double most = 0, own = e4m3_value(s[k / 16]);
	for (int g = k / 256 * 16; g < k / 256 * 16 + 16; g++)
		most = fmax(most, e4m3_value(s[g]));
	double far = own < most / 8 ? 6 * global * most * 0x1p-7 : 0;
	slack[o][k] = fabs(wanted[o][k]) * (0x1p-11 + 0x1p-22) + far + 120 * 12 * 0x1p-25;
	if (exact_q6)
		assert_true(far == 0);
}

static void pack_nvfp4(int n_out, int n_in)
{
	uint64_t rows = (uint64_t)n_out, groups = (uint64_t)n_in / 16;
	uint8_t *q = add(compressed ? ".weight_packed" : ".weight", "U8", rows, (uint64_t)n_in / 2);
	uint8_t *s = add(".weight_scale", "F8_E4M3", rows, groups);
	float *g = add(compressed ? ".weight_global_scale" : ".weight_scale_2", "F32", 0, 1), *in;
	double most = 0;
	for (int o = 0; o < n_out; o++)
		most = fmax(most, largest(o, 0, n_in));
	*g = (float)(compressed ? 6 * 448 / most : most / (6 * 448));
	double global = compressed ? 1 / (double)*g : (double)*g;
	in = add(compressed ? ".input_global_scale" : ".input_scale", "F32", 0, 1);
	*in = 3;
	for (int o = 0; o < n_out; o++) {
		uint8_t *row = s + (size_t)o * groups;
		for (int k = 0; k < n_in; k += 16) {
			row[k / 16] = e4m3_nearest(largest(o, k, 16) / 6 / global);
			put_pairs(q + (size_t)o * (size_t)n_in / 2, o, k, 16, e4m3_value(row[k / 16]) * global);
		}
		for (int k = 0; n_in % 256 == 0 && k < n_in; k++)
			slack_of_q6(row, global, o, k);
	}
	if (n_in % 256 != 0 && n_in % 32 == 0)
		slack_of_q8(n_out, n_in);
	for (int o = 0; n_in % 32 != 0 && o < n_out; o++)
		for (int k = 0; k < n_in; k++)
			slack[o][k] = 0x1p-8 * fabs(wanted[o][k]);
}

static int power_of(int o, int k)
{
	double most = largest(o, k, 32);
	return most > 0 ? (int)ceil(log2(most / 6)) + 127 : 0;
}

static const char *power_type = "U8";

static void pack_mxfp4(int n_out, int n_in)
{
	uint8_t *q = add(".weight_packed", "U8", (uint64_t)n_out, (uint64_t)n_in / 2);
	uint8_t *s = add(".weight_scale", power_type, (uint64_t)n_out, (uint64_t)n_in / 32);
	for (int o = 0; o < n_out; o++)
		for (int k = 0; k < n_in; k += 32) {
			s[o * (n_in / 32) + k / 32] = (uint8_t)power_of(o, k);
			put_pairs(q + o * (n_in / 2), o, k, 32, ldexp(1, power_of(o, k) - 127));
		}
	memset(slack, 0, sizeof slack);
}

/* gpt-oss: n matrices [rows][n_in/32][16], below one another in drawn. */
static void add_blocks(const char *name, int n, int rows, int n_in)
{
	char shape[64];
	prefix = name;
	snprintf(shape, sizeof shape, n > 1 ? "%d,%d,%d,16" : "%.0d%d,%d,16", n > 1 ? n : 0, rows, n_in / 32);
	uint8_t *q = add_shaped("_blocks", "U8", (uint64_t)(n * rows * n_in / 2), shape);
	snprintf(shape, sizeof shape, n > 1 ? "%d,%d,%d" : "%.0d%d,%d", n > 1 ? n : 0, rows, n_in / 32);
	uint8_t *s = add_shaped("_scales", "U8", (uint64_t)(n * rows * n_in / 32), shape);
	for (int o = 0; o < n * rows; o++)
		for (int k = 0; k < n_in; k += 32) {
			s[o * (n_in / 32) + k / 32] = (uint8_t)power_of(o, k);
			put_pairs(q + o * (n_in / 2), o, k, 32, ldexp(1, power_of(o, k) - 127));
		}
	prefix = PREFIX;
}

#define MODELOPT "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\"]}"
#define WEIGHTS(group) "{\"num_bits\":4,\"type\":\"float\",\"symmetric\":true,\"group_size\":" group
#define PACKED(format, strategy, group)                                                                       \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{\"group_0\":{" \
	"\"targets\":[\"Linear\"],\"input_activations\":" WEIGHTS(                                            \
	    group) ",\"dynamic\":\"local\"},"                                                                 \
		   "\"weights\":" WEIGHTS(group) ",\"strategy\":\"" strategy "\"}}},\"ignore\":[\"lm_head\"]}"
#define NV PACKED("nvfp4-pack-quantized", "tensor_group", "16")
#define MX PACKED("mxfp4-pack-quantized", "group", "32")
#define OSS "{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"model.layers.*.self_attn\",\"lm_head\"]}"

/* ---- numbers ---- */

static void test_nvfp4(void **arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		const char *config = i == 0 ? MODELOPT : NV;
		compressed = i == 1;
		exact_q6 = true;
		check_matrix(config, pack_nvfp4, OUT, 512, 1, KN_Q6_K);
		exact_q6 = false;
		check_matrix(config, pack_nvfp4, OUT, 256, 9, KN_Q6_K);
		check_matrix(config, pack_nvfp4, OUT, 288, 2, KN_Q8_0);
		check_matrix(config, pack_nvfp4, OUT, 48, 2, KN_BF16);
	}
	/* Older folders of ModelOpt: a file of its own. */
	compressed = false;
	draw_floats(OUT, 256, 1);
	pack_nvfp4(OUT, 256);
	write_tensors();
	md_text(dir, "config.json", "{\"model_type\":\"llama\"}");
	md_text(dir, "hf_quant_config.json",
		"{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\","
		"\"kv_cache_quant_algo\":\"FP8\",\"group_size\":16,\"exclude_modules\":[\"lm_head\"]}}");
	struct model_file *f = opened();
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_q.weight");
	struct sl_err err = {0};
	assert_true(t->type == KN_Q6_K && model_file_bring(f, t, &err) == 0);
	check_values(t, OUT, 256, 0, "hf_quant_config.json");
	assert_non_null(strstr(model_file_note(f), "kv_cache_quant_algo"));
	model_file_close(f);
	drop_raws();
}

static void test_mxfp4(void **arg)
{
	(void)arg;
	check_matrix(MX, pack_mxfp4, OUT, 288, 9, KN_MXFP4);
	power_type = "F8_E8M0";
	check_matrix(MX, pack_mxfp4, OUT, 32, 9, KN_MXFP4);
	power_type = "U8";
}

/* Values of a tensor of n matrices whose rows take turns in the file's. */
static void check_experts(const struct model_file *f, const char *name, int n, int rows, int n_in, int first, int step)
{
	static float row[MOST_IN];
	struct sl_err err = {0};
	const struct model_tensor *t = model_file_find(f, name);
	if (t == NULL)
		fail_msg("no tensor %s", name);
	assert_true(t->type == KN_MXFP4 && t->n_dims == (n > 1 ? 3 : 2) && t->dims[0] == (uint64_t)n_in &&
		    t->dims[1] == (uint64_t)rows && t->dims[2] == (uint64_t)n);
	assert_int_equal(model_file_bring((struct model_file *)(uintptr_t)f, t, &err), 0);
	for (int r = 0; r < n * rows; r++) {
		int from = r / rows * rows * step + first + r % rows * step;
		kn_dequantize(KN_MXFP4, (const uint8_t *)t->data + (size_t)r * kn_row_bytes(KN_MXFP4, (size_t)n_in),
			      (size_t)n_in, row);
		for (int k = 0; k < n_in; k++)
			if ((double)row[k] != wanted[from][k])
				fail_msg("%s[%d][%d] is %g, not %g", name, r, k, (double)row[k], wanted[from][k]);
	}
}

static void test_blocks(void **arg)
{
	enum { N = 3, FF = 20, WIDE = 64 };
	(void)arg;
	draw_floats(N * 2 * FF, WIDE, 9);
	add_blocks("model.layers.0.mlp.experts.gate_up_proj", N, 2 * FF, WIDE);
	write_folder(OSS);
	struct model_file *f = opened();
	assert_int_equal(model_file_n_tensors(f), 2);
	check_experts(f, "blk.0.ffn_gate_exps.weight", N, FF, WIDE, 0, 2);
	check_experts(f, "blk.0.ffn_up_exps.weight", N, FF, WIDE, 1, 2);
	model_file_close(f);
	drop_raws();

	draw_floats(N * WIDE, 32, 9);
	add_blocks("model.layers.0.mlp.experts.down_proj", N, WIDE, 32);
	write_folder(OSS);
	f = opened();
	assert_int_equal(model_file_n_tensors(f), 1);
	check_experts(f, "blk.0.ffn_down_exps.weight", N, WIDE, 32, 0, 1);
	model_file_close(f);
	drop_raws();

	draw_floats(OUT, WIDE, 9);
	add_blocks("model.layers.0.mlp.experts.down_proj", 1, OUT, WIDE);
	write_folder(OSS);
	f = opened();
	check_experts(f, "blk.0.ffn_down_exps.weight", 1, OUT, WIDE, 0, 1);
	model_file_close(f);
	drop_raws();
}

static void test_logits(void **arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		compressed = i == 1;
		exact_q6 = true;
		check_logits(i == 0 ? MODELOPT : NV, 256, 1, pack_nvfp4, 0x1p-10);
		exact_q6 = false;
		/* Q8_0: a step of the largest of 32 by 127, uniform. */
		check_logits(i == 0 ? MODELOPT : NV, 64, 0, pack_nvfp4, 2.4 / 127 / sqrt(12));
	}
	check_logits(MX, 64, 2, pack_mxfp4, 0);
}

/* ---- faults ---- */

static void set_shape(const char *suffix, uint64_t rows, uint64_t width)
{
	raw_of(suffix)->rows = rows;
	raw_of(suffix)->width = width;
}

static void test_nvfp4_faults(void **arg)
{
	(void)arg;
	compressed = false;
	draw_floats(OUT, 64, 0);
	pack_nvfp4(OUT, 64);
	struct raw *q = raw_of(".weight"), *s = raw_of(".weight_scale"), *g = raw_of(".weight_scale_2");
	set_shape(".weight_scale", 12, 8);
	refused(MODELOPT, SL_EINVAL, "q_proj.weight has no weight_scale of F8_E4M3 for every 16 weights");
	set_shape(".weight_scale", OUT, 4);
	s->dtype = "U8";
	refused(MODELOPT, SL_EINVAL, "has no weight_scale of F8_E4M3 for every 16 weights");
	s->dtype = "F8_E4M3";
	s->at[3] = 0x7F;
	refused(MODELOPT, SL_EINVAL, "has a scale that is no number");
	s->at[3] = 0x30;
	q->dtype = "I8";
	refused(MODELOPT, SL_EINVAL, "q_proj.weight is no matrix of U8");
	q->dtype = "U8";
	set_shape(".weight", 32, 24), set_shape(".weight_scale", 32, 3);
	refused(MODELOPT, 0, "");
	set_shape(".weight", 96, 8), set_shape(".weight_scale", 96, 1);
	refused(MODELOPT, 0, "");
	set_shape(".weight", 192, 4);
	refused(MODELOPT, SL_EINVAL, "has a width that is no multiple of its groups");
	set_shape(".weight", OUT, 32), set_shape(".weight_scale", OUT, 4);
	memset(g->at, 0, 4);
	refused(MODELOPT, SL_EINVAL, "weight_scale_2 is not a positive number in its range");
	memcpy(g->at, "\0\0\300\177", 4);
	refused(MODELOPT, SL_EINVAL, "weight_scale_2 is not a positive number in its range");
	g->dtype = "I32";
	refused(MODELOPT, SL_EINVAL, "has no weight_scale_2 or weight_global_scale");
	g->dtype = "F32";
	snprintf(g->name, sizeof g->name, "model.norm.weight");
	refused(MODELOPT, SL_EINVAL, "has no weight_scale_2 or weight_global_scale");
	snprintf(g->name, sizeof g->name, "%s.weight_global_scale", prefix);
	memset(g->at, 0, 4);
	refused(MODELOPT, SL_EINVAL, "weight_global_scale is not a positive number in its range");
	refused("{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}", SL_EINVAL,
		"q_proj.weight is no matrix of F8_E4M3");
	refused(MX, SL_EINVAL, "q_proj.weight is of another form than quantization_config says");
	drop_raws();
}

static void test_mxfp4_faults(void **arg)
{
	(void)arg;
	draw_floats(OUT, 64, 0);
	pack_mxfp4(OUT, 64);
	raw_of(".weight_scale")->at[7] = 255;
	refused(MX, SL_EINVAL, "weight_packed has a scale that is no number");
	raw_of(".weight_scale")->dtype = "F8_E4M3";
	refused(MX, SL_EINVAL, "has no weight_scale of U8 or F8_E8M0 for every 32 weights");
	raw_of(".weight_scale")->dtype = "U8";
	set_shape(".weight_scale", OUT / 2, 4);
	refused(MX, SL_EINVAL, "has no weight_scale of U8 or F8_E8M0 for every 32 weights");
	drop_raws();

	draw_floats(2 * 3, 64, 0);
	add_blocks("model.layers.0.mlp.experts.gate_up_proj", 2, 3, 64);
	refused(OSS, SL_EINVAL, "gate_up_proj_blocks has an odd number of rows");
	snprintf(raws[1].shape, sizeof raws[1].shape, "2,2,3");
	refused(OSS, SL_EINVAL, "gate_up_proj_blocks has no scales of U8 or F8_E8M0, one for each block");
	snprintf(raws[1].shape, sizeof raws[1].shape, "12");
	refused(OSS, SL_EINVAL, "has no scales of U8 or F8_E8M0, one for each block");
	snprintf(raws[0].shape, sizeof raws[0].shape, "2,3,4,8");
	refused(OSS, SL_EINVAL, "is no U8 of blocks of 16 bytes in 3 or 4 dimensions");
	snprintf(raws[0].shape, sizeof raws[0].shape, "192");
	refused(OSS, SL_EINVAL, "is no U8 of blocks of 16 bytes in 3 or 4 dimensions");
	snprintf(raws[1].name, sizeof raws[1].name, "model.layers.0.mlp.experts.up_scales");
	refused(OSS, SL_EINVAL, "up_scales belongs to no quantized matrix");
	drop_raws();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_nvfp4, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_mxfp4, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_blocks, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_logits, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_nvfp4_faults, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_mxfp4_faults, begin, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
