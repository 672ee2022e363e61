/* SPDX-License-Identifier: Apache-2.0
 *
 * What only the CUDA kernels do with products, in their emulation: many blocks of rows at once, rows of any magnitude
 * beside each other, and weights that become FP8 when they are loaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "engine/source/random_model.h"
#include "tests/kernels/products.h"
#include "tests/support/part.h"
#include "tests/support/tiny_gguf.h"

static struct kn_backend *open_table(const struct kn_ops *o, bool fp8)
{
	return open_with(o,
			 &(struct kn_config){.n_threads = 1, .max_rows = 16384, .max_width = 4096, .fp8_weights = fp8});
}

/* One row against the matrix's values: the activations' error (tables.h) and the sum's, two products more for
 * scales, and what is subnormal in the result. */
static void check_row(const struct kn_ops *o, const struct matrix *m, const float *x, const float *y)
{
	double e = activation_error(o, m->type), largest = 0;
	for (int k = 0; k < m->n_in; k++)
		largest = fmax(largest, fabs((double)x[k]));
	for (int i = 0; i < m->n_out; i++) {
		double sum = 0, magnitude = 0, weights = 0;
		for (int k = 0; k < m->n_in; k++) {
			double w = m->values[i * m->n_in + k], p = w * (double)x[k];
			sum += p;
			magnitude += fabs(p);
			weights += fabs(w);
		}
		double bound = (gamma_of(m->n_in + 2) * (1 + e) + e) * magnitude +
			       activation_floor(o, m->type) * largest * weights + 0x1p-148;
		if (m->type == KN_BF16)
			bound += 0x1p-134 * weights; /* half the last bit of the smallest, which are not scaled */
		if (!(fabs((double)y[i] - sum) <= bound))
			fail_msg("%s, output %d: %.9g, not %.9g within %.3g", kn_type_name(m->type), i, (double)y[i],
				 sum, bound);
	}
}

static void end_case(const struct kn_ops *o, struct kn_backend *b, struct matrix *m, struct kn_weight *w, float *x,
		     float *y)
{
	drop(o, b, x);
	drop(o, b, y);
	o->weight_free(b, w);
	drop_matrix(m);
	o->close(b);
}

/* So many rows that no block has only a part of K; they have the bits that they have alone. */
static void test_many_blocks(void **arg)
{
	(void)arg;
	enum { ROWS = 64 * 132 - 3, OUT = 130, IN = 288 };
	static const int types[] = {KN_F16, KN_Q4_K};
	const struct kn_ops *o = open_cuda();
	for (int t = 0; t < N(types); t++) {
		struct kn_backend *b = open_table(o, false);
		struct matrix m = make_matrix(types[t], OUT, types[t] == KN_F16 ? IN : 2304);
		struct kn_weight w = load(o, b, &m);
		int rows = types[t] == KN_F16 ? ROWS : 64 * 2 - 3, in = m.n_in;
		float *x = random_floats(o, b, (size_t)rows * (size_t)in), *y = guarded(o, b, (size_t)rows * OUT);
		float *one = guarded(o, b, OUT);
		run(o, b, &w, x, rows, y);
		for (int r = 0; r < rows; r += r == rows - 2 ? 1 : rows / 2 - 1) {
			run(o, b, &w, x + r * in, 1, one);
			assert_memory_equal(one, y + r * OUT, OUT * sizeof *one);
			check_row(o, &m, x + r * in, y + r * OUT);
		}
		check_guards(y, (size_t)rows * OUT);
		check_guards(x, (size_t)rows * (size_t)in);
		drop(o, b, one);
		end_case(o, b, &m, &w, x, y);
	}
}

/* Many rows have the same bits by warp groups, without them, and alone: for every number of tiles that a block may
 * have, and with fewer. The most, of which a block counts tiles and not numbers, only of floats and of blocks; on a
 * device and with THOROUGH of all types, and of longer rows. */
static void test_ways(void **arg)
{
	(void)arg;
	enum { OUT = 200, MOST = 24 * 8 * 2 + 5 };
	const int in = on_device() ? 9 * 256 : some_of(5, 9) * 256;
	static const struct {
		int type;
		bool fp8; /* made of it when it is loaded */
	} of[] = {{KN_F16, false},  {KN_BF16, false}, {KN_BF16, true},  {KN_Q4_K, false}, {KN_Q6_K, false},
		  {KN_INT4, false}, {KN_Q8_0, false}, {KN_Q2_K, false}, {KN_MXFP4, false}};
	static const int rows[] = {17, 64, 65, 130, MOST};
	const struct kn_ops *o = open_cuda();
	for (int t = 0; t < (on_device() ? N(of) : N(of) - 3); t++) {
		struct kn_backend *b = open_table(o, of[t].fp8);
		struct matrix m = make_matrix(of[t].type, OUT, in);
		struct kn_weight w = load(o, b, &m);
		float *x = random_floats(o, b, (size_t)MOST * (size_t)in), *y = guarded(o, b, MOST * OUT),
		      *z = guarded(o, b, MOST * OUT);
		bool all = on_device() || getenv("THOROUGH") != NULL || of[t].type == KN_F16 || of[t].type == KN_Q4_K;
		for (int i = 0; i < N(rows) - !all; i++) {
			run(o, b, &w, x, rows[i], y);
			static const int processors[] = {0, 1, 132};
			for (int k = 0; k < N(processors) && !on_device(); k++) { /* which has one way for each */
				assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", processors[k]));
				run(o, b, &w, x, rows[i], z);
				assert_memory_equal(z, y, (size_t)rows[i] * OUT * sizeof *z);
			}
			if (!on_device())
				assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 2));
			for (int r = 0; r < rows[i]; r += 13) {
				run(o, b, &w, x + r * in, 1, z);
				assert_memory_equal(z, y + r * OUT, OUT * sizeof *z);
			}
		}
		check_guards(y, MOST * OUT);
		drop(o, b, z);
		end_case(o, b, &m, &w, x, y);
	}
}

/* A product, the gate of its halves, and a product of that: y. */
static void gated(const struct kn_ops *o, struct kn_backend *b, const struct kn_weight w[2], const float *x, int n_rows,
		  bool gelu, bool only, float *both, float *made, float *y)
{
	struct kn_step s = {.n_rows = n_rows};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w[0], x, n_rows, both), 0);
	if (only)
		o->for_products(b, made);
	assert_int_equal(o->gate_mul(b, both, n_rows, w[0].n_out / 2, gelu, made), 0);
	assert_int_equal(o->matmul(b, &w[1], made, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
}

/* A gate that is for products alone is computed by the blocks of the product before it, where these have all of K: the
 * same bits as by itself, and neither its numbers nor the product's are written. */
static void test_gates(void **arg)
{
	(void)arg;
	enum { WIDTH = 256, IN = 1032, OUT = 24, MOST = 24 * 8 + 21 };
	static const int rows[] = {17, 66, 130, MOST}, processors[] = {0, 1, 132};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_table(o, false);
	struct matrix m[2] = {make_matrix(KN_BF16, 2 * WIDTH, IN), make_matrix(KN_BF16, OUT, WIDTH)};
	struct kn_weight w[2] = {load(o, b, &m[0]), load(o, b, &m[1])};
	float *x = random_floats(o, b, MOST * IN), *y = guarded(o, b, MOST * OUT), *z = guarded(o, b, MOST * OUT),
	      *both = guarded(o, b, MOST * 2 * WIDTH), *made = guarded(o, b, MOST * WIDTH);
	int n_fused = 0;
	for (int i = 0; i < N(rows); i++)
		for (int gelu = 0; gelu < 2; gelu++) {
			gated(o, b, w, x, rows[i], gelu != 0, false, both, made, y);
			for (int k = 0; k < (on_device() ? 1 : N(processors)); k++) {
				if (!on_device())
					assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", processors[k]));
				both[0] = made[0] = -12345;
				gated(o, b, w, x, rows[i], gelu != 0, true, both, made, z);
				assert_memory_equal(z, y, (size_t)rows[i] * OUT * sizeof *z);
				assert_true(made[0] == -12345);
				n_fused += both[0] == -12345;
			}
		}
	/* Products of float32 read the rows themselves, which are then written. */
	struct matrix whole = make_matrix(KN_F32, OUT, WIDTH);
	struct kn_weight two[2] = {w[0], load(o, b, &whole)};
	for (int n = 2; n <= 66; n += 64) {
		gated(o, b, two, x, n, false, false, both, made, y);
		memset(made, 0, (size_t)n * WIDTH * sizeof *made);
		gated(o, b, two, x, n, false, true, both, made, z);
		assert_memory_equal(z, y, (size_t)n * OUT * sizeof *z);
	}
	if (!on_device() && getenv("SLUICE_EMULATION_DEVICE") == NULL) {
		assert_true(n_fused >= 2 * N(rows)); /* one processor has whole blocks only */
		assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 2));
	}
	check_guards(both, MOST * 2 * WIDTH);
	check_guards(made, MOST * WIDTH);
	check_guards(y, MOST * OUT);
	drop(o, b, both);
	drop(o, b, made);
	drop(o, b, z);
	o->weight_free(b, &two[0]);
	o->weight_free(b, &two[1]);
	drop_matrix(&m[0]);
	drop_matrix(&whole);
	end_case(o, b, &m[1], &w[1], x, y);
}

/* Rows that a product of float32 writes over rows that were converted before are converted again. */
static void test_written_over(void **arg)
{
	(void)arg;
	enum { WIDTH = 64, ROWS = 3 };
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_table(o, false);
	struct matrix m = make_matrix(KN_BF16, WIDTH, WIDTH), whole = make_matrix(KN_F32, WIDTH, WIDTH);
	struct kn_weight w = load(o, b, &m), over = load(o, b, &whole);
	float *x = random_floats(o, b, ROWS * WIDTH), *z = random_floats(o, b, ROWS * WIDTH),
	      *y = guarded(o, b, ROWS * WIDTH);
	const struct kn_step s = {.n_rows = ROWS};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, ROWS, y), 0);
	assert_int_equal(o->matmul(b, &over, z, ROWS, x), 0);
	assert_int_equal(o->matmul(b, &w, x, ROWS, y), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int r = 0; r < ROWS; r++)
		check_row(o, &m, x + r * WIDTH, y + r * WIDTH);
	drop(o, b, z);
	o->weight_free(b, &over);
	drop_matrix(&whole);
	end_case(o, b, &m, &w, x, y);
}

/* Rows of every magnitude that there is, zero, and with what is not finite, which spoils no other row. */
static void test_ranges(void **arg)
{
	(void)arg;
	enum { IN = 512, OUT = 37, ROWS = 20 };
	static const int types[] = {KN_F16, KN_BF16, KN_Q8_0, KN_Q4_K, KN_Q2_K, KN_MXFP4, KN_INT4};
	const struct kn_ops *o = open_cuda();
	for (int n_rows = 8; n_rows <= ROWS; n_rows += 12)
		for (int t = 0; t < N(types); t++) {
			struct kn_backend *b = open_table(o, false);
			struct matrix m = make_matrix(types[t], OUT, IN);
			struct kn_weight w = load(o, b, &m);
			float *x = random_floats(o, b, ROWS * IN), *y = guarded(o, b, ROWS * OUT);
			for (int k = 0; k < IN; k++) {
				x[k] = ldexpf(x[k], -130);
				x[IN + k] = 0;
				x[2 * IN + k] =
				    ldexpf(x[2 * IN + k], types[t] == KN_Q2_K || types[t] == KN_Q4_K ? 90 : 100);
				x[3 * IN + k] = ldexpf(x[3 * IN + k], -(k % 50));
				x[4 * IN + k] = k % 2 ? 1 : -1;
				x[5 * IN + k] = k == 77 ? 3000 : x[5 * IN + k];
			}
			x[6 * IN + 5] = n_rows > 8 ? INFINITY : NAN;
			run(o, b, &w, x, n_rows, y);
			for (int r = 0; r < n_rows; r++)
				if (r == 6)
					for (int i = 0; i < OUT; i++)
						assert_false(isfinite(y[r * OUT + i]) && m.values[i * IN + 5] != 0);
				else
					check_row(o, &m, x + r * IN, y + r * OUT);
			end_case(o, b, &m, &w, x, y);
		}
}

/* ---- FP8 ---- */

/* The nearest of all 127 magnitudes, of two as near the one with an even last bit; by the definition. */
static double nearest_e4m3(double v)
{
	double best = 0, off = INFINITY;
	for (int code = 0; code < 127; code++) {
		int exp = code >> 3, man = code & 7;
		double q = exp == 0 ? ldexp(man, -9) : ldexp(8 + man, exp - 10), d = fabs(fabs(v) - q);
		if (d < off || (d <= off && code % 2 == 0)) {
			best = q;
			off = d;
		}
	}
	return v < 0 ? -best : best;
}

/* What the matrix is after it was rounded. */
static void round_matrix(struct matrix *m)
{
	for (int i = 0; i < m->n_out; i++) {
		double *w = m->values + i * m->n_in;
		float most = 0;
		for (int k = 0; k < m->n_in; k++)
			most = fmaxf(most, (float)fabs(w[k]));
		float scale = most / 448;
		for (int k = 0; k < m->n_in; k++)
			w[k] = scale > 0 ? (double)((float)nearest_e4m3((double)((float)w[k] / scale)) * scale) : 0;
	}
}

static void test_fp8(void **arg)
{
	(void)arg;
	static const int types[] = {KN_F32, KN_F16, KN_BF16}, rows[] = {1, 2, 8, 9, 16, 17, 64},
			 ins[] = {1, 33, 263, 520};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_table(o, true);
	for (int t = 0; t < N(types); t++)
		for (int k = 0; k < N(ins); k++) {
			enum { OUT = 35, MOST = 64 };
			static const int32_t tokens[] = {34, 0, 15, 16, 16, 7, 8};
			struct matrix m = make_matrix(types[t], OUT, ins[k]);
			struct kn_weight w = load(o, b, &m);
			float *y = guarded(o, b, (size_t)(MOST * OUT)),
			      *e = guarded(o, b, (size_t)(N(tokens) * ins[k]));
			float *x = random_floats(o, b, (size_t)(MOST * ins[k]));
			struct kn_step s = {.n_rows = N(tokens), .row_token = tokens};
			round_matrix(&m);
			assert_int_equal(o->step_begin(b, &s), 0);
			assert_int_equal(o->embed(b, &w, e), 0);
			assert_int_equal(o->step_end(b), 0);
			for (int i = 0; i < N(tokens) * ins[k]; i++)
				assert_true((double)e[i] == m.values[tokens[i / ins[k]] * ins[k] + i % ins[k]]);
			m.type = KN_F16; /* whose activations they are multiplied with */
			for (int r = 0; r < N(rows); r++) {
				run(o, b, &w, x, rows[r], y);
				for (int i = 0; i < rows[r]; i++)
					check_row(o, &m, x + i * ins[k], y + i * OUT);
			}
			check_guards(e, (size_t)(N(tokens) * ins[k]));
			drop(o, b, x);
			drop(o, b, y);
			drop(o, b, e);
			o->weight_free(b, &w);
			drop_matrix(&m);
		}
	o->close(b);
}

/* Whoever has none says so. */
static void test_fp8_refused(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		struct kn_config cfg = {.n_threads = 1, .max_rows = 1, .max_width = 64, .fp8_weights = true};
		struct kn_backend *b = NULL;
		struct sl_err err = {0};
		assert_int_equal((*o)->open(&cfg, &b, &err), SL_EUNSUPPORTED);
		assert_non_null(strstr(err.text, "fp8"));
	}
}

enum { LENGTH = 24 };

/* quantize: -1, or a type that its matrices become. */
static size_t logits_of(const char *path, const struct kn_ops *o, bool fp8, int quantize, float **out)
{
	struct model_quantize q = {.type = quantize, .n_threads = 1};
	struct model_how how = {.quantize = quantize >= 0 ? &q : NULL};
	struct kn_config cfg = {.n_threads = 1, .max_rows = LENGTH, .max_width = 4096, .fp8_weights = fp8};
	struct kn_backend *b;
	struct model *m;
	struct sl_err err = {0};
	int32_t tokens[LENGTH], pos[LENGTH], seq[LENGTH] = {0}, page[2] = {1, 0};
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	if (model_load_as(path, &how, o, b, LENGTH, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(m)->arch;
	size_t n = (size_t)LENGTH * (size_t)a->n_vocab;
	struct kn_kv kv = {.type = KN_F32,
			   .n_pages = 2,
			   .page_tokens = 16,
			   .n_layers = a->n_layers,
			   .n_kv_heads = a->n_kv_heads,
			   .head_dim = a->head_dim};
	size_t bytes = 2 * 16 * (size_t)(a->n_layers * a->n_kv_heads * a->head_dim) * sizeof(float);
	assert_int_equal(o->mem_alloc(b, bytes, &kv.k), 0);
	assert_int_equal(o->mem_alloc(b, bytes, &kv.v), 0);
	for (int i = 0; i < LENGTH; i++) {
		tokens[i] = (int32_t)((unsigned)(i * 37 + 11) % (unsigned)a->n_vocab);
		pos[i] = i;
	}
	int32_t want[LENGTH];
	for (int i = 0; i < LENGTH; i++)
		want[i] = i;
	struct kn_step s = {.n_rows = LENGTH,
			    .row_token = tokens,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = page,
			    .max_pages = 2};
	*out = calloc(n, sizeof **out);
	assert_non_null(*out);
	assert_int_equal(model_forward(m, &s, &kv, want, LENGTH, *out), 0);
	o->mem_free(b, kv.k);
	o->mem_free(b, kv.v);
	model_free(m);
	o->close(b);
	return n;
}

/* Root mean square of what x is off by, relative to y's. */
static double distance(const float *x, const float *y, size_t n)
{
	double off = 0, all = 0;
	for (size_t i = 0; i < n; i++) {
		off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
		all += (double)y[i] * (double)y[i];
	}
	return sqrt(off / all);
}

/* Rounding to e4m3 is off by 2.6 % of a weight in the root mean square (half a step of an eighth, evenly), and so is
 * a product of many. A logit of this model depends on sixteen matrices (seven a layer, the embedding, the head), and
 * norms over 32 numbers pass errors on whole: four times one's, 10 %, if they are independent. Twice that is asked for,
 * and that it isn't nothing. */
static void test_fp8_logits(void **arg)
{
	(void)arg;
	char file[PATH_MAX + 64];
	snprintf(file, sizeof file, "%s", beside("test_cuda_products.gguf"));
	assert_true(tiny_gguf_write(file, 1));
	float *plain, *fp8;
	size_t n = logits_of(file, kn_available()[0], false, -1, &plain);
	assert_int_equal(logits_of(file, open_cuda(), true, -1, &fp8), n);
	double off = distance(fp8, plain, n);
	print_message("logits in fp8: %.2f %% off in the root mean square\n", 100 * off);
	assert_true(off < 0.21 && off > 0.001);
	unlink(file);
	free(plain);
	free(fp8);
}

/* Weights spread evenly over their range lose 6.7 % in four bits, normal ones, of which the largest of 128 is some 2.6
 * deviations, 10 % (a step of 2.6 / 7.5, evenly). Fourteen matrices here, the embedding and the head are not among
 * them: the root of fourteen times that if they are independent, 37 %, of which a layer's residual takes away more than
 * half. The reference has the same weights: what is left there is the activations' 2^-11 and what norms and layers make
 * of it. */
static void test_int4_logits(void **arg)
{
	(void)arg;
	char file[PATH_MAX + 64];
	snprintf(file, sizeof file, "%s", beside("test_cuda_products.gguf"));
	struct random_model r = {.path = file, .name = "int4", .seed = 5};
	struct sl_err err = {0};
	float *plain, *same, *int4;
	assert_int_equal(random_shape_find("tiny-llama", &r.arch, &err), 0);
	assert_int_equal(weight_plan_parse("bf16", &r.plan, &err), 0);
	r.arch.n_vocab = RANDOM_LEAST_VOCAB + 12;
	assert_int_equal(random_model_write(&r, NULL, &err), 0);
	size_t n = logits_of(file, kn_available()[0], false, -1, &plain);
	assert_int_equal(logits_of(file, kn_available()[0], false, KN_INT4, &same), n);
	assert_int_equal(logits_of(file, open_cuda(), false, KN_INT4, &int4), n);
	double off = distance(int4, plain, n), between = distance(int4, same, n);
	print_message(
	    "logits in int4: %.2f %% off in the root mean square, %.3f %% between CUDA's and the reference's\n",
	    100 * off, 100 * between);
	assert_true(off < 0.37 && off > 0.02);
	assert_true(between < 16 * 0x1p-8); /* the head and the embedding are bfloat16 */
	unlink(file);
	free(plain);
	free(same);
	free(int4);
}

/* What the first step of two products of so many rows takes of the device's memory, and what the plan keeps for it. */
static void take_memory(const struct kn_ops *o, int n_rows, uint64_t *took, uint64_t *kept)
{
	enum { IN = 4096, OUT = 16 };
	struct kn_backend *b = open_with(o, &(struct kn_config){.n_threads = 1, .max_rows = n_rows, .max_width = IN});
	struct matrix m = make_matrix(KN_BF16, OUT, IN);
	struct kn_weight w = load(o, b, &m);
	float *x = random_floats(o, b, (size_t)n_rows * IN), *z = random_floats(o, b, (size_t)n_rows * IN),
	      *y = guarded(o, b, (size_t)n_rows * OUT);
	const struct kn_step s = {.n_rows = n_rows};
	struct kn_memory before, after;
	assert_true(o->memory(b, &before));
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, n_rows, y), 0);
	assert_int_equal(o->matmul(b, &w, z, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
	assert_true(o->memory(b, &after));
	*took = before.free - after.free;
	*kept = before.later;
	drop(o, b, z);
	end_case(o, b, &m, &w, x, y);
}

/* More rows take no more memory than the plan keeps for them: products take turns in two rooms. */
static void test_memory(void **arg)
{
	(void)arg;
	uint64_t took[2], kept[2];
	void (*set_memory)(uint64_t);
	if (on_device() || on_standin())
		skip(); /* others use its memory */
	void *symbol = cuda_function("sluice_emulation_memory");
	memcpy(&set_memory, &symbol, sizeof set_memory);
	set_memory(1 << 30);
	take_memory(open_cuda(), 32, &took[0], &kept[0]);
	take_memory(open_cuda(), 96, &took[1], &kept[1]);
	set_memory(0);
	assert_true(took[1] > took[0]);
	assert_in_range(took[1] - took[0], 1, kept[1] - kept[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_many_blocks),  cmocka_unit_test(test_ways),       cmocka_unit_test(test_gates),
	    cmocka_unit_test(test_written_over), cmocka_unit_test(test_ranges),     cmocka_unit_test(test_fp8),
	    cmocka_unit_test(test_fp8_refused),  cmocka_unit_test(test_fp8_logits), cmocka_unit_test(test_int4_logits),
	    cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
