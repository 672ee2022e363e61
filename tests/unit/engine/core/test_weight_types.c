/* SPDX-License-Identifier: Apache-2.0
 *
 * What each type of weights does to a model's logits, on every backend: a model with random weights is written in the
 * type and compared with a pass in double precision over the very same weights (what the backend's arithmetic loses),
 * and that with one over the floats they were made of (what the type loses). Errors are root mean squares, as a part of
 * the logits' spread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "tests/kernels/eight_bits.h"
#include "tests/support/backends.h"
#include "tests/support/oracle.h"
#include "tests/support/short_spins.h"

enum { N = 32, PAGE = 16, N_PAGES = N / PAGE, VOCAB = 512, EMBD = 256, LAYERS = 2 };
static const int want[] = {0, 15, N - 1};
enum { N_WANT = sizeof want / sizeof *want, N_LOGITS = N_WANT * VOCAB };

/* What a type may lose of a model of random weights: of what its steps say it loses, a little more for what comes
 * after. */
static const struct {
	const char *name;
	int type;
	double most;
} types[] = {{"f32", KN_F32, 0},         {"f16", KN_F16, 2e-3},    {"bf16", KN_BF16, 1e-2}, {"q8_0", KN_Q8_0, 2e-2},
	     {"q6_k", KN_Q6_K, 6e-2},    {"q5_k", KN_Q5_K, 0.12},  {"q5_1", KN_Q5_1, 0.12}, {"q5_0", KN_Q5_0, 0.15},
	     {"q4_k", KN_Q4_K, 0.25},    {"q4_1", KN_Q4_1, 0.25},  {"q4_0", KN_Q4_0, 0.3},  {"iq4_nl", KN_IQ4_NL, 0.25},
	     {"iq4_xs", KN_IQ4_XS, 0.3}, {"mxfp4", KN_MXFP4, 0.4}, {"q3_k", KN_Q3_K, 0.5},  {"q2_k", KN_Q2_K, 1.0}};

static int tokens[N];
static char path[] = "/tmp/sluice-weights-XXXXXX";

static void write_model(const char *type)
{
	struct sl_err err = {0};
	struct convert_progress p = {0};
	struct random_model r = {.path = path, .name = "random", .seed = 11, .n_threads = 2};
	if (random_shape_find("tiny-mistral", &r.arch, &err) != 0 || weight_plan_parse(type, &r.plan, &err) != 0 ||
	    random_model_write(&r, &p, &err) != 0)
		fail_msg("%s", err.text);
}

/* The file's weights, in double precision. */
static void exact(double logits[N_LOGITS])
{
	double freq[32];
	struct sl_err err = {0};
	struct model_file *f;
	for (int i = 0; i < 32; i++)
		freq[i] = exp(-log(1e6) * 2 * i / 64);
	const struct oracle m = {.n_layers = LAYERS,
				 .n_embd = EMBD,
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
	assert_int_equal(model_file_open(path, &f, &err), 0);
	oracle_logits(&m, f, tokens, N, want, N_WANT, logits);
	model_file_close(f);
}

static void forward(const struct kn_ops *ops, float logits[N_LOGITS])
{
	struct sl_err err = {0};
	struct kn_config kc = {.n_threads = 2, .max_rows = N, .max_width = 1024};
	short_spins();
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int32_t pages[N_PAGES], token[N], pos[N], seq[N] = {0};
	assert_int_equal(ops->open(&kc, &b, &err), 0);
	if (model_load(path, ops, b, N, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(m)->arch;
	assert_int_equal(
	    kv_pool_create(ops, b, KN_F32, N_PAGES, PAGE, a->n_layers, a->n_kv_heads, a->head_dim, &pool, &err), 0);
	for (int i = 0; i < N_PAGES; i++)
		pages[i] = i;
	for (int i = 0; i < N; i++) {
		token[i] = tokens[i];
		pos[i] = i;
	}
	struct kn_step s = {.n_rows = N,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = pages,
			    .max_pages = N_PAGES};
	assert_int_equal(model_forward(m, &s, kv_pool_layout(pool), want, N_WANT, logits), 0);
	kv_pool_destroy(pool);
	model_free(m);
	ops->close(b);
}

/* NaN where a number is none. */
static double off_by(const double *got, const double *expected)
{
	double diff = 0, sum = 0, squares = 0;
	for (int i = 0; i < N_LOGITS; i++) {
		diff += (got[i] - expected[i]) * (got[i] - expected[i]);
		sum += expected[i];
		squares += expected[i] * expected[i];
	}
	return sqrt(diff / (squares - sum * sum / N_LOGITS));
}

static void test_types(void **state)
{
	static double floats[N_LOGITS], expected[N_LOGITS], got[N_LOGITS];
	static float logits[N_LOGITS];
	(void)state;
	for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
		write_model(types[t].name);
		exact(t == 0 ? floats : expected);
		if (t == 0)
			memcpy(expected, floats, sizeof expected);
		double type_off = off_by(expected, floats);
		print_message("%-6s of the floats' logits %.2e; of its own:", types[t].name, type_off);
		for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
			/* In a layer: queries, keys and values; output; gate and up; down. And the head. */
			double most = fmax(rounding_share(*o, types[t].type, 4 * LAYERS + 1), 1e-4);
			forward(*o, logits);
			for (int i = 0; i < N_LOGITS; i++)
				got[i] = (double)logits[i];
			double off = off_by(got, expected);
			print_message(" %s %.2e", (*o)->name, off);
			if (!(off <= most))
				fail_msg("%s on %s: logits are off by %.3g, at most %.3g", types[t].name, (*o)->name,
					 off, most);
		}
		print_message("\n");
		if (!(type_off <= types[t].most) || (types[t].most > 0 && type_off < types[t].most / 20))
			fail_msg("%s: logits are off by %.3g for the type, at most %.3g", types[t].name, type_off,
				 types[t].most);
	}
}

static int setup(void **state)
{
	(void)state;
	uint64_t x = 5;
	for (int i = 0; i < N; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		tokens[i] = (int)((x >> 33) % VOCAB);
	}
	int fd = mkstemp(path);
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_types)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
