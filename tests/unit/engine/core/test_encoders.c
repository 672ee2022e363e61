/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of BERT's line against a forward pass in double, written here from the papers: a whole text at once, no
 * pages, no blocks. Vectors by each pooling and scores of a head, at random weights, on every backend: the relative
 * error stays under 1e-4, and the ranks of 200 pairs are the same. And the same bits for a text alone and beside
 * others.
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
#include "tests/support/backends.h"
#include "tests/support/oracle.h"
#include "tests/support/short_spins.h"

enum { WIDTH = 256, HEADS = 4, DIM = 64, FF = 512, LAYERS = 2, VOCAB = 512, MOST = 72, PAGE = 16 };
enum { N_PAIRS = 200, N_SLOW = 40, PAIR_TOKENS = 8, SLOTS = 3, PAGES_EACH = (MOST + PAGE - 1) / PAGE };
#define TOLERANCE 1e-4

static char path[] = "/tmp/sluice-encoders-XXXXXX";
static int32_t tokens[MOST];

/* ---- the reference ---- */

static void norm(double *x, const double *gain, const double *bias)
{
	double mean = 0, square = 0;
	for (int i = 0; i < WIDTH; i++)
		mean += x[i] / WIDTH;
	for (int i = 0; i < WIDTH; i++)
		square += (x[i] - mean) * (x[i] - mean) / WIDTH;
	for (int i = 0; i < WIDTH; i++)
		x[i] = (x[i] - mean) / sqrt(square + 1e-12) * gain[i] + bias[i];
}

/* Tensors in double, each brought once: the reference asks for one at every row. Until forget(). */
static struct {
	char name[64];
	double *values; /* NULL: the file has none of that name */
} known[80];
static int n_known;

static double *find(const struct model_file *f, int layer, const char *what, size_t n)
{
	char name[64];
	snprintf(name, sizeof name, "%d.%s", layer, what);
	for (int i = 0; i < n_known; i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].values;
	assert_true(n_known < (int)(sizeof known / sizeof *known));
	snprintf(known[n_known].name, sizeof known[n_known].name, "%s", name);
	known[n_known].values = oracle_tensor(f, layer, what, n);
	return known[n_known++].values;
}

static void forget(void)
{
	while (n_known > 0)
		free(known[--n_known].values);
}

static double *need(const struct model_file *f, int layer, const char *what, size_t n)
{
	double *t = find(f, layer, what, n);
	if (t == NULL)
		fail_msg("no tensor %s", what);
	return t;
}

/* y = w x + bias, where there is one. */
static void linear(const struct model_file *f, int layer, const char *name, const double *x, int n_out, int n_in,
		   double *y)
{
	char full[48];
	snprintf(full, sizeof full, "%s.weight", name);
	const double *w = need(f, layer, full, (size_t)n_out * (size_t)n_in);
	snprintf(full, sizeof full, "%s.bias", name);
	const double *bias = find(f, layer, full, (size_t)n_out);
	oracle_product(w, x, n_out, n_in, y);
	for (int i = 0; i < n_out && bias != NULL; i++)
		y[i] += bias[i];
}

static void norm_rows(const struct model_file *f, int layer, const char *name, double (*x)[WIDTH], int n)
{
	char full[48];
	snprintf(full, sizeof full, "%s.weight", name);
	double *gain = need(f, layer, full, WIDTH);
	snprintf(full, sizeof full, "%s.bias", name);
	double *bias = need(f, layer, full, WIDTH);
	for (int r = 0; r < n; r++)
		norm(x[r], gain, bias);
}

static void turn(double *head, int pos)
{
	for (int i = 0; i < DIM / 2; i++) {
		double angle = pos * pow(1000, -2.0 * i / DIM), a = head[i], b = head[i + DIM / 2];
		head[i] = a * cos(angle) - b * sin(angle);
		head[i + DIM / 2] = a * sin(angle) + b * cos(angle);
	}
}

static void attend(double (*q)[WIDTH], double (*k)[WIDTH], double (*v)[WIDTH], int n, double (*out)[WIDTH])
{
	static double score[MOST];
	for (int r = 0; r < n; r++)
		for (int h = 0; h < HEADS; h++) {
			double most = -INFINITY, sum = 0;
			for (int p = 0; p < n; p++) {
				score[p] = 0;
				for (int d = 0; d < DIM; d++)
					score[p] += q[r][h * DIM + d] * k[p][h * DIM + d] / 8;
				most = fmax(most, score[p]);
			}
			for (int p = 0; p < n; p++)
				sum += score[p] = exp(score[p] - most);
			for (int d = 0; d < DIM; d++) {
				out[r][h * DIM + d] = 0;
				for (int p = 0; p < n; p++)
					out[r][h * DIM + d] += score[p] / sum * v[p][h * DIM + d];
			}
		}
}

static void project(const struct model_file *f, int layer, bool turns, double (*x)[WIDTH], int n, double (*q)[WIDTH],
		    double (*k)[WIDTH], double (*v)[WIDTH])
{
	static double all[3 * WIDTH];
	for (int r = 0; r < n; r++) {
		if (turns) {
			linear(f, layer, "attn_qkv", x[r], 3 * WIDTH, WIDTH, all);
			memcpy(q[r], all, sizeof q[r]);
			memcpy(k[r], all + WIDTH, sizeof k[r]);
			memcpy(v[r], all + 2 * WIDTH, sizeof v[r]);
			for (int h = 0; h < HEADS; h++) {
				turn(q[r] + h * DIM, r);
				turn(k[r] + h * DIM, r);
			}
			continue;
		}
		linear(f, layer, "attn_q", x[r], WIDTH, WIDTH, q[r]);
		linear(f, layer, "attn_k", x[r], WIDTH, WIDTH, k[r]);
		linear(f, layer, "attn_v", x[r], WIDTH, WIDTH, v[r]);
	}
}

static void feed_forward(const struct model_file *f, int layer, bool gated, const double *x, double *y)
{
	static double up[FF], gate[FF];
	linear(f, layer, "ffn_up", x, FF, WIDTH, up);
	if (gated)
		linear(f, layer, "ffn_gate", x, FF, WIDTH, gate);
	for (int i = 0; i < FF; i++)
		up[i] = gated ? gate[i] / (1 + exp(-gate[i])) * up[i] : up[i] / 2 * (1 + erf(up[i] / sqrt(2)));
	linear(f, layer, "ffn_down", up, WIDTH, FF, y);
}

/* The rows of a text behind the last layer. n_first: of the first type. */
static void reference(const struct model_file *f, const int32_t *ids, int n, int n_first, double (*x)[WIDTH])
{
	static double q[MOST][WIDTH], k[MOST][WIDTH], v[MOST][WIDTH], out[MOST][WIDTH], y[WIDTH];
	bool turns = model_file_find(f, "position_embd.weight") == NULL;
	double *embed = need(f, -1, "token_embd.weight", VOCAB * WIDTH),
	       *types = need(f, -1, "token_types.weight", 2 * WIDTH);
	double *positions = turns ? NULL : need(f, -1, "position_embd.weight", 256 * WIDTH);
	for (int r = 0; r < n; r++)
		for (int i = 0; i < WIDTH; i++)
			x[r][i] = embed[ids[r] * WIDTH + i] + types[(r >= n_first) * WIDTH + i] +
				  (turns ? 0 : positions[r * WIDTH + i]);
	norm_rows(f, -1, "token_embd_norm", x, n);
	for (int layer = 0; layer < LAYERS; layer++) {
		project(f, layer, turns, x, n, q, k, v);
		attend(q, k, v, n, out);
		for (int r = 0; r < n; r++) {
			linear(f, layer, "attn_output", out[r], WIDTH, WIDTH, y);
			for (int i = 0; i < WIDTH; i++)
				x[r][i] += y[i];
		}
		norm_rows(f, layer, "attn_output_norm", x, n);
		for (int r = 0; r < n; r++) {
			feed_forward(f, layer, turns, x[r], y);
			for (int i = 0; i < WIDTH; i++)
				x[r][i] += y[i];
		}
		norm_rows(f, layer, "layer_output_norm", x, n);
	}
}

static double reference_score(const struct model_file *f, const double *row)
{
	double dense[WIDTH], score;
	linear(f, -1, "cls", row, WIDTH, WIDTH, dense);
	for (int i = 0; i < WIDTH; i++)
		dense[i] = tanh(dense[i]);
	linear(f, -1, "cls.output", dense, 1, WIDTH, &score);
	return score;
}

/* ---- the engine's own ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int32_t pages[SLOTS * PAGES_EACH];
};

static void bench_open(struct bench *x, const struct kn_ops *ops, const char *pooling, int n_threads)
{
	struct sl_err err = {0};
	struct kn_config kc = {.n_threads = n_threads, .max_rows = SLOTS * MOST, .max_width = 1024};
	short_spins();
	const struct model_how how = {.pooling = pooling};
	x->ops = ops;
	assert_int_equal(ops->open(&kc, &x->b, &err), 0);
	if (model_load_as(path, &how, ops, x->b, SLOTS * MOST, 0, &x->m, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(
	    kv_pool_create(ops, x->b, KN_F32, SLOTS * PAGES_EACH, PAGE, LAYERS, HEADS, DIM, &x->pool, &err), 0);
	for (int i = 0; i < SLOTS * PAGES_EACH; i++)
		x->pages[i] = (i * 7 + 3) % (SLOTS * PAGES_EACH);
}

static void bench_close(struct bench *x)
{
	kv_pool_destroy(x->pool);
	model_free(x->m);
	x->ops->close(x->b);
}

struct text {
	const int32_t *ids;
	int n, n_first;
};

/* Texts in one step, in the slots from `slot` on; out [n_texts][width]. */
static void compute(struct bench *x, const struct text *texts, int n_texts, int slot, float *out)
{
	static int32_t token[SLOTS * MOST], pos[SLOTS * MOST], seq[SLOTS * MOST], type[SLOTS * MOST],
	    sees[SLOTS * MOST];
	struct model_text pooled[SLOTS];
	int rows = 0;
	for (int t = 0; t < n_texts; t++) {
		pooled[t] = (struct model_text){
		    .at = {.row = rows, .n_rows = texts[t].n, .slot = slot + t, .begins = true}, .ends = true};
		for (int i = 0; i < texts[t].n; i++, rows++) {
			token[rows] = texts[t].ids[i];
			pos[rows] = i;
			seq[rows] = slot + t;
			type[rows] = i >= texts[t].n_first;
			sees[rows] = texts[t].n;
		}
	}
	struct kn_step s = {.n_rows = rows,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .row_type = type,
			    .row_sees = sees,
			    .n_seqs = SLOTS,
			    .page_table = x->pages,
			    .max_pages = PAGES_EACH};
	const struct model_pooling p = {.texts = pooled, .n = n_texts, .out = out};
	assert_int_equal(model_forward_pool(x->m, &s, kv_pool_layout(x->pool), &p), 0);
}

static void write_model(const char *shape)
{
	struct sl_err err = {0};
	struct convert_progress p = {0};
	struct random_model r = {.path = path, .name = "random", .seed = 11, .n_threads = 2};
	if (random_shape_find(shape, &r.arch, &err) != 0 || weight_plan_parse("f32", &r.plan, &err) != 0 ||
	    random_model_write(&r, &p, &err) != 0)
		fail_msg("%s", err.text);
}

/* What a pooling makes of rows. */
static void pool(const char *pooling, double (*x)[WIDTH], int n, double *out)
{
	for (int i = 0; i < WIDTH; i++) {
		out[i] = 0;
		if (strcmp(pooling, "mean") != 0)
			out[i] = x[strcmp(pooling, "last") == 0 ? n - 1 : 0][i];
		for (int r = 0; r < n && strcmp(pooling, "mean") == 0; r++)
			out[i] += x[r][i];
	}
}

static void check_vectors(const char *shape, const char *pooling)
{
	static double x[MOST][WIDTH], want[3][WIDTH];
	static const struct text texts[] = {{tokens, MOST, 45}, {tokens + 7, 1, 1}, {tokens + 3, 33, 33}};
	static float got[3 * WIDTH], alone[WIDTH];
	struct model_file *f;
	struct sl_err err;
	write_model(shape);
	assert_int_equal(model_file_open(path, &f, &err), 0);
	for (int t = 0; t < 3; t++) {
		reference(f, texts[t].ids, texts[t].n, texts[t].n_first, x);
		pool(pooling, x, texts[t].n, want[t]);
	}
	for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
		struct bench b;
		double worst = 0;
		bench_open(&b, *o, pooling, 2);
		compute(&b, texts, 3, 0, got);
		for (int t = 0; t < 3; t++) {
			double size = 0;
			for (int i = 0; i < WIDTH; i++)
				size = fmax(size, fabs(want[t][i]));
			for (int i = 0; i < WIDTH; i++)
				worst = fmax(worst, fabs((double)got[t * WIDTH + i] - want[t][i]) / size);
			/* Alone, in another slot: the same bits, but for the reference, which has one order too. */
			compute(&b, &texts[t], 1, 2 - t, alone);
			assert_memory_equal(alone, got + t * WIDTH, sizeof alone);
		}
		if (!(worst < TOLERANCE))
			fail_msg("%s, %s on %s: relative error %g", shape, pooling, (*o)->name, worst);
		bench_close(&b);
	}
	forget();
	model_file_close(f);
}

static void vectors_are_the_reference(void **state)
{
	(void)state;
	check_vectors("tiny-bert", "cls");
	check_vectors("tiny-bert", "mean");
	check_vectors("tiny-bert", "last");
	check_vectors("tiny-nomic-bert", "mean");
}

static const double *compared;

static int by_score(const void *pa, const void *pb)
{
	double a = compared[*(const int *)pa], b = compared[*(const int *)pb];
	return a > b ? -1 : a < b;
}

/* Five tokens that all pairs begin with, then others. */
static void make_pair(int p, int32_t *ids)
{
	for (int i = 0; i < PAIR_TOKENS; i++)
		ids[i] = i < 5 ? tokens[i] : (int32_t)((p * 131 + i * 71) % VOCAB);
}

/* Of 200 pairs: scores within the bound, and in the same order. Backends that are slow get a few. */
static void scores_are_the_reference(void **state)
{
	static double x[MOST][WIDTH], want[N_PAIRS], got[N_PAIRS];
	static int order[2][N_PAIRS];
	static int32_t ids[PAIR_TOKENS];
	struct model_file *f;
	struct sl_err err;
	(void)state;
	write_model("tiny-reranker");
	assert_int_equal(model_file_open(path, &f, &err), 0);
	for (int p = 0; p < N_PAIRS; p++) {
		make_pair(p, ids);
		reference(f, ids, PAIR_TOKENS, 5, x);
		want[p] = reference_score(f, x[0]);
	}
	for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
		struct bench b;
		double worst = 0;
		bool slow = strcmp((*o)->name, "cuda-emulated") == 0 || strcmp((*o)->name, "cpu-ref") == 0;
		int n = slow ? N_SLOW : N_PAIRS;
		/* One thread: in hundreds of short steps beside other work two would wait for each other. */
		bench_open(&b, *o, NULL, 1);
		for (int p = 0; p < n; p++) {
			float score;
			make_pair(p, ids);
			compute(&b, &(struct text){ids, PAIR_TOKENS, 5}, 1, p % SLOTS, &score);
			got[p] = (double)score;
			worst = fmax(worst, fabs(got[p] - want[p]));
			order[0][p] = order[1][p] = p;
		}
		compared = want;
		qsort(order[0], (size_t)n, sizeof(int), by_score);
		compared = got;
		qsort(order[1], (size_t)n, sizeof(int), by_score);
		assert_memory_equal(order[0], order[1], (size_t)n * sizeof(int));
		if (!(worst < TOLERANCE))
			fail_msg("%s: a score is off by %g", (*o)->name, worst);
		bench_close(&b);
	}
	forget();
	model_file_close(f);
}

/* What encoders have that decoders don't shows: each taken away is far off. */
static void each_part_counts(void **state)
{
	static double x[MOST][WIDTH], other[MOST][WIDTH];
	struct model_file *f;
	struct sl_err err;
	(void)state;
	write_model("tiny-bert");
	assert_int_equal(model_file_open(path, &f, &err), 0);
	reference(f, tokens, 20, 10, x);
	for (int what = 0; what < 3; what++) {
		int32_t ids[21];
		double most = 0;
		memcpy(ids, tokens, sizeof ids);
		if (what == 1)
			ids[19] = (ids[19] + 1) % VOCAB; /* what follows a row is seen by it */
		reference(f, what == 2 ? ids + 1 : ids, what == 2 ? 19 : 20, what == 0 ? 20 : 10, other);
		for (int i = 0; i < WIDTH; i++)
			most = fmax(most, fabs(other[0][i] - x[0][i]));
		assert_true(most > 100 * TOLERANCE);
	}
	forget();
	model_file_close(f);
}

static void what_a_model_does(void **state)
{
	struct model_arch a;
	struct sl_err err;
	(void)state;
	assert_int_equal(random_shape_find("tiny-bert", &a, &err), 0);
	assert_int_equal(model_does(&a), PROTO_DOES_EMBED);
	assert_int_equal(model_set_pooling(&a, "none", &err), SL_EINVAL);
	assert_int_equal(model_set_pooling(&a, "max", &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "pooling 'max' is not supported"));
	assert_int_equal(model_set_pooling(&a, "auto", &err), 0);
	assert_int_equal(a.pooling, ARCH_POOL_CLS);
	assert_int_equal(random_shape_find("tiny-reranker", &a, &err), 0);
	assert_int_equal(model_does(&a), PROTO_DOES_RANK);
	assert_int_equal(model_set_pooling(&a, "mean", &err), SL_EINVAL);
	assert_int_equal(random_shape_find("tiny-llama", &a, &err), 0);
	assert_int_equal(model_does(&a), PROTO_DOES_GENERATE);
	assert_int_equal(model_set_pooling(&a, "cls", &err), SL_EINVAL);
	assert_int_equal(model_set_pooling(&a, "mean", &err), 0);
	assert_int_equal(model_does(&a), PROTO_DOES_GENERATE | PROTO_DOES_EMBED);
	assert_int_equal(model_kv_type(&a, tested_backends()[0]), KN_F32);
	assert_int_equal(model_set_pooling(&a, "none", &err), 0);
	assert_int_equal(model_does(&a), PROTO_DOES_GENERATE);
	assert_int_equal(model_kv_type(&a, tested_backends()[0]), KN_F16);
}

static int setup(void **state)
{
	uint64_t x = 5;
	(void)state;
	for (int i = 0; i < MOST; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		tokens[i] = (int32_t)((x >> 33) % VOCAB);
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
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(vectors_are_the_reference),
	    cmocka_unit_test(scores_are_the_reference),
	    cmocka_unit_test(each_part_counts),
	    cmocka_unit_test(what_a_model_does),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
