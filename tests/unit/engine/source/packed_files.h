/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of quantized folders share: a writer of safetensors, matrices drawn from floats, and checks of what
 * becomes of them. Each test packs by its format's definition, apart from the reader.
 */
#ifndef TESTS_ENGINE_PACKED_FILES_H
#define TESTS_ENGINE_PACKED_FILES_H

#include <math.h>

#include "base/fault.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "kernels/quantize.h"
#include "tests/support/model_dir_fixture.h"

#define PREFIX "model.layers.0.self_attn.q_proj"

static uint64_t random_state;

static inline uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* ---- safetensors ---- */

struct raw {
	char name[96];
	const char *dtype;
	char shape[64];
	uint64_t rows, width; /* rows 0: a vector; neither: shape alone counts */
	size_t bytes;
	uint8_t *at;
};

static struct raw raws[64];
static const char *prefix = PREFIX;
static size_t n_raws;

static inline void drop_raws(void)
{
	for (size_t i = 0; i < n_raws; i++)
		free(raws[i].at);
	n_raws = 0;
}

/* Whatever a test before has left. */
static inline int begin(void **state)
{
	drop_raws();
	prefix = PREFIX;
	random_state = 1;
	return setup(state);
}

static inline size_t element_bytes(const char *dtype)
{
	static const struct {
		const char *dtype;
		size_t bytes;
	} sizes[] = {{"I64", 8}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (strcmp(sizes[i].dtype, dtype) == 0)
			return sizes[i].bytes;
	return 1;
}

static inline void *add_n(const char *suffix, const char *dtype, uint64_t n)
{
	struct raw *r = &raws[n_raws++];
	assert_true(n_raws <= sizeof raws / sizeof *raws);
	memset(r, 0, sizeof *r);
	snprintf(r->name, sizeof r->name, "%s%s", prefix, suffix);
	r->dtype = dtype;
	r->bytes = (size_t)n * element_bytes(dtype);
	r->at = calloc(1, r->bytes + 8);
	return r->at;
}

/* A tensor after the prefix, of zeros: [rows][width], or [width] if rows is 0. */
static inline void *add(const char *suffix, const char *dtype, uint64_t rows, uint64_t width)
{
	void *at = add_n(suffix, dtype, (rows > 0 ? rows : 1) * width);
	raws[n_raws - 1].rows = rows;
	raws[n_raws - 1].width = width;
	return at;
}

/* Of any shape, "2,8,2,16". */
static inline void *add_shaped(const char *suffix, const char *dtype, uint64_t n, const char *shape)
{
	void *at = add_n(suffix, dtype, n);
	snprintf(raws[n_raws - 1].shape, sizeof raws->shape, "%s", shape);
	return at;
}

static inline struct raw *raw_of(const char *suffix)
{
	char name[96];
	snprintf(name, sizeof name, "%s%s", prefix, suffix);
	size_t i = 0;
	while (i + 1 < n_raws && strcmp(raws[i].name, name) != 0)
		i++;
	assert_string_equal(raws[i].name, name);
	return &raws[i];
}

static inline const char *shape_of(const struct raw *r, char out[64])
{
	if (r->rows > 0)
		snprintf(out, 64, "%d,%d", (int)r->rows, (int)r->width);
	else if (r->width > 0)
		snprintf(out, 64, "%d", (int)r->width);
	else
		snprintf(out, 64, "%s", r->shape);
	return out;
}

/* Wide elements come first, so that all are aligned. */
static inline void write_tensors(void)
{
	static char head[32768];
	const struct raw *order[64];
	char path[256], shape[64];
	size_t h, at = 0, n = 0;
	FILE *f;
	for (size_t bytes = 8; bytes > 0; bytes /= 2)
		for (size_t i = 0; i < n_raws; i++)
			if (element_bytes(raws[i].dtype) == bytes)
				order[n++] = &raws[i];
	h = (size_t)snprintf(head, sizeof head, "{");
	for (size_t i = 0; i < n; at += order[i++]->bytes)
		h += (size_t)snprintf(head + h, sizeof head - h,
				      "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
				      i > 0 ? "," : "", order[i]->name, order[i]->dtype, shape_of(order[i], shape), at,
				      at + order[i]->bytes);
	h += (size_t)snprintf(head + h, sizeof head - h, "}");
	while (h % 8 != 0)
		head[h++] = ' ';
	uint64_t head_bytes = h;
	md_path(path, dir, "model.safetensors");
	f = fopen(path, "wb");
	assert_non_null(f);
	fwrite(&head_bytes, 8, 1, f);
	fwrite(head, 1, h, f);
	for (size_t i = 0; i < n; i++)
		fwrite(order[i]->at, 1, order[i]->bytes, f);
	assert_int_equal(fclose(f), 0);
}

static inline void write_folder(const char *config)
{
	static char text[4096];
	snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"quantization_config\":%s}", config);
	md_text(dir, "config.json", text);
	write_tensors();
}

static inline void put_scale(void *scales, const char *dtype, int i, float v)
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

/* ---- small floats, by their definition ---- */

/* Bits eeeemmm below the sign, bias 7; no infinities, 127 is no number. */
static inline double e4m3_value(int code)
{
	int e = code >> 3 & 15, m = code & 7;
	double v = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
	return code & 128 ? -v : v;
}

static inline uint8_t e4m3_nearest(double x)
{
	int best = 0;
	for (int code = 0; code < 127; code++)
		if (fabs(e4m3_value(code) - fabs(x)) < fabs(e4m3_value(best) - fabs(x)))
			best = code;
	return (uint8_t)(best | (x < 0 ? 128 : 0));
}

static const double e2m1_values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static inline double e2m1_value(int code) { return code & 8 ? -e2m1_values[code & 7] : e2m1_values[code & 7]; }

static inline uint8_t e2m1_nearest(double x)
{
	int best = 0;
	for (int code = 1; code < 8; code++)
		if (fabs(e2m1_values[code] - fabs(x)) < fabs(e2m1_values[best] - fabs(x)))
			best = code;
	return (uint8_t)(best | (x < 0 ? 8 : 0));
}

/* ---- opening ---- */

static inline struct model_file *opened(void)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	if (model_file_open(dir, &f, &err) != 0)
		fail_msg("%s", err.text);
	return f;
}

/* One line, of that code, with these words: from the head alone, or once the numbers are read. */
static inline void refused(const char *config, int code_wanted, const char *words)
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

/* ---- a matrix of floats, as a format stores it ---- */

enum { MOST_OUT = 264, MOST_IN = 512 };
static float drawn[MOST_OUT][MOST_IN];
static double wanted[MOST_OUT][MOST_IN]; /* what the format makes of them */
static double slack[MOST_OUT][MOST_IN];  /* what the reader may be off by */

/* Packs drawn, adds the tensors after the prefix, and fills wanted and slack. */
typedef void pack_fn(int n_out, int n_in);

/* About normal, of deviation 0.05; groups of 16 differ in size by up to `spread` binades. */
static inline void draw_floats(int n_out, int n_in, int spread)
{
	for (int o = 0; o < n_out; o++)
		for (int k = 0; k < n_in; k++) {
			int sum = 0;
			for (int i = 0; i < 4; i++)
				sum += (int)at_random(1024) - 512;
			if (k % 16 == 0)
				slack[o][k / 16] = ldexp(1, -(int)at_random((uint32_t)spread + 1));
			drawn[o][k] = (float)(sum / 512.0 * 0.04 * slack[o][k / 16]);
		}
}

/* Rounding to Q8_0: half a step, the largest of 32 by 127, which is a float16. */
static inline void slack_of_q8(int n_out, int n_in)
{
	for (int o = 0; o < n_out; o++)
		for (int k = 0; k < n_in; k++) {
			double most = 0;
			for (int i = k / 32 * 32; i < k / 32 * 32 + 32 && i < n_in; i++)
				most = fmax(most, fabs(wanted[o][i]));
			slack[o][k] = most / 254 * (1 + 0x1p-9) + 127 * 0x1p-25;
		}
}

static inline void check_values(const struct model_tensor *t, int n_out, int n_in, int first, const char *what)
{
	static float row[MOST_IN];
	for (int o = 0; o < n_out; o++) {
		size_t row_bytes = kn_row_bytes(t->type, (size_t)n_in);
		kn_dequantize(t->type, (const uint8_t *)t->data + (size_t)(first + o) * row_bytes, (size_t)n_in, row);
		for (int k = 0; k < n_in; k++)
			if (!(fabs((double)row[k] - wanted[o][k]) <= slack[o][k]))
				fail_msg("%s: weight %d of %d is %.9g, not %.9g to %.3g", what, k, o, (double)row[k],
					 wanted[o][k], slack[o][k]);
	}
}

/* The folder's one tensor, the matrix under PREFIX: of that type and shape, and not read yet. */
static inline const struct model_tensor *the_matrix(const struct model_file *f, const char *config, int n_out, int n_in,
						    int type)
{
	assert_int_equal(model_file_n_tensors(f), 1);
	const struct model_tensor *t = model_file_find(f, "blk.0.attn_q.weight");
	assert_non_null(t);
	if (t->type != type)
		fail_msg("%s: %s, not %s", config, kn_type_name(t->type), kn_type_name(type));
	assert_true(t->n_dims == 2 && t->dims[0] == (uint64_t)n_in && t->dims[1] == (uint64_t)n_out);
	assert_null(t->data);
	return t;
}

/* The matrix under PREFIX becomes that type, with these values, on every thread alike and each time. */
static inline void check_matrix(const char *config, pack_fn *pack, int n_out, int n_in, int spread, int type)
{
	struct sl_err err = {0};
	draw_floats(n_out, n_in, spread);
	pack(n_out, n_in);
	write_folder(config);
	struct model_file *f = opened();
	const struct model_tensor *t = the_matrix(f, config, n_out, n_in, type);
	for (int again = 0; again < 2; again++) {
		if (model_file_bring(f, t, &err) != 0)
			fail_msg("%s", err.text);
		check_values(t, n_out, n_in, 0, config);
		model_file_let_go(f, t);
		assert_null(t->data);
	}
	model_file_close(f);
	drop_raws();
}

/* ---- a whole model ---- */

enum { N_MATRICES = 7, N_TOKENS = 7 };
static const char *const matrices[N_MATRICES] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
						 "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
						 "mlp.down_proj"};
static char matrix_names[N_MATRICES][96];

static inline void write_config(int wide, const char *quantization)
{
	static char text[4096];
	snprintf(text, sizeof text,
		 "{\"model_type\":\"llama\",\"hidden_size\":%d,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
		 "\"num_key_value_heads\":2,\"intermediate_size\":%d,\"max_position_embeddings\":64,"
		 "\"rms_norm_eps\":1e-5,\"rope_theta\":20000,\"hidden_act\":\"silu\",\"vocab_size\":7,"
		 "\"tie_word_embeddings\":false,\"bos_token_id\":0,\"eos_token_id\":[1,2]%s%s}",
		 wide, wide, quantization != NULL ? ",\"quantization_config\":" : "",
		 quantization != NULL ? quantization : "");
	md_text(dir, "config.json", text);
	md_text(dir, "tokenizer.json", md_tokenizer);
}

static inline void add_floats(const char *name, int rows, int width, float most)
{
	prefix = name;
	float *x = add("", "F32", (uint64_t)rows, (uint64_t)width);
	for (int i = 0; i < (rows > 0 ? rows : 1) * width; i++)
		x[i] = most * (1 + (float)at_random(64) / 64) * (rows > 0 && at_random(2) ? -1.0f : 1.0f);
}

static inline void add_ends(int wide)
{
	random_state = 17;
	add_floats("model.embed_tokens.weight", N_TOKENS, wide, 0.5f);
	add_floats("lm_head.weight", N_TOKENS, wide, 0.5f);
	add_floats("model.norm.weight", 0, wide, 0.5f);
	add_floats("model.layers.0.input_layernorm.weight", 0, wide, 0.5f);
	add_floats("model.layers.0.post_attention_layernorm.weight", 0, wide, 0.5f);
}

/* Logits of the last of some tokens. */
static inline void logits_of(const char *path, int wide, float *out)
{
	static const int32_t token[3] = {2, 5, 3}, pos[3] = {0, 1, 2}, seq[3], page[1], want = 2;
	const struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 1024};
	struct sl_err err = {0};
	struct kn_backend *b = NULL;
	struct model *m = NULL;
	struct kv_pool *pool = NULL;
	const struct kn_ops *o = kn_select("cpu-ref", &err);
	assert_non_null(o);
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	if (model_load(path, o, b, 4, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(kv_pool_create(o, b, KN_F32, 1, 16, 1, 2, wide / 2, &pool, &err), 0);
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

/* All matrices of a model, packed, or as the floats that the format makes of them. */
static inline void add_model(int wide, int spread, pack_fn *pack, bool floats)
{
	add_ends(wide);
	for (int i = 0; i < N_MATRICES; i++) {
		snprintf(matrix_names[i], sizeof matrix_names[i], "model.layers.0.%s", matrices[i]);
		prefix = matrix_names[i];
		size_t before = n_raws;
		draw_floats(wide, wide, spread);
		pack(wide, wide);
		if (!floats)
			continue;
		for (; n_raws > before; n_raws--)
			free(raws[n_raws - 1].at);
		float *x = add(".weight", "F32", (uint64_t)wide, (uint64_t)wide);
		for (int k = 0; k < wide * wide; k++)
			x[k] = (float)wanted[k / wide][k % wide];
	}
	prefix = PREFIX;
}

/* The logits of a packed model are those of one with the same numbers as floats. `off` is the weights' error, root mean
 * square over root mean square: seven products follow one another at most, each adds it to its outputs, independently,
 * so a logit is off by √7 · off of the logits' size, and the largest of seven of normal distribution by less than four times
 * that. float32 sums come to less than 1e-5. */
static inline void check_logits(const char *config, int wide, int spread, pack_fn *pack, double off)
{
	float packed[N_TOKENS], plain[N_TOKENS];
	double size = 0;
	add_model(wide, spread, pack, false);
	write_config(wide, config);
	write_tensors();
	drop_raws();
	logits_of(dir, wide, packed);
	add_model(wide, spread, pack, true);
	write_config(wide, NULL);
	write_tensors();
	drop_raws();
	logits_of(dir, wide, plain);
	for (int i = 0; i < N_TOKENS; i++)
		size += (double)plain[i] * (double)plain[i] / N_TOKENS;
	assert_true(size > 1e-4);
	for (int i = 0; i < N_TOKENS; i++)
		if (!(fabs((double)packed[i] - (double)plain[i]) <= (4 * sqrt(7) * off + 1e-5) * sqrt(size)))
			fail_msg("%s: logit %d is %.6g, not %.6g", config, i, (double)packed[i], (double)plain[i]);
}

/* Opens the folder and reads a matrix while each allocation in turn finds no memory: an error with its words, and
 * nothing is left behind. */
static inline void lack_memory(void)
{
	int n_failed = 0;
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
}

#endif
