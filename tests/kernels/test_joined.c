/* SPDX-License-Identifier: Apache-2.0
 *
 * Products made as one (kernels.h, weight_load_joined) and what reads their joined outputs: every number has the bits
 * that it has when each is made by itself, whatever the type and the rows; shapes that are not joined are refused, and
 * a failure leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { ROWS = 70, PARTS = 3, Q = 4, KV = 2, HEAD = 24, PAGE = 16, POSITIONS = 300, N_PAGES = 20 };

static const struct kn_ops *o;

static struct kn_backend *open_backend(bool fp8)
{
	struct kn_config cfg = {.max_rows = ROWS, .max_width = 4096, .fp8_weights = fp8};
	struct kn_backend *b = NULL;
	struct sl_err err = {0};
	o = open_cuda();
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	return b;
}

static void run(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	struct kn_step s = {.n_rows = n_rows};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, w, x, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
}

static void product_case(int type, bool fp8, const int *n_outs, int n_in)
{
	static const int rows[] = {1, 9, 17, ROWS};
	struct kn_backend *b = open_backend(fp8);
	struct matrix m[PARTS];
	struct kn_weight each[PARTS], all;
	const void *host[PARTS];
	struct sl_err err = {0};
	int width = 0;
	for (int i = 0; i < PARTS; i++) {
		m[i] = make_matrix(type, n_outs[i], n_in);
		host[i] = m[i].bytes;
		width += n_outs[i];
		assert_int_equal(o->weight_load(b, m[i].bytes, type, n_outs[i], n_in, &each[i], &err), 0);
	}
	if (o->weight_load_joined(b, host, n_outs, PARTS, type, n_in, &all, &err) != 0)
		fail_msg("%s: %s", kn_type_name(type), err.text);
	assert_int_equal(all.n_out, width);
	float *x = random_floats(o, b, (size_t)ROWS * (size_t)n_in), *y = guarded(o, b, (size_t)ROWS * (size_t)width);
	float *one = guarded(o, b, (size_t)ROWS * (size_t)width);
	for (int r = 0; r < N(rows); r++) {
		run(b, &all, x, rows[r], y);
		for (int i = 0, at = 0; i < PARTS; at += n_outs[i++]) {
			run(b, &each[i], x, rows[r], one);
			for (int k = 0; k < rows[r]; k++)
				assert_memory_equal(y + k * width + at, one + k * n_outs[i],
						    (size_t)n_outs[i] * sizeof *y);
		}
	}
	check_guards(y, (size_t)ROWS * (size_t)width);
	drop(o, b, x);
	drop(o, b, y);
	drop(o, b, one);
	o->weight_free(b, &all);
	for (int i = 0; i < PARTS; i++) {
		o->weight_free(b, &each[i]);
		drop_matrix(&m[i]);
	}
	o->close(b);
}

static void test_products(void **arg)
{
	static const int tiles[PARTS] = {48, 16, 21}, any[PARTS] = {5, 1, 3};
	(void)arg;
	for (int t = 0; t < N_TYPES; t++)
		product_case(kn_type_at(t), false, tiles, 512);
	product_case(KN_F32, false, any, 33);
	product_case(KN_BF16, true, tiles, 264);
}

/* Each step, of each kind of rows; their bits against those of the operations on rows that are not joined. */
static void test_rows(void **arg)
{
	enum { WIDTH = 1030, HEADS = Q + 2 * KV, ROW = HEADS * HEAD };
	(void)arg;
	struct kn_backend *b = open_backend(false);
	float *x = random_floats(o, b, 3 * 2 * WIDTH), *y = guarded(o, b, 3 * WIDTH), *gate = guarded(o, b, WIDTH),
	      *up = guarded(o, b, WIDTH);
	struct kn_step s = {.n_rows = 3};
	for (int width = WIDTH - 3; width <= WIDTH; width++) /* of which one lets 16 bytes be read at once */
		for (int gelu = 0; gelu < 2; gelu++) {
			assert_int_equal(o->step_begin(b, &s), 0);
			assert_int_equal(o->gate_mul(b, x, 3, width, gelu, y), 0);
			assert_int_equal(o->step_end(b), 0);
			for (int r = 0; r < 3; r++) {
				memcpy(gate, x + (size_t)(2 * r) * (size_t)width, (size_t)width * sizeof *gate);
				memcpy(up, x + (size_t)(2 * r + 1) * (size_t)width, (size_t)width * sizeof *up);
				assert_int_equal(o->step_begin(b, &s), 0);
				assert_int_equal((gelu ? o->gelu_mul : o->silu_mul)(b, gate, up, 1, width), 0);
				assert_int_equal(o->step_end(b), 0);
				assert_memory_equal(gate, y + (size_t)r * (size_t)width, (size_t)width * sizeof *y);
			}
		}
	check_guards(y, 3 * WIDTH);
	float *qkv = random_floats(o, b, 3 * ROW), *was = guarded(o, b, 3 * ROW), *gain = random_floats(o, b, 2 * HEAD);
	float *head = guarded(o, b, HEAD);
	memcpy(was, qkv, 3 * ROW * sizeof *was);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->qkv_norm(b, qkv, Q, KV, HEAD, gain, gain + HEAD, 1e-5f, 3), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < 3 * HEADS; i++) {
		int h = i % HEADS;
		if (h < Q + KV) {
			assert_int_equal(o->step_begin(b, &s), 0);
			assert_int_equal(
			    o->rmsnorm(b, was + i * HEAD, h < Q ? gain : gain + HEAD, 1e-5f, 1, HEAD, head), 0);
			assert_int_equal(o->step_end(b), 0);
		} else {
			memcpy(head, was + i * HEAD, HEAD * sizeof *head);
		}
		assert_memory_equal(qkv + i * HEAD, head, HEAD * sizeof *head);
	}
	check_guards(qkv, 3 * ROW);
	assert_int_equal(o->qkv_norm(b, qkv, Q, KV, 1028, gain, gain, 1e-5f, 1), SL_EUNSUPPORTED);
	float *all[] = {x, y, gate, up, qkv, was, gain, head};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	o->close(b);
}

/* ---- conversions ---- */

/* A norm, or a gate, and a product of what it makes: as it is, and with rows that were touched between, so that the
 * product converts them itself. */
static int chain(struct kn_backend *b, const struct kn_weight *w, int which, bool touched, float *x, const float *add,
		 const float *gain, int n_rows, float *made, float *y)
{
	struct kn_step s = {.n_rows = n_rows};
	int rc = o->step_begin(b, &s), end;
	if (rc == 0 && which == 0)
		rc = o->rmsnorm(b, x, gain, 1e-5f, n_rows, w->n_in, made);
	if (rc == 0 && which == 1)
		rc = o->add_rmsnorm(b, x, add, gain, 1e-5f, n_rows, w->n_in, made);
	if (rc == 0 && which > 1)
		rc = o->gate_mul(b, x, n_rows, w->n_in, which == 3, made);
	if (rc == 0 && touched)
		rc = o->scale(b, made, 1, n_rows, w->n_in);
	if (rc == 0)
		rc = o->matmul(b, w, made, n_rows, y);
	end = o->step_end(b);
	return rc != 0 ? rc : end;
}

static void chain_case(int type, int width, int n_rows, int which)
{
	enum { OUT = 19 };
	struct kn_backend *b = open_backend(false);
	struct matrix m = make_matrix(type, OUT, width);
	struct kn_weight w;
	struct sl_err err = {0};
	size_t n = (size_t)(n_rows * width), bytes = n * sizeof(float);
	assert_int_equal(o->weight_load(b, m.bytes, type, OUT, width, &w, &err), 0);
	float *start = random_floats(o, b, 2 * n), *add = random_floats(o, b, n),
	      *gain = random_floats(o, b, (size_t)width);
	float *x = guarded(o, b, 2 * n), *made[2] = {guarded(o, b, n), guarded(o, b, n)}, *y[2],
	      *was = guarded(o, b, 2 * n);
	for (int r = 0; r < n_rows; r++)
		for (int k = 0; k < 2 * width;
		     k++) /* rows of different sizes, one that stands out at another place in each */
			start[r * 2 * width + k] =
			    ldexpf(start[r * 2 * width + k], r % 5 * 3) * (k == (r * 37) % width ? 50 : 1);
	for (int i = 0; i < 2; i++) {
		y[i] = guarded(o, b, (size_t)(n_rows * OUT));
		memcpy(x, start, 2 * bytes);
		assert_int_equal(chain(b, &w, which, i == 1, x, add, gain, n_rows, made[i], y[i]), 0);
		if (i == 0)
			memcpy(was, x, 2 * bytes);
	}
	assert_memory_equal(x, was, 2 * bytes);
	assert_memory_equal(made[0], made[1], bytes);
	assert_memory_equal(y[0], y[1], (size_t)(n_rows * OUT) * sizeof(float));
	check_guards(made[0], n);
	check_guards(x, 2 * n);
	float *all[] = {start, add, gain, x, made[0], made[1], y[0], y[1], was};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	o->weight_free(b, &w);
	drop_matrix(&m);
	o->close(b);
}

static void test_conversions(void **arg)
{
	(void)arg;
	for (int which = 0; which < 4; which++) {
		chain_case(KN_BF16, 263, 1, which);
		chain_case(KN_F16, 96, 9, which);    /* rows of a warp, and a tile that is not full */
		chain_case(KN_Q4_K, 1280, 3, which); /* which wants sums of the activations */
		chain_case(KN_INT4, 8576, 2, which); /* more than is kept in registers */
	}
}

/* How many launches a step is: the one after the last can't fail. */
static int launches(int which, bool touched, int other)
{
	for (int nth = 1;; nth++) {
		struct kn_backend *b = open_backend(false);
		struct matrix m = make_matrix(KN_BF16, 16, 64), f = make_matrix(KN_F16, 16, 64);
		struct kn_weight w, w2;
		struct sl_err err = {0};
		assert_int_equal(o->weight_load(b, m.bytes, KN_BF16, 16, 64, &w, &err), 0);
		if (other != 0)
			assert_int_equal(o->weight_load(b, f.bytes, KN_F16, 16, 64, &w2, &err), 0);
		float *x = random_floats(o, b, 128), *made = guarded(o, b, 64), *y = guarded(o, b, 16);
		struct kn_step none = {.n_rows = 1};
		assert_int_equal(o->step_begin(b, &none), 0); /* so that nothing is on its way */
		assert_int_equal(o->step_end(b), 0);
		call_backend(cuda_path(), "sluice_emulation_fail", nth);
		int rc = chain(b, &w, which, touched, x, x + 64, x + 64, 1, made, y);
		call_backend(cuda_path(), "sluice_emulation_fail", 0);
		assert_true(rc == 0 || rc == SL_EIO);
		drop(o, b, x);
		drop(o, b, made);
		drop(o, b, y);
		o->weight_free(b, &w);
		if (other != 0)
			o->weight_free(b, &w2);
		drop_matrix(&m);
		drop_matrix(&f);
		o->close(b);
		if (rc == 0)
			return nth - 1;
	}
}

/* A conversion is no launch of its own where all weights of the width take the same numbers. */
static void test_launches(void **arg)
{
	(void)arg;
	if (on_device())
		skip();
	for (int which = 0; which < 4; which++) {
		assert_int_equal(launches(which, false, 0), 2);
		assert_int_equal(launches(which, true, 0), 4);
		assert_int_equal(launches(which, false, 1), 3);
	}
}

struct pages {
	struct kn_kv kv;
	size_t bytes;
};

static struct pages make_pages(struct kn_backend *b, int type)
{
	struct pages p = {.kv = {.type = type,
				 .n_pages = N_PAGES,
				 .page_tokens = PAGE,
				 .n_layers = 1,
				 .n_kv_heads = KV,
				 .head_dim = HEAD}};
	p.bytes = (size_t)(N_PAGES * KV) * kn_kv_head_bytes(type, PAGE, HEAD);
	assert_int_equal(o->mem_alloc(b, p.bytes, &p.kv.k), 0);
	assert_int_equal(o->mem_alloc(b, p.bytes, &p.kv.v), 0);
	return p;
}

/* A prompt and then a decode through pages, by both. */
static void pages_case(int type, int n_rot, bool halves)
{
	enum { WIDE = (Q + 2 * KV) * HEAD };
	static double freq[HEAD / 2];
	static const int starts[] = {0, ROWS, 2 * ROWS, 3 * ROWS, POSITIONS - 1, POSITIONS}; /* of steps */
	struct kn_backend *b = open_backend(false);
	struct kn_rope rope = {.n_rot = n_rot, .halves = halves, .magnitude = 1, .inv_freq = freq};
	struct pages one = make_pages(b, type), three = make_pages(b, type);
	struct kn_attn how = {.scale = 0.3f, .softcap = 4, .window = 150}, joined = how;
	int32_t pos[POSITIONS], seq[POSITIONS] = {0}, table[N_PAGES];
	joined.q_row = WIDE;
	for (int i = 0; i < HEAD / 2; i++)
		freq[i] = pow(100, -2.0 * i / n_rot);
	for (int i = 0; i < POSITIONS; i++)
		pos[i] = i;
	for (int i = 0; i < N_PAGES; i++)
		table[i] = (i * 7 + 3) % N_PAGES;
	float *qkv = guarded(o, b, POSITIONS * WIDE),
	      *out[2] = {guarded(o, b, ROWS * Q * HEAD), guarded(o, b, ROWS * Q * HEAD)};
	float *q = guarded(o, b, POSITIONS * Q * HEAD), *k = guarded(o, b, POSITIONS * KV * HEAD),
	      *v = guarded(o, b, POSITIONS * KV * HEAD);
	for (int i = 0; i + 1 < N(starts); i++) {
		int n = starts[i + 1] - starts[i] > ROWS ? ROWS : starts[i + 1] - starts[i];
		struct kn_step s = {.n_rows = n,
				    .row_pos = pos + starts[i],
				    .row_seq = seq,
				    .n_seqs = 1,
				    .page_table = table,
				    .max_pages = N_PAGES};
		for (int r = 0; r < n * WIDE; r++)
			qkv[r] = next_float();
		for (int r = 0; r < n; r++) {
			memcpy(q + r * Q * HEAD, qkv + r * WIDE, Q * HEAD * sizeof *q);
			memcpy(k + r * KV * HEAD, qkv + r * WIDE + Q * HEAD, KV * HEAD * sizeof *k);
			memcpy(v + r * KV * HEAD, qkv + r * WIDE + (Q + KV) * HEAD, KV * HEAD * sizeof *v);
		}
		assert_int_equal(o->step_begin(b, &s), 0);
		assert_int_equal(o->qkv_rope_write(b, &rope, qkv, Q, &one.kv, 0), 0);
		assert_int_equal(o->attention(b, qkv, Q, &one.kv, 0, &joined, out[0]), 0);
		assert_int_equal(o->rope_kv_write(b, &rope, q, Q, k, v, &three.kv, 0), 0);
		assert_int_equal(o->attention(b, q, Q, &three.kv, 0, &how, out[1]), 0);
		assert_int_equal(o->step_end(b), 0);
		assert_memory_equal(out[0], out[1], (size_t)(n * Q * HEAD) * sizeof(float));
	}
	assert_memory_equal(one.kv.k, three.kv.k, one.bytes);
	assert_memory_equal(one.kv.v, three.kv.v, one.bytes);
	check_guards(qkv, POSITIONS * WIDE);
	float *all[] = {qkv, out[0], out[1], q, k, v};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	void *pools[] = {one.kv.k, one.kv.v, three.kv.k, three.kv.v};
	for (int i = 0; i < N(pools); i++)
		o->mem_free(b, pools[i]);
	o->close(b);
}

static void test_pages(void **arg)
{
	(void)arg;
	pages_case(KN_F32, HEAD, true);
	pages_case(KN_F16, HEAD - 4, false);
	pages_case(KN_FP8, HEAD, false);
}

static void test_refused(void **arg)
{
	static const int odd[] = {24, 16}, none[] = {16, 0}, huge[] = {INT32_MAX - 15, 1024}, good[] = {16, 16};
	(void)arg;
	struct kn_backend *b = open_backend(false);
	struct matrix m = make_matrix(KN_F16, 32, 64);
	const void *host[] = {m.bytes, m.bytes};
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->weight_load_joined(b, host, odd, 2, KN_F16, 64, &w, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "24 rows"));
	assert_int_equal(o->weight_load_joined(b, host, none, 2, KN_F16, 64, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_load_joined(b, host, huge, 2, KN_F16, 64, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_load_joined(b, host, good, 2, KN_Q4_K, 64, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_load_joined(b, host, good, 2, 12345, 64, &w, &err), SL_EUNSUPPORTED);
	drop_matrix(&m);
	o->close(b);
}

/* The device fails in the middle: between two of them. */
static void test_fault(void **arg)
{
	static const int outs[] = {16, 16, 16};
	(void)arg;
	if (on_device())
		skip();
	for (int n = 1; n <= 4; n++) {
		struct kn_backend *b = open_backend(false);
		struct matrix m = make_matrix(KN_F16, 16, 64);
		const void *host[] = {m.bytes, m.bytes, m.bytes};
		struct kn_weight w = {0};
		struct sl_err err = {0};
		call_backend(cuda_path(), "sluice_emulation_fail", n);
		int rc = o->weight_load_joined(b, host, outs, 3, KN_F16, 64, &w, &err);
		assert_int_equal(
		    rc, n <= 1 ? SL_EIO : 0); /* each is done when the second after it comes: two are on their way */
		call_backend(cuda_path(), "sluice_emulation_fail", 0);
		if (rc == 0)
			o->weight_free(b, &w);
		drop_matrix(&m);
		o->close(b);
	}
}

/* ---- models ---- */

enum { LENGTH = 5 };

/* Logits of a few rows in one step. */
static float *logits_of(const struct kn_ops *ops, const char *path, size_t *n)
{
	struct kn_config cfg = {.max_rows = 8, .max_width = 1024, .pad_rows = true};
	struct kn_backend *b;
	struct model *m;
	struct sl_err err = {0};
	int32_t tokens[LENGTH], pos[LENGTH], seq[LENGTH] = {0}, page[1] = {0};
	assert_int_equal(ops->open(&cfg, &b, &err), 0);
	if (model_load(path, ops, b, 8, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(m)->arch;
	struct kn_kv kv = {.type = KN_F16,
			   .n_pages = 1,
			   .page_tokens = 16,
			   .n_layers = a->n_layers,
			   .n_kv_heads = a->n_kv_heads,
			   .head_dim = a->head_dim};
	size_t bytes = (size_t)(a->n_layers * a->n_kv_heads) * kn_kv_head_bytes(KN_F16, 16, a->head_dim);
	assert_int_equal(ops->mem_alloc(b, bytes, &kv.k), 0);
	assert_int_equal(ops->mem_alloc(b, bytes, &kv.v), 0);
	for (int i = 0; i < LENGTH; i++) {
		tokens[i] = (i * 37 + 11) % a->n_vocab;
		pos[i] = i;
	}
	const int32_t want[2] = {1, LENGTH - 1};
	struct kn_step s = {.n_rows = LENGTH,
			    .row_token = tokens,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = page,
			    .max_pages = 1};
	*n = 2 * (size_t)a->n_vocab;
	float *out = calloc(*n, sizeof *out);
	assert_non_null(out);
	assert_int_equal(model_forward(m, &s, &kv, want, 2, out), 0);
	ops->mem_free(b, kv.k);
	ops->mem_free(b, kv.v);
	model_free(m);
	ops->close(b);
	return out;
}

/* Models with biases, with norms of heads, with matrices that are joined in the file, with other gates, and with a
 * matrix of another type among three: as on the same backend when it joins nothing. */
static void test_models(void **arg)
{
	static const struct {
		const char *shape, *plan;
	} cases[] = {{"tiny-qwen2", "bf16"},
		     {"tiny-qwen3", "f32"},
		     {"tiny-phi3", "q8_0"},
		     {"tiny-gemma3", "f16"},
		     {"tiny-llama", "q4_k_m"}};
	char path[PATH_MAX + 64];
	(void)arg;
	snprintf(path, sizeof path, "%s", beside("test_joined.gguf"));
	for (int i = 0; i < N(cases); i++) {
		struct random_model r = {.path = path, .name = "joined", .seed = 5};
		struct sl_err err = {0};
		struct kn_ops apart = *open_cuda();
		size_t n, n_apart;
		apart.weight_load_joined = NULL;
		assert_int_equal(random_shape_find(cases[i].shape, &r.arch, &err), 0);
		assert_int_equal(weight_plan_parse(cases[i].plan, &r.plan, &err), 0);
		r.arch.n_vocab = RANDOM_LEAST_VOCAB + 12;
		if (random_model_write(&r, NULL, &err) != 0)
			fail_msg("%s", err.text);
		float *joined = logits_of(open_cuda(), path, &n), *separate = logits_of(&apart, path, &n_apart);
		assert_int_equal(n, n_apart);
		for (size_t k = 0; k < n; k++)
			assert_true(isfinite(joined[k]));
		assert_memory_equal(joined, separate, n * sizeof *joined);
		free(joined);
		free(separate);
	}
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_products),    cmocka_unit_test(test_rows),     cmocka_unit_test(test_pages),
	    cmocka_unit_test(test_refused),     cmocka_unit_test(test_fault),    cmocka_unit_test(test_models),
	    cmocka_unit_test(test_conversions), cmocka_unit_test(test_launches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
