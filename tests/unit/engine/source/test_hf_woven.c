/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that folders keep woven together, written here element by element: each part has what belongs to it, and
 * shapes that do not fit are refused by the tensor's name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/engine/source/model_files.h"

enum { EXPERTS = 3, WIDE = 64, FF = 5 };

static const float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* One tensor as the folder's only one. */
static void write_tensors(const char *config, const char *entries, const void *data, size_t bytes)
{
	char head[1024];
	size_t n = (size_t)snprintf(head, sizeof head, "{%s}", entries);
	assert_true(n < sizeof head - 8);
	while (n % 8 != 0)
		head[n++] = ' ';
	uint8_t *file = calloc(1, 8 + n + bytes);
	for (int i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)n >> 8 * i);
	memcpy(file + 8, head, n);
	memcpy(file + 8 + n, data, bytes);
	md_text(dir, "config.json", config);
	md_write(dir, "model.safetensors", file, 8 + n + bytes);
	free(file);
}

/* The numbers of a tensor of that name and shape, to be freed. */
static float *numbers(struct model_file *f, const char *name, int type, uint64_t n_in, uint64_t n_out, uint64_t n)
{
	struct sl_err err = {0};
	const struct model_tensor *t = model_file_find(f, name);
	if (t == NULL)
		fail_msg("no tensor %s", name);
	assert_true(t->type == type && t->dims[0] == n_in && t->dims[1] == n_out && t->dims[2] == n);
	if (model_file_bring(f, t, &err) != 0)
		fail_msg("%s", err.text);
	float *out = malloc((size_t)(n_in * n_out * n) * sizeof *out);
	kn_dequantize(type, t->data, (size_t)(n_in * n_out * n), out);
	return out;
}

#define OSS "{\"model_type\":\"gpt_oss\"," SHAPE

/* Blocks of rows that take turns: element i of row r of expert x has the code (i + 3r + 5x) % 16, and its scale is
 * 2^(r % 4). */
static void test_blocks(void **arg)
{
	(void)arg;
	enum { ROWS = 2 * FF, N = EXPERTS * ROWS, BLOCKS = WIDE / 32 };
	uint8_t data[N * BLOCKS * 16 + N * BLOCKS], *scales = data + N * BLOCKS * 16;
	for (int row = 0; row < N; row++)
		for (int i = 0; i < WIDE; i += 2) {
			int code = i + 3 * (row % ROWS) + 5 * (row / ROWS);
			data[(row * WIDE + i) / 2] = (uint8_t)(code % 16 | (code + 1) % 16 << 4);
			scales[row * BLOCKS + i / 32] = (uint8_t)(127 + row % ROWS % 4);
		}
	write_tensors(OSS ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
		      "\"model.layers.7.mlp.experts.gate_up_proj_blocks\":{\"dtype\":\"U8\",\"shape\":[3,10,2,16],"
		      "\"data_offsets\":[0,960]},\"model.layers.7.mlp.experts.gate_up_proj_scales\":{\"dtype\":\"U8\","
		      "\"shape\":[3,10,2],\"data_offsets\":[960,1020]}",
		      data, sizeof data);
	struct model_file *f = opened("");
	assert_int_equal(model_file_n_tensors(f), 2);
	for (int k = 0; k < 2; k++) {
		float *got = numbers(f, k == 0 ? "blk.7.ffn_gate_exps.weight" : "blk.7.ffn_up_exps.weight", KN_MXFP4,
				     WIDE, FF, EXPERTS);
		for (int x = 0; x < EXPERTS; x++)
			for (int o = 0; o < FF; o++)
				for (int i = 0; i < WIDE; i++) {
					int r = 2 * o + k, code = (i + 3 * r + 5 * x) % 16;
					assert_true(got[(x * FF + o) * WIDE + i] == fp4[code] * (float)(1 << r % 4));
				}
		free(got);
	}
	model_file_close(f);
}

/* A number for each element of a source. */
static float *counted(size_t n)
{
	float *x = malloc(n * sizeof *x);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)i;
	return x;
}

/* [experts][in][gate, up by turns], their biases, and [experts][in][out]. */
static void test_transposed(void **arg)
{
	(void)arg;
	enum { IN = 6, W = EXPERTS * IN * 2 * FF, B = EXPERTS * 2 * FF };
	float *x = counted(W + B);
	write_tensors(OSS "}",
		      "\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[3,6,10],"
		      "\"data_offsets\":[0,720]},\"model.layers.0.mlp.experts.gate_up_proj_bias\":{\"dtype\":\"F32\","
		      "\"shape\":[3,10],\"data_offsets\":[720,840]}",
		      x, (W + B) * sizeof *x);
	struct model_file *f = opened("");
	for (int k = 0; k < 2; k++) {
		float *w = numbers(f, k == 0 ? "blk.0.ffn_gate_exps.weight" : "blk.0.ffn_up_exps.weight", KN_F32, IN,
				   FF, EXPERTS);
		float *b =
		    numbers(f, k == 0 ? "blk.0.ffn_gate_exps.bias" : "blk.0.ffn_up_exps.bias", KN_F32, FF, EXPERTS, 1);
		for (int e = 0; e < EXPERTS; e++)
			for (int o = 0; o < FF; o++) {
				assert_true(b[e * FF + o] == (float)(W + e * 2 * FF + 2 * o + k));
				for (int i = 0; i < IN; i++)
					assert_true(w[(e * FF + o) * IN + i] ==
						    (float)((e * IN + i) * 2 * FF + 2 * o + k));
			}
		free(w);
		free(b);
	}
	model_file_close(f);
	write_tensors(OSS "}",
		      "\"model.layers.0.mlp.experts.down_proj\":{\"dtype\":\"F32\",\"shape\":[3,6,10],"
		      "\"data_offsets\":[0,720]}",
		      x, W * sizeof *x);
	f = opened("");
	float *w = numbers(f, "blk.0.ffn_down_exps.weight", KN_F32, IN, 10, EXPERTS);
	for (int i = 0; i < W; i++)
		assert_true(w[i] == (float)(i / 60 * 60 + i % IN * 10 + i / IN % 10));
	free(w);
	model_file_close(f);
	free(x);
}

/* Heads, each with its query, key and value; or groups with two queries. */
static void test_heads(void **arg)
{
	(void)arg;
	static const char falcon[] = "{\"model_type\":\"falcon\",\"num_attention_heads\":4,\"num_kv_heads\":2,"
				     "\"new_decoder_architecture\":true}",
			  unsaid[] = "{\"model_type\":\"falcon\",\"num_attention_heads\":4,"
				     "\"new_decoder_architecture\":true}",
			  neox[] = "{\"model_type\":\"gpt_neox\",\"num_attention_heads\":2}";
	enum { IN = 3, ROWS = 16 };
	float *x = counted(ROWS * IN);
	write_tensors(falcon,
		      "\"transformer.h.1.self_attention.query_key_value.weight\":{\"dtype\":\"F32\",\"shape\":[16,3],"
		      "\"data_offsets\":[0,192]}",
		      x, ROWS * IN * sizeof *x);
	struct model_file *f = opened("");
	/* Groups of eight rows: two queries of two rows each, a key, a value. */
	float *q = numbers(f, "blk.1.attn_q.weight", KN_F32, IN, 8, 1),
	      *k = numbers(f, "blk.1.attn_k.weight", KN_F32, IN, 4, 1),
	      *v = numbers(f, "blk.1.attn_v.weight", KN_F32, IN, 4, 1);
	for (int r = 0; r < 8; r++)
		assert_true(q[r * IN] == (float)((r / 4 * 8 + r % 4) * IN));
	for (int r = 0; r < 4; r++)
		assert_true(k[r * IN] == (float)((r / 2 * 8 + 4 + r % 2) * IN) && v[r * IN] == k[r * IN] + 2 * IN);
	free(q);
	free(k);
	free(v);
	model_file_close(f);
	/* Each query has its own key. */
	write_tensors(unsaid,
		      "\"transformer.h.1.self_attention.query_key_value.weight\":{\"dtype\":\"F32\",\"shape\":[12,3],"
		      "\"data_offsets\":[0,144]}",
		      x, 144);
	f = opened("");
	k = numbers(f, "blk.1.attn_k.weight", KN_F32, IN, 4, 1);
	for (int r = 0; r < 4; r++)
		assert_true(k[r * IN] == (float)((3 * r + 1) * IN));
	free(k);
	model_file_close(f);
	write_tensors(neox,
		      "\"gpt_neox.layers.0.attention.query_key_value.bias\":{\"dtype\":\"F32\",\"shape\":[12],"
		      "\"data_offsets\":[0,48]}",
		      x, 48);
	f = opened("");
	static const char *const names[] = {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"};
	for (int part = 0; part < 3; part++) {
		float *b = numbers(f, names[part], KN_F32, 4, 1, 1);
		for (int i = 0; i < 4; i++)
			assert_true(b[i] == (float)(i / 2 * 6 + part * 2 + i % 2));
		free(b);
	}
	model_file_close(f);
	free(x);
}

/* Qwen3-Next's rows [key heads][q, k, v of its value heads, their z], and Qwen3.5's experts [n][gates, ups][in]. */
static void test_delta(void **arg)
{
	(void)arg;
	enum { K = 2, V = 6, DK = 3, DV = 2, IN = 4, R = V / K, GROUP = 2 * DK + 2 * R * DV };
	float *x = counted(K * GROUP * IN);
	write_tensors("{\"model_type\":\"qwen3_next\"," SHAPE
		      ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":3,"
		      "\"linear_value_head_dim\":2}",
		      "\"model.layers.5.linear_attn.in_proj_qkvz.weight\":{\"dtype\":\"F32\",\"shape\":[36,4],"
		      "\"data_offsets\":[0,576]}",
		      x, K * GROUP * IN * sizeof *x);
	struct model_file *f = opened("");
	float *qkv = numbers(f, "blk.5.attn_qkv.weight", KN_F32, IN, 2 * K * DK + V * DV, 1);
	float *z = numbers(f, "blk.5.attn_gate.weight", KN_F32, IN, V * DV, 1);
	for (int i = 0; i < IN; i++)
		for (int g = 0; g < K; g++) {
			for (int d = 0; d < DK; d++) {
				assert_true(qkv[(g * DK + d) * IN + i] == (float)((g * GROUP + d) * IN + i));
				assert_true(qkv[((K + g) * DK + d) * IN + i] == (float)((g * GROUP + DK + d) * IN + i));
			}
			for (int d = 0; d < R * DV; d++) {
				int v = g * R * DV + d, from = g * GROUP + 2 * DK + d;
				assert_true(qkv[(2 * K * DK + v) * IN + i] == (float)(from * IN + i));
				assert_true(z[v * IN + i] == (float)((from + R * DV) * IN + i));
			}
		}
	free(qkv);
	free(z);
	model_file_close(f);
	write_tensors("{\"model_type\":\"qwen3_5_moe_text\"," SHAPE "}",
		      "\"model.language_model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[3,6,4],"
		      "\"data_offsets\":[0,288]},\"model.language_model.layers.0.mlp.experts.down_proj\":{\"dtype\":"
		      "\"F32\",\"shape\":[3,4,3],\"data_offsets\":[288,432]}",
		      x, 108 * sizeof *x);
	f = opened("");
	float *gate = numbers(f, "blk.0.ffn_gate_exps.weight", KN_F32, 4, 3, 3);
	float *up = numbers(f, "blk.0.ffn_up_exps.weight", KN_F32, 4, 3, 3);
	float *down = numbers(f, "blk.0.ffn_down_exps.weight", KN_F32, 3, 4, 3);
	for (int e = 0; e < 3; e++)
		for (int i = 0; i < 12; i++) {
			assert_true(gate[e * 12 + i] == (float)(e * 24 + i) &&
				    up[e * 12 + i] == (float)(e * 24 + 12 + i));
			assert_true(down[e * 12 + i] == (float)(72 + e * 12 + i));
		}
	free(gate);
	free(up);
	free(down);
	free(x);
	model_file_close(f);
}

/* Granite 4's experts [n][gates, ups][in], and its shared half, which is the dense one without experts. */
static void test_granite(void **arg)
{
	(void)arg;
	static const char *const kinds[] = {"_shexp", ""};
	float *x = counted(144);
	for (int k = 0; k < 2; k++) {
		char config[256], name[64];
		snprintf(config, sizeof config,
			 "{\"model_type\":\"granitemoehybrid\"," SHAPE ",\"num_local_experts\":%d}", k == 0 ? 3 : 0);
		write_tensors(
		    config,
		    "\"model.layers.0.block_sparse_moe.input_linear.weight\":{\"dtype\":\"F32\",\"shape\":"
		    "[3,6,4],\"data_offsets\":[0,288]},\"model.layers.0.block_sparse_moe.output_linear.weight\":"
		    "{\"dtype\":\"F32\",\"shape\":[3,4,3],\"data_offsets\":[288,432]},"
		    "\"model.layers.1.shared_mlp.input_linear.weight\":{\"dtype\":\"F32\",\"shape\":[6,4],"
		    "\"data_offsets\":[432,528]},\"model.layers.1.shared_mlp.output_linear.weight\":{\"dtype\":"
		    "\"F32\",\"shape\":[4,3],\"data_offsets\":[528,576]}",
		    x, 144 * sizeof *x);
		struct model_file *f = opened("");
		float *gates = numbers(f, "blk.0.ffn_gate_exps.weight", KN_F32, 4, 3, 3);
		float *ups = numbers(f, "blk.0.ffn_up_exps.weight", KN_F32, 4, 3, 3);
		float *downs = numbers(f, "blk.0.ffn_down_exps.weight", KN_F32, 3, 4, 3);
		for (int e = 0; e < 3; e++)
			for (int i = 0; i < 12; i++)
				assert_true(gates[e * 12 + i] == (float)(e * 24 + i) &&
					    ups[e * 12 + i] == (float)(e * 24 + 12 + i) &&
					    downs[e * 12 + i] == (float)(72 + e * 12 + i));
		float *one[3];
		static const char *const parts[] = {"gate", "up", "down"};
		for (int i = 0; i < 3; i++) {
			snprintf(name, sizeof name, "blk.1.ffn_%s%s.weight", parts[i], kinds[k]);
			one[i] = numbers(f, name, KN_F32, i == 2 ? 3 : 4, i == 2 ? 4 : 3, 1);
			for (int j = 0; j < 12; j++)
				assert_true(one[i][j] == (float)(108 + 12 * i + j));
			free(one[i]);
		}
		free(gates);
		free(ups);
		free(downs);
		model_file_close(f);
	}
	free(x);
}

static void test_refused(void **arg)
{
	(void)arg;
	float x[60] = {0};
	static const struct {
		const char *config, *entries, *said;
		size_t bytes;
	} bad[] = {
	    {OSS "}",
	     "\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[1,3,3],\"data_offsets\":[0,36]"
	     "}",
	     "gate_up_proj has a shape or dtype that does not fit", 36},
	    {"{\"model_type\":\"qwen3_next\",\"linear_num_key_heads\":2,\"linear_num_value_heads\":3}",
	     "\"model.layers.0.linear_attn.in_proj_qkvz.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],"
	     "\"data_offsets\":[0,48]}",
	     "in_proj_qkvz.weight has a shape or dtype that does not fit", 48},
	    {"{\"model_type\":\"qwen3_5_moe\"}",
	     "\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[1,3,3],"
	     "\"data_offsets\":[0,36]}",
	     "gate_up_proj has a shape or dtype that does not fit", 36},
	    {"{\"model_type\":\"granitemoehybrid\"}",
	     "\"model.layers.0.shared_mlp.input_linear.weight\":{\"dtype\":\"F32\",\"shape\":[3,3],"
	     "\"data_offsets\":[0,36]}",
	     "input_linear.weight has a shape or dtype that does not fit", 36},
	    {"{\"model_type\":\"falcon\"}",
	     "\"transformer.h.0.self_attention.query_key_value.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],"
	     "\"data_offsets\":[0,48]}",
	     "query_key_value.weight has a shape or dtype that does not fit", 48},
	    {"{\"model_type\":\"gpt_neox\"}",
	     "\"gpt_neox.layers.0.attention.query_key_value.bias\":{\"dtype\":\"F32\",\"shape\":[12],"
	     "\"data_offsets\":[0,48]}",
	     "query_key_value.bias has a shape or dtype that does not fit", 48},
	    {"{\"model_type\":\"gpt_neox\",\"num_attention_heads\":5}",
	     "\"gpt_neox.layers.0.attention.query_key_value.bias\":{\"dtype\":\"F32\",\"shape\":[12],"
	     "\"data_offsets\":[0,48]}",
	     "query_key_value.bias has a shape or dtype that does not fit", 48},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_tensors(bad[i].config, bad[i].entries, x, bad[i].bytes);
		refused("", SL_EINVAL, bad[i].said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_blocks, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_transposed, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_heads, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_delta, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_granite, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
