/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer that drafts (engine/model/draft_head.h) against the same in float64, on every backend: the tokens after
 * those of a text, by the model's hidden rows, and those that it makes of its own results. The text comes in chunks,
 * and is longer than the rows that are kept, so the layer begins in the middle of it. Bits do not depend on the other
 * rows of its steps, or on how many of them it gets at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "engine/kv/kv.h"
#include "engine/model/draft_head.h"
#include "tests/support/backends.h"
#include "tests/support/oracle.h"
#include "tests/support/random_file.h"

#define TOLERANCE 1e-4

enum { VOCAB = 512, WIDTH = 256, PAGE = 16, N = 45, FIRST = N - DRAFT_HEAD_ROWS, CHAIN = 3, SLOTS = 2, PAGES = 4 };

static const char name[] = "model.gguf";
static char path[256];
static int tokens[N + CHAIN + 1];
static double freq[64];

static struct oracle described(const char *shape)
{
	bool mixes = strcmp(shape, "tiny-glm4moe") == 0;
	struct oracle m = {.n_layers = mixes ? 3 : 2,
			   .n_embd = WIDTH,
			   .n_heads = 4,
			   .n_kv = 2,
			   .head_dim = 64,
			   .n_ff = 512,
			   .n_vocab = VOCAB,
			   .eps = 1e-5,
			   .embed_scale = 1,
			   .score_scale = 0.125,
			   .freq = freq,
			   .magnitude = 1};
	if (mixes) {
		m.n_experts = 8;
		m.n_used = 3;
		m.n_ff_expert = m.n_ff_shared = 192;
		m.n_dense = 1;
		m.weight_scale = 1.5;
		m.turned = 32;
		m.halves = m.bias = m.qk_norm = m.norm_is_post = m.sigmoid = m.normed_weights = true;
	}
	int turned = mixes ? 32 : 64;
	for (int i = 0; i < turned / 2; i++)
		freq[i] = exp(-log(1e6) * 2 * i / turned);
	return m;
}

/* ---- in float64 ---- */

static void joined(const struct oracle *m, const struct model_file *f, const double *embed, const double *hidden,
		   double *out)
{
	double *e_gain = oracle_tensor(f, m->n_layers, "nextn.enorm.weight", WIDTH);
	double *h_gain = oracle_tensor(f, m->n_layers, "nextn.hnorm.weight", WIDTH);
	double *w = oracle_tensor(f, m->n_layers, "nextn.eh_proj.weight", 2 * WIDTH * WIDTH), both[2 * WIDTH];
	oracle_norm(embed, e_gain, WIDTH, m->eps, both);
	oracle_norm(hidden, h_gain, WIDTH, m->eps, both + WIDTH);
	oracle_product(w, both, WIDTH, 2 * WIDTH, out);
	free(e_gain);
	free(h_gain);
	free(w);
}

/* Logits of the layer's rows FIRST … N - 1 of the text, and of CHAIN more: [..][VOCAB]. */
static void expect(const struct oracle *m, const struct model_file *f, double *logits)
{
	enum { ROWS = N - FIRST + CHAIN };
	static double x[N][WIDTH], hidden[ROWS][WIDTH], in[ROWS][WIDTH], out[ROWS][WIDTH];
	double *embed = oracle_tensor(f, -1, "token_embd.weight", (size_t)VOCAB * WIDTH);
	double *head = oracle_tensor(f, -1, "output.weight", (size_t)VOCAB * WIDTH);
	double *gain = oracle_tensor(f, -1, "output_norm.weight", WIDTH);
	double *last = oracle_tensor(f, m->n_layers, "nextn.shared_head_norm.weight", WIDTH);
	for (int t = 0; t < N; t++)
		memcpy(x[t], embed + (size_t)tokens[t] * WIDTH, sizeof x[t]);
	for (int l = 0; l < m->n_layers; l++)
		oracle_layer(m, f, l, x[0], N, NULL);
	for (int i = 0; i < N - FIRST; i++)
		oracle_norm(x[FIRST + i], gain, WIDTH, m->eps, hidden[i]);
	for (int n = N - FIRST; n <= ROWS; n++) {
		for (int i = n == N - FIRST ? 0 : n - 1; i < n; i++)
			joined(m, f, embed + (size_t)tokens[FIRST + i + 1] * WIDTH, hidden[i], in[i]);
		memcpy(out, in, sizeof out);
		oracle_layer(m, f, m->n_layers, out[0], n, NULL);
		for (int i = n == N - FIRST ? 0 : n - 1; i < n; i++) {
			double y[WIDTH];
			oracle_norm(out[i], last, WIDTH, m->eps, y);
			oracle_product(head, y, VOCAB, WIDTH, logits + (size_t)i * VOCAB);
			if (i == n - 1 && n < ROWS)
				memcpy(hidden[n], y, sizeof y);
		}
	}
	free(embed);
	free(head);
	free(gain);
	free(last);
}

/* ---- by a backend ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool, *own;
	int32_t pages[SLOTS * PAGES];
};

static bool bench_open(struct bench *x, const struct kn_ops *ops)
{
	struct sl_err err = {0};
	const struct kn_config kc = {.n_threads = 2, .max_rows = 2 * N, .max_width = 1024, .pad_rows = true};
	const struct model_how how = {.drafts = true};
	*x = (struct bench){.ops = ops};
	assert_int_equal(ops->open(&kc, &x->b, &err), 0);
	if (model_load_as(path, &how, ops, x->b, 2 * N, 0, &x->m, &err) != 0)
		fail_msg("%s: %s", ops->name, err.text);
	const struct model_arch *a = &model_info(x->m)->arch;
	struct kn_kv layout = model_kv_layout(a, KN_F32, PAGE, a->n_layers);
	layout.n_pages = SLOTS * PAGES;
	assert_int_equal(kv_pool_make(ops, x->b, &layout, &x->pool, &err), 0);
	layout.n_layers = 1;
	assert_int_equal(kv_pool_make(ops, x->b, &layout, &x->own, &err), 0);
	assert_true(draft_head_is_here(x->m));
	assert_int_equal(draft_head_make_rows(x->m, SLOTS, &err), 0);
	for (int i = 0; i < SLOTS * PAGES; i++)
		x->pages[i] = (i * 3 + 1) % (SLOTS * PAGES);
	return true;
}

static void bench_close(struct bench *x)
{
	kv_pool_destroy(x->pool);
	kv_pool_destroy(x->own);
	model_free(x->m);
	x->ops->close(x->b);
}

static struct kn_step step_of(struct bench *x, int n, const int32_t *token, const int32_t *pos, const int32_t *seq)
{
	return (struct kn_step){.n_rows = n,
				.row_token = token,
				.row_pos = pos,
				.row_seq = seq,
				.n_seqs = SLOTS,
				.page_table = x->pages,
				.max_pages = PAGES};
}

/* The model reads the text of a slot in chunks, and its hidden rows are kept. */
static void read_text(struct bench *x, int slot, int chunk)
{
	int32_t token[N], pos[N], seq[N];
	for (int from = 0; from < N; from += chunk) {
		int n = from + chunk < N ? chunk : N - from;
		for (int i = 0; i < n; i++) {
			token[i] = tokens[from + i];
			pos[i] = from + i;
			seq[i] = slot;
		}
		struct kn_step s = step_of(x, n, token, pos, seq);
		assert_int_equal(model_forward(x->m, &s, kv_pool_layout(x->pool), NULL, 0, NULL), 0);
		assert_int_equal(draft_head_keep(x->m, 0, n, slot, (uint32_t)from), 0);
	}
}

/* The layer's rows of all slots, `chunk` of each a step, then the chain; logits as expect's. */
static void follow(struct bench *x, int n_slots, int chunk, float *logits)
{
	enum { ROWS = N - FIRST };
	static float made[SLOTS * ROWS * VOCAB];
	int32_t token[SLOTS * ROWS], pos[SLOTS * ROWS], seq[SLOTS * ROWS], from[SLOTS * ROWS], want[SLOTS * ROWS];
	for (int at = 0; at < ROWS + CHAIN;) {
		int n = at >= ROWS ? 1 : at + chunk < ROWS ? chunk : ROWS - at, row = 0;
		for (int slot = 0; slot < n_slots; slot++)
			for (int i = 0; i < n; i++, row++) {
				int p = FIRST + at + i;
				token[row] = tokens[p + 1];
				pos[row] = at + i;
				seq[row] = slot;
				/* The last wanted row of the step before was the slot's last one. */
				from[row] = at < ROWS ? slot * DRAFT_HEAD_ROWS + p % DRAFT_HEAD_ROWS : slot;
				want[row] = row;
			}
		/* Of the last one of the text, and of the chain, only the last rows go on. */
		bool last = at + n >= ROWS;
		struct kn_step s = step_of(x, row, token, pos, seq);
		if (at < ROWS && last) { /* all logits first, then those rows again, alone */
			assert_int_equal(
			    draft_head_forward(x->m, &s, kv_pool_layout(x->own), from, false, want, row, made), 0);
			memcpy(logits + (size_t)at * VOCAB, made, (size_t)n * VOCAB * sizeof *made);
			for (int slot = 0; slot < n_slots; slot++)
				want[slot] = slot * n + n - 1;
			assert_int_equal(
			    draft_head_forward(x->m, &s, kv_pool_layout(x->own), from, false, want, n_slots, made), 0);
			assert_memory_equal(made, logits + (size_t)(at + n - 1) * VOCAB, VOCAB * sizeof *made);
		} else {
			assert_int_equal(
			    draft_head_forward(x->m, &s, kv_pool_layout(x->own), from, at >= ROWS, want, row, made), 0);
			memcpy(logits + (size_t)at * VOCAB, made, (size_t)n * VOCAB * sizeof *made);
		}
		/* The slots say the same. */
		size_t rows = at < ROWS && last ? 1 : (size_t)n;
		for (int slot = 1; slot < n_slots; slot++)
			assert_memory_equal(made + (size_t)slot * rows * VOCAB, made, rows * VOCAB * sizeof *made);
		at += n;
	}
}

static double error_of(const float *got, const double *expected, size_t n)
{
	double diff = 0, size = 0;
	for (size_t i = 0; i < n; i++) {
		diff = fmax(diff, fabs((double)got[i] - expected[i]));
		size = fmax(size, fabs(expected[i]));
	}
	return diff / size;
}

static void as_in_float64(void **state)
{
	(void)state;
	enum { ROWS = N - FIRST + CHAIN };
	static const char *const shapes[] = {"tiny-mistral", "tiny-glm4moe"};
	static float logits[ROWS * VOCAB], again[ROWS * VOCAB];
	static double expected[ROWS * VOCAB];
	md_path(path, dir, name);
	for (int i = 0; i < N + CHAIN + 1; i++)
		tokens[i] = (i * 37 + i * i * 5) % VOCAB;
	for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
		struct model_arch a = random_arch(shapes[c]);
		struct oracle m = described(shapes[c]);
		struct model_file *f;
		struct sl_err err = {0};
		a.n_drafting = 1;
		random_file_of(name, &a, "f32", 11, 2);
		assert_int_equal(model_file_open(path, &f, &err), 0);
		expect(&m, f, expected);
		model_file_close(f);
		for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
			struct bench x;
			if (a.experts.n > 0 && (*o)->experts == NULL)
				continue;
			bench_open(&x, *o);
			read_text(&x, 0, N);
			follow(&x, 1, N, logits);
			double error = error_of(logits, expected, sizeof logits / sizeof *logits);
			print_message("%s on %s: relative error %.2g\n", shapes[c], (*o)->name, error);
			if (!(error < TOLERANCE))
				fail_msg("%s on %s: relative error %g", shapes[c], (*o)->name, error);
			read_text(&x, 0, 7);
			read_text(&x, 1, 1);
			follow(&x, 2, 5, again);
			assert_memory_equal(again, logits, sizeof logits);
			bench_close(&x);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(as_in_float64, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
