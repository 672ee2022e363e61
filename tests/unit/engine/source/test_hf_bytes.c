/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of a byte for each weight in Hugging Face folders (engine/packed/hf_bytes.h): floats drawn here become e4m3
 * codes or integers with scales of each kind, and the reader's weights are those numbers within the bound that the
 * header gives. A model's logits follow within what that error makes of them. Faults are one line that names the
 * tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/engine/source/packed_files.h"

enum { OUT = 136, IN = 288 };

/* ---- writers ---- */

/* Rows and columns with one scale, and how it is written. */
static struct {
	int rows, width;
	const char *suffix, *dtype;
	bool one_dim, no_dim, zeros;
} as;

static double scale_of_block(int o, int k, int n_out, int n_in, double most_code)
{
	double most = 0;
	for (int i = o; i < o + as.rows && i < n_out; i++)
		for (int j = k; j < k + as.width && j < n_in; j++)
			most = fmax(most, fabs((double)drawn[i][j]));
	return most / most_code;
}

/* As stored: in the scales' own type. */
static double stored(void *scales, int i, double v)
{
	if (strcmp(as.dtype, "F8_E8M0") == 0) {
		int e = (int)ceil(log2(v));
		((uint8_t *)scales)[i] = (uint8_t)(e + 127);
		return ldexp(1, e);
	}
	put_scale(scales, as.dtype, i, (float)v);
	if (strcmp(as.dtype, "F32") == 0)
		return ((float *)scales)[i];
	return (double)ldexpf((float)(((uint16_t *)scales)[i] & 127) + 128, (((uint16_t *)scales)[i] >> 7) - 134);
}

static void *add_scales(int n_out, int n_in, const char *suffix, const char *dtype)
{
	int down = (n_out + as.rows - 1) / as.rows, along = (n_in + as.width - 1) / as.width;
	if (as.no_dim)
		return add_shaped(suffix, dtype, 1, "");
	return as.one_dim ? add(suffix, dtype, 0, (uint64_t)(down * along))
			  : add(suffix, dtype, (uint64_t)down, (uint64_t)along);
}

static void pack_fp8(int n_out, int n_in)
{
	uint8_t *q = add(".weight", "F8_E4M3", (uint64_t)n_out, (uint64_t)n_in);
	void *s = add_scales(n_out, n_in, as.suffix, as.dtype);
	int along = (n_in + as.width - 1) / as.width;
	for (int o = 0; o < n_out; o += as.rows)
		for (int k = 0; k < n_in; k += as.width) {
			double scale =
			    stored(s, o / as.rows * along + k / as.width, scale_of_block(o, k, n_out, n_in, 448));
			for (int i = o; i < o + as.rows && i < n_out; i++)
				for (int j = k; j < k + as.width && j < n_in; j++) {
					q[i * n_in + j] = e4m3_nearest((double)drawn[i][j] / scale);
					wanted[i][j] = e4m3_value(q[i * n_in + j]) * scale;
				}
		}
	slack_of_q8(n_out, n_in);
}

/* Rows of other widths: bfloat16. */
static void pack_fp8_odd(int n_out, int n_in)
{
	pack_fp8(n_out, n_in);
	for (int o = 0; o < n_out; o++)
		for (int k = 0; k < n_in; k++)
			slack[o][k] = 0x1p-8 * fabs(wanted[o][k]);
}

static void pack_int8(int n_out, int n_in)
{
	int8_t *q = add(".weight", "I8", (uint64_t)n_out, (uint64_t)n_in);
	void *s = add_scales(n_out, n_in, ".weight_scale", as.dtype);
	int8_t *z = as.zeros ? add_scales(n_out, n_in, ".weight_zero_point", "I8") : NULL;
	int along = (n_in + as.width - 1) / as.width;
	for (int o = 0; o < n_out; o++)
		for (int k = 0; k < n_in; k++) {
			int at = o / as.rows * along + k / as.width;
			double scale = stored(
			    s, at, scale_of_block(o / as.rows * as.rows, k / as.width * as.width, n_out, n_in, 100));
			int zero = z != NULL ? (z[at] = (int8_t)(at % 27 - 13)) : 0;
			long code = lrint((double)drawn[o][k] / scale) + zero;
			q[o * n_in + k] = (int8_t)(k == 5 ? -128 : code);
			wanted[o][k] = (q[o * n_in + k] - zero) * scale;
			slack[o][k] = fabs(wanted[o][k]) * 0x1p-11 + 128 * 0x1p-25 + 1e-9;
		}
	if (z != NULL)
		slack_of_q8(n_out, n_in);
}

static void use(int rows, int width, const char *suffix, const char *dtype)
{
	as.rows = rows;
	as.width = width;
	as.suffix = suffix;
	as.dtype = dtype;
	as.one_dim = as.no_dim = as.zeros = false;
}

#define ALL 100000
#define FP8(more) "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\"" more "}"
#define BLOCKS FP8(",\"weight_block_size\":[128,128]")
#define COMPRESSED(format, type, more)                                                                           \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{\"group_0\":"     \
	"{\"targets\":[\"Linear\"],\"input_activations\":{\"num_bits\":8,\"type\":\"" type "\","                 \
	"\"strategy\":\"token\",\"dynamic\":true},\"weights\":{\"num_bits\":8,\"type\":\"" type "\"" more "}}}," \
	"\"ignore\":[\"lm_head\"]}"

static void test_fp8(void **arg)
{
	(void)arg;
	use(ALL, ALL, ".weight_scale", "F32");
	as.no_dim = true;
	check_matrix(FP8(""), pack_fp8, OUT, IN, 0, KN_Q8_0);
	use(ALL, ALL, ".weight_scale", "BF16");
	as.one_dim = true;
	check_matrix(COMPRESSED("float-quantized", "float", ",\"strategy\":\"tensor\""), pack_fp8, OUT, IN, 0, KN_Q8_0);
	check_matrix(COMPRESSED("naive-quantized", "float", ""), pack_fp8, OUT, IN, 0, KN_Q8_0);
	check_matrix("{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\",\"*embed*\"]}",
		     pack_fp8, OUT, IN, 0, KN_Q8_0);

	use(1, ALL, ".weight_scale", "F32");
	check_matrix(COMPRESSED("float-quantized", "float", ",\"strategy\":\"channel\""), pack_fp8, OUT, IN, 4,
		     KN_Q8_0);
	check_matrix("{\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200,\"modules_to_not_convert\":null}",
		     pack_fp8, OUT, IN, 4, KN_Q8_0);
	as.one_dim = true;
	check_matrix("{\"quant_method\":\"modelopt\",\"quant_algo\":\"fp8_per_channel_per_token\"}", pack_fp8, OUT, IN,
		     4, KN_Q8_0);

	use(128, 128, ".weight_scale_inv", "F32");
	check_matrix(BLOCKS, pack_fp8, OUT, IN, 4, KN_Q8_0);
	check_matrix(BLOCKS, pack_fp8, 256, 256, 4, KN_Q8_0);
	check_matrix(BLOCKS, pack_fp8, 40, 32, 4, KN_Q8_0);
	use(128, 128, ".weight_scale_inv", "F8_E8M0");
	check_matrix(BLOCKS, pack_fp8, OUT, IN, 4, KN_Q8_0);
	use(128, 128, ".weight_scale", "BF16");
	check_matrix(COMPRESSED("float-quantized", "float", ",\"strategy\":\"block\",\"block_structure\":[128,128]"),
		     pack_fp8, OUT, IN, 4, KN_Q8_0);
	check_matrix(COMPRESSED("float-quantized", "float", ",\"strategy\":\"block\",\"block_structure\":\"128x128\""),
		     pack_fp8, OUT, IN, 4, KN_Q8_0);
	check_matrix("{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8_PB_WO\"}", pack_fp8, OUT, IN, 4, KN_Q8_0);
	use(48, 80, ".weight_scale_inv", "F32");
	check_matrix(FP8(",\"weight_block_size\":[48,80]"), pack_fp8, OUT, IN, 4, KN_Q8_0);
	use(1, 32, ".weight_scale", "F32");
	check_matrix(COMPRESSED("float-quantized", "float", ",\"strategy\":\"group\",\"group_size\":32"), pack_fp8, OUT,
		     IN, 4, KN_Q8_0);
	use(128, 128, ".weight_scale_inv", "F32");
	check_matrix(BLOCKS, pack_fp8_odd, OUT, 152, 4, KN_BF16);
}

static void test_int8(void **arg)
{
	(void)arg;
	use(1, ALL, ".weight_scale", "BF16");
	check_matrix(COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\",\"symmetric\":true"), pack_int8, 40,
		     IN, 0, KN_Q8_0);
	use(1, ALL, ".weight_scale", "F32");
	check_matrix(COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\""), pack_int8, 40, IN, 0, KN_Q8_0);
	as.zeros = true;
	check_matrix(COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\",\"symmetric\":false"), pack_int8, 40,
		     IN, 0, KN_Q8_0);
	use(ALL, ALL, ".weight_scale", "F32");
	as.one_dim = true;
	check_matrix(COMPRESSED("int-quantized", "int", ",\"strategy\":\"tensor\""), pack_int8, 8, 64, 0, KN_Q8_0);
	use(1, 32, ".weight_scale", "F32");
	check_matrix(COMPRESSED("naive-quantized", "int", ",\"strategy\":\"group\",\"group_size\":32"), pack_int8, 40,
		     IN, 3, KN_Q8_0);
}

/* ---- whole models ---- */

static void test_logits(void **arg)
{
	(void)arg;
	/* Q8_0 of about normal weights: a step of 2.2 deviations by 127, uniform. */
	const double off = 2.4 / 127 / sqrt(12);
	use(128, 128, ".weight_scale_inv", "F32");
	check_logits(BLOCKS, 192, 0, pack_fp8, off);
	use(ALL, ALL, ".weight_scale", "F32");
	as.no_dim = true;
	check_logits(FP8(""), 64, 0, pack_fp8, off);
	use(1, ALL, ".weight_scale", "F32");
	check_logits(COMPRESSED("float-quantized", "float", ",\"strategy\":\"channel\""), 64, 0, pack_fp8, off);
	/* The same integers, scales as float16. */
	check_logits(COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\""), 64, 0, pack_int8, 0x1p-11);
}

/* Converted again while it loads, as other folders' floats are. */
static void test_converted(void **arg)
{
	static float row[IN];
	static uint8_t want[IN / 128 * 66 * OUT];
	enum { WIDTH = 256 };
	struct sl_err err = {0};
	(void)arg;
	use(1, ALL, ".weight_scale", "F32");
	draw_floats(OUT, WIDTH, 0);
	pack_fp8(OUT, WIDTH);
	write_folder(FP8(""));
	drop_raws();
	struct model_file *f = opened();
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_q.weight");
	assert_int_equal(model_file_bring(f, t, &err), 0);
	for (size_t o = 0; o < OUT; o++) {
		kn_dequantize(KN_Q8_0, (const uint8_t *)t->data + o * kn_row_bytes(KN_Q8_0, WIDTH), WIDTH, row);
		assert_int_equal(kn_quantize_row(KN_INT4, row, WIDTH, want + o * kn_row_bytes(KN_INT4, WIDTH)), 0);
	}
	model_file_close(f);
	f = opened();
	t = model_file_find(f, "blk.0.attn_q.weight");
	assert_int_equal(model_file_quantize(f, KN_INT4, 2, NULL, &err), 0);
	assert_true(t->type == KN_INT4 && t->bytes == OUT * kn_row_bytes(KN_INT4, WIDTH));
	assert_int_equal(model_file_bring(f, t, &err), 0);
	assert_memory_equal(t->data, want, t->bytes);
	model_file_let_go(f, t);
	model_file_close(f);
}

/* An output matrix with more rows than there are tokens. */
static void test_trimmed(void **arg)
{
	struct sl_err err = {0};
	(void)arg;
	use(1, ALL, ".weight_scale", "F32");
	draw_floats(MOST_OUT, 64, 0);
	prefix = "lm_head";
	pack_fp8(MOST_OUT, 64);
	write_config(64, FP8(""));
	write_tensors();
	drop_raws();
	struct model_file *f = opened();
	const struct model_tensor *t = model_file_find(f, "output.weight");
	assert_true(t->dims[1] == N_TOKENS && t->bytes == N_TOKENS * kn_row_bytes(KN_Q8_0, 64));
	assert_int_equal(model_file_bring(f, t, &err), 0);
	check_values(t, N_TOKENS, 64, 0, "lm_head");
	model_file_close(f);
}

/* ---- faults ---- */

static void set_shape(const char *suffix, uint64_t rows, uint64_t width)
{
	raw_of(suffix)->rows = rows;
	raw_of(suffix)->width = width;
}

static void test_fp8_faults(void **arg)
{
	(void)arg;
	use(128, 128, ".weight_scale_inv", "F32");
	draw_floats(OUT, IN, 0);
	pack_fp8(OUT, IN);
	struct raw *q = raw_of(".weight"), *s = raw_of(".weight_scale_inv");
	set_shape(".weight_scale_inv", 3, 2);
	refused(BLOCKS, SL_EINVAL, "q_proj.weight_scale_inv is not of the shape that quantization_config says");
	set_shape(".weight_scale_inv", 2, 3);
	refused(FP8(",\"weight_block_size\":[128,64]"), SL_EINVAL, "is not of the shape");
	refused(FP8(""), SL_EINVAL, "is not of the shape");
	s->dtype = "I32";
	refused(BLOCKS, SL_EINVAL, "weight_scale_inv is not of F32, F16 or BF16");
	s->dtype = "F32";
	q->dtype = "F8_E5M2";
	refused(BLOCKS, SL_EINVAL, "q_proj.weight is no matrix of F8_E4M3");
	q->dtype = "I8";
	refused(BLOCKS, SL_EINVAL, "q_proj.weight is no matrix of F8_E4M3");
	q->dtype = "F8_E4M3";
	q->rows = 0, q->width = OUT * IN;
	refused(BLOCKS, SL_EINVAL, "q_proj.weight is no matrix of F8_E4M3");
	q->rows = OUT, q->width = IN;
	q->at[77] = 0xFF;
	refused(BLOCKS, SL_EINVAL, "q_proj.weight has a weight that is no number or too large");
	q->at[77] = 0;
	memcpy(s->at, "\0\0\300\177", 4); /* not a number */
	refused(BLOCKS, SL_EINVAL, "has a scale that is no number or too large");
	memcpy(s->at, "\0\0\200\177", 4); /* infinite */
	refused(BLOCKS, SL_EINVAL, "has a scale that is no number or too large");
	snprintf(s->name, sizeof s->name, "%s.other", prefix);
	refused(BLOCKS, SL_EINVAL, "q_proj.weight has no weight_scale or weight_scale_inv");
	snprintf(s->name, sizeof s->name, "model.layers.0.self_attn.k_proj.weight_scale_inv");
	refused(BLOCKS, SL_EINVAL, "k_proj.weight_scale_inv belongs to no quantized matrix");
	drop_raws();

	/* Floats with a scale: it may not be passed over. */
	add(".weight", "BF16", 8, 32);
	add(".weight_scale", "F32", 0, 1);
	refused(FP8(""), SL_EINVAL, "q_proj.weight_scale belongs to no quantized matrix");
	drop_raws();

	/* Both scales; a file that ends early. */
	pack_fp8(OUT, IN);
	add(".weight_scale", "F32", 2, 3);
	refused(BLOCKS, SL_EINVAL, "has no weight_scale or weight_scale_inv, or both");
	raws[n_raws - 1].bytes -= 4;
	refused(BLOCKS, SL_EINVAL, "q_proj.weight_scale has 20 bytes, but its shape and dtype make 24");
	drop_raws();
	add_shaped(".weight", "F8_E4M3", 8, "4294967296,4294967296,2");
	refused(BLOCKS, SL_EINVAL, "has an impossible shape");
	drop_raws();
}

static void test_int8_faults(void **arg)
{
	static const char channel[] = COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\"");
	(void)arg;
	use(1, ALL, ".weight_scale", "F32");
	draw_floats(40, 64, 0);
	as.zeros = true;
	pack_int8(40, 64);
	refused(channel, SL_EINVAL, "weight_zero_point is not 0, but quantization_config says symmetric");
	raw_of(".weight_zero_point")->dtype = "U8";
	refused(channel, SL_EINVAL, "weight_zero_point is not of its scales' shape and its weights' dtype");
	raw_of(".weight_zero_point")->dtype = "I8";
	set_shape(".weight_zero_point", 20, 2);
	refused(channel, SL_EINVAL, "weight_zero_point is not of its scales' shape");
	memset(raw_of(".weight_zero_point")->at, 0, 40);
	set_shape(".weight_zero_point", 40, 1);
	refused(channel, 0, "");
	struct raw *z = raw_of(".weight_zero_point");
	snprintf(z->name, sizeof z->name, "other");
	z->dtype = "BF16", z->rows = 0, z->width = 20;
	refused(COMPRESSED("int-quantized", "int", ",\"strategy\":\"channel\",\"symmetric\":false"), SL_EINVAL,
		"q_proj.weight has no zero points");
	raw_of(".weight_scale")->dtype = "F8_E4M3", raw_of(".weight_scale")->bytes = 40;
	refused(channel, SL_EINVAL, "weight_scale is not of F32, F16 or BF16");
	raw_of(".weight_scale")->dtype = "F32", raw_of(".weight_scale")->bytes = 160;
	((float *)(void *)raw_of(".weight_scale")->at)[7] = 70000;
	refused(channel, SL_EINVAL, "has a scale that is no number or too large");
	drop_raws();
}

static void test_no_memory(void **arg)
{
	(void)arg;
	use(128, 128, ".weight_scale_inv", "F32");
	draw_floats(OUT, IN, 0);
	pack_fp8(OUT, IN);
	write_folder(BLOCKS);
	lack_memory();
	drop_raws();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_fp8, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_int8, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_logits, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_converted, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_trimmed, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_fp8_faults, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_int8_faults, begin, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, begin, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
