/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA kernels ask of memory, counted in their emulation (tests/emulation/emu_count.h), against what their
 * algorithm needs: weights and pages are read once, no banks of shared memory meet, no atomics meet at an address. The
 * numbers are exact, so a kernel that asks for more than before fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/kv_type.h"
#include "tests/emulation/emu_count.h"
#include "tests/kernels/products.h"

enum { CHUNK = 256, SLAB = 32, PIECE = 512, OUTS = 16, TILE = 8, MOST_ROWS = 136, BLOCK_OUTS = 128 };

/* Begins or ends counting; skips the test where nothing is counted. */
static void count(bool on)
{
	void *symbol = backend_function(cuda_path(), "sluice_emulation_count");
	int (*set)(int);
	memcpy(&set, &symbol, sizeof set);
	if (symbol == NULL || !set(on))
		skip();
}

static struct emu_counts counted(const char *kernel)
{
	void *symbol = cuda_function("sluice_emulation_counted");
	void (*get)(const char *, struct emu_counts *);
	struct emu_counts c;
	memcpy(&get, &symbol, sizeof get);
	get(kernel, &c);
	assert_int_equal(c.unmatched, 0);
	return c;
}

static struct kn_backend *open_counted(const struct kn_ops *o)
{
	return open_with(o, &(struct kn_config){.n_threads = 1, .max_rows = 1024, .max_width = 4096});
}

static int parts_of(int n, int each) { return (n + each - 1) / each; }

/* A type, and what of it is packed (kernels/cuda/packed.h): pieces and bytes of a record, whether it has minimums. */
static const struct form {
	int type, pieces, record;
	bool has_min;
} forms[] = {
    {KN_F16, 16, 8192, false},
    {KN_Q8_0, 8, 4352, false},
    {KN_Q4_K, 4, 2368, true},
    {KN_Q2_K, 2, 1344, true},
};

static struct emu_counts count_product(const struct kn_ops *o, const struct form *f, int n_out, int n_in, int n_rows,
				       const char *kernel)
{
	struct kn_backend *b = open_counted(o);
	struct matrix m = make_matrix(f->type, n_out, n_in);
	struct kn_weight w = load(o, b, &m);
	float *x = random_floats(o, b, (size_t)n_rows * (size_t)n_in),
	      *y = guarded(o, b, (size_t)n_rows * (size_t)n_out);
	count(true);
	run(o, b, &w, x, n_rows, y);
	struct emu_counts c = counted(kernel);
	count(false);
	drop(o, b, x);
	drop(o, b, y);
	o->weight_free(b, &w);
	drop_matrix(&m);
	o->close(b);
	return c;
}

/* Up to 16 rows: every weight once; for each tile of outputs the rows that there are, 64 bytes a slab, and the sums
 * of their tiles, 16 bytes a lane. */
static void test_few_rows(void **arg)
{
	(void)arg;
	enum { OUT = 40, IN = 2048 + 256 };
	static const int rows[] = {1, 2, 8, 9, 16};
	const struct kn_ops *o = open_cuda();
	for (int t = 0; t < N(forms); t++)
		for (int r = 0; r < N(rows); r++) {
			const struct form *f = &forms[t];
			uint64_t tiles = (uint64_t)parts_of(OUT, OUTS), slabs = IN / SLAB;
			uint64_t sums = f->has_min ? (uint64_t)parts_of(rows[r], TILE) * 32 * 16 : 0;
			struct emu_counts c = count_product(o, f, OUT, IN, rows[r], "matvec");
			assert_int_equal(c.launches, 1);
			assert_int_equal(c.once_bytes, tiles * (IN / CHUNK) * (uint64_t)(f->pieces * PIECE));
			assert_int_equal(c.again_bytes, tiles * slabs * ((uint64_t)rows[r] * 64 + sums));
			assert_int_equal(c.async_bytes, 0);
		}
}

/* More rows: weights once for 64 rows; for each 128 outputs each tile of eight rows once, 512 bytes a slab and 64 of
 * sums. A hint for every line of a record but those that a block begins with. No bank meets another. */
static void test_many_rows(void **arg)
{
	(void)arg;
	enum { OUT = 144, IN = 4096 };
	static const int rows[] = {17, 32, 33, 64, 65, MOST_ROWS};
	const struct kn_ops *o = open_cuda();
	assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 0));
	for (int t = 0; t < N(forms); t++)
		for (int r = 0; r < N(rows); r++) {
			const struct form *f = &forms[t];
			uint64_t tiles = (uint64_t)parts_of(OUT, OUTS), slabs = IN / SLAB, chunks = IN / CHUNK;
			uint64_t blocks = (uint64_t)parts_of(OUT, BLOCK_OUTS), by64 = (uint64_t)parts_of(rows[r], 64);
			uint64_t each = PIECE + (f->has_min ? 64 : 0);
			struct emu_counts c = count_product(o, f, OUT, IN, rows[r], "mma<");
			assert_int_equal(c.launches, 1);
			assert_int_equal(c.blocks, blocks * by64 * 8); /* parts of K */
			assert_int_equal(c.once_bytes, by64 * tiles * chunks * (uint64_t)(f->pieces * PIECE));
			assert_int_equal(c.async_bytes, blocks * slabs * (uint64_t)parts_of(rows[r], TILE) * each);
			assert_int_equal(c.hints, by64 * tiles * (chunks - 8) * (uint64_t)parts_of(f->record, 128));
			assert_true(c.shared_groups > 0);
			assert_int_equal(c.shared_turns, c.shared_groups);
		}
	assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 2));
}

/* ---- experts ---- */

enum { EXPERTS = 6, USED = 2, WIDTH = 512, FF = 32 };

/* What a mixture's products ask for; row r's experts have the highest logits: first[r], then that and one. */
static struct emu_counts count_experts(const struct kn_ops *o, const struct form *f, const int *first, int n_rows,
				       const char *kernel)
{
	struct kn_backend *b = open_counted(o);
	struct matrix m[2] = {make_matrix(f->type, FF, WIDTH), make_matrix(KN_F16, WIDTH, FF)};
	struct kn_weight w[3][EXPERTS];
	struct kn_experts e = {
	    .route = {.n = EXPERTS, .n_used = USED, .scale = 1}, .gate = w[0], .up = w[1], .down = w[2]};
	for (int i = 0; i < 3 * EXPERTS; i++)
		w[i / EXPERTS][i % EXPERTS] = load(o, b, &m[i / EXPERTS / 2]);
	struct kn_step s = {.n_rows = n_rows};
	float *logits = random_floats(o, b, (size_t)(n_rows * EXPERTS));
	float *x = random_floats(o, b, (size_t)(n_rows * WIDTH)), *y = guarded(o, b, (size_t)(n_rows * WIDTH));
	float *work = guarded(o, b, (size_t)n_rows * kn_experts_work(&e));
	for (int r = 0; r < n_rows; r++)
		for (int k = 0; k < USED; k++)
			logits[r * EXPERTS + first[r] + k] = (float)(8 - k);
	count(true);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->experts(b, &e, logits, x, n_rows, work, y), 0);
	assert_int_equal(o->step_end(b), 0);
	struct emu_counts c = counted(kernel);
	count(false);
	float *all[] = {logits, x, y, work};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	for (int i = 0; i < 3 * EXPERTS; i++)
		o->weight_free(b, &w[i / EXPERTS][i % EXPERTS]);
	drop_matrix(&m[0]);
	drop_matrix(&m[1]);
	o->close(b);
	return c;
}

/* Bytes of an expert's matrices. */
static uint64_t expert_bytes(const struct form *f)
{
	return 2 * (uint64_t)(parts_of(FF, OUTS) * parts_of(WIDTH, CHUNK) * f->pieces * PIECE) +
	       (uint64_t)(parts_of(WIDTH, OUTS) * parts_of(FF, CHUNK) * forms[0].pieces * PIECE);
}

/* The weights of experts that some row uses are read once, of those that none uses not at all; of rows that one group
 * does not take, once for each group. Blocks: of as many groups as there might be. */
static void test_experts(void **arg)
{
	(void)arg;
	static const int few[] = {1, 4, 1, 0}, many[40] = {[38] = 2, [39] = 4}; /* five, and all */
	const struct kn_ops *o = open_cuda();
	for (int t = 1; t < N(forms); t += 2) {
		const struct form *f = &forms[t];
		struct emu_counts c = count_experts(o, f, few, N(few), "matvec_");
		assert_int_equal(c.launches, 2);
		assert_int_equal(c.once_bytes, 5 * expert_bytes(f));
		assert_int_equal(c.blocks, (6 + 0) * (2 * parts_of(FF, OUTS) + parts_of(WIDTH, OUTS)));
		/* Of the first two 38 rows: two groups each of at most 32. */
		c = count_experts(o, f, many, N(many), "mma_grouped");
		assert_int_equal(c.launches, 2);
		assert_int_equal(c.once_bytes, (2 + 2 + 4) * expert_bytes(f));
	}
}

/* ---- attention ---- */

enum { PAGE = 16, PAGES = 48, GROUP = 4 };

/* n rows of one sequence that end at position last. */
static struct emu_counts count_attention(const struct kn_ops *o, int type, int head_dim, int last, int n)
{
	struct kn_backend *b = open_counted(o);
	struct kn_kv kv = {
	    .type = type, .n_pages = PAGES, .page_tokens = PAGE, .n_layers = 1, .n_kv_heads = 1, .head_dim = head_dim};
	size_t bytes = PAGES * kn_kv_head_bytes(type, PAGE, head_dim), q_size = (size_t)n * GROUP * (size_t)head_dim;
	int32_t pos[MOST_ROWS], seq[MOST_ROWS] = {0}, table[PAGES];
	struct kn_attn how = {.scale = 0.1f, .q_row = GROUP * head_dim};
	float *q = random_floats(o, b, q_size), *out = guarded(o, b, q_size);
	assert_int_equal(o->mem_alloc(b, bytes, &kv.k), 0);
	assert_int_equal(o->mem_alloc(b, bytes, &kv.v), 0);
	for (int i = 0; i < PAGES; i++)
		table[i] = PAGES - 1 - i;
	for (int i = 0; i < n; i++)
		pos[i] = last - n + 1 + i;
	struct kn_step s = {
	    .n_rows = n, .row_pos = pos, .row_seq = seq, .n_seqs = 1, .page_table = table, .max_pages = PAGES};
	count(true);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->attention(b, q, GROUP, &kv, 0, &how, out), 0);
	assert_int_equal(o->step_end(b), 0);
	struct emu_counts c = counted("attend_");
	count(false);
	drop(o, b, q);
	drop(o, b, out);
	o->mem_free(b, kv.k);
	o->mem_free(b, kv.v);
	o->close(b);
	return c;
}

/* One row reads each key and value that it sees once, with the scales of those that have them, for all heads of the
 * group; 64 queries of a prompt do the same together. No bank meets another. */
static void test_attention(void **arg)
{
	(void)arg;
	enum { SEEN = 640 };
	static const struct {
		int type, bytes, scale;
	} pools[] = {{KN_F16, 2, 0}, {KN_BF16, 2, 0}, {KN_KV_Q8, 1, 4}};
	static const int dims[] = {64, 128, 256};
	const struct kn_ops *o = open_cuda();
	for (int t = 0; t < N(pools); t++)
		for (int d = 0; d < N(dims); d++) {
			uint64_t position = 2 * (uint64_t)(dims[d] * pools[t].bytes + pools[t].scale);
			struct emu_counts one = count_attention(o, pools[t].type, dims[d], SEEN - 1, 1);
			assert_int_equal(one.async_bytes, SEEN * position);
			assert_int_equal(one.shared_turns, one.shared_groups);
			for (int processors = 0; processors <= 2; processors += 2) {
				assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", processors));
				struct emu_counts tile = count_attention(o, pools[t].type, dims[d], SEEN - 1, 16);
				assert_int_equal(tile.async_bytes, SEEN * position);
				assert_int_equal(tile.shared_turns, tile.shared_groups);
			}
		}
}

/* ---- draws ---- */

/* The largest takes one atomic, for its id; where the lanes of a warp have logits in bins of their own, none of a
 * histogram's meet; its sums are added up without banks that meet. top_k: of more elements than are listed. */
static void test_draws(void **arg)
{
	(void)arg;
	enum { VOCAB = 4096 };
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_counted(o);
	float *logits = guarded(o, b, VOCAB);
	struct kn_draw draws[2] = {{.temperature = 0, .top_p = 1}, {.temperature = 1, .top_p = 1, .top_k = 2000}};
	struct kn_step s = {.n_rows = 1};
	for (int i = 0; i < VOCAB; i++)
		logits[i] = (float)-(i / 4 % 32) * 0.5f - (float)i * 1e-6f;
	for (int k = 0; k < 2; k++) {
		struct kn_drawn drawn;
		count(true);
		assert_int_equal(o->step_begin(b, &s), 0);
		assert_int_equal(o->sample(b, logits, VOCAB, &draws[k], 1, &drawn), 0);
		assert_int_equal(o->step_end(b), 0);
		struct emu_counts c = counted("sample");
		count(false);
		assert_true(drawn.id == 0 || k == 1);
		assert_int_equal(c.atomic_turns, c.atomics);
		assert_int_equal(c.shared_turns, c.shared_groups);
		if (k == 0)
			assert_int_equal(c.atomics, 1);
		else
			assert_true(c.shared_groups > 0 && c.atomics > 2 * (uint64_t)VOCAB / 32);
	}
	drop(o, b, logits);
	o->close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_few_rows),  cmocka_unit_test(test_many_rows), cmocka_unit_test(test_experts),
	    cmocka_unit_test(test_attention), cmocka_unit_test(test_draws),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
