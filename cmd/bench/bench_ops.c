/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench ops`: checks and times every operation for shapes of real models and all weight types. Checks:
 * against the reference, each row on its own (a row's result does not depend on its neighbours), with outputs preset
 * to NaN and guards around them. Times: as a share of the roofline, the longer of reading its bytes and doing its
 * multiply-adds at the rates measured just before (Williams, Waterman, Patterson, "Roofline", 2009).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_gpu.h"
#include "cmd/config/cmd.h"
#include "kernels/ceiling.h"
#include "kernels/kernels.h"
#include "kernels/kv_type.h"
#include "kernels/quantize.h"

enum { GUARD = 64, TIMES = 7, CHECKED_ROWS = 3, MAX_ROWS = 512, MAX_WIDTH = 8192, PAGE = 16, OWN_ROWS = 37 };

struct ops_bench {
	const struct kn_ops *ops, *ref;
	struct kn_backend *b, *rb;
	struct kn_ceilings ceiling;
	bool json, first;
	uint64_t random;
	int n_wrong;
};

/* Floats of a backend with a guard on each side. */
struct guarded {
	float *all, *at;
	size_t n;
};

static float draw(struct ops_bench *x)
{
	x->random = x->random * 6364136223846793005u + 1442695040888963407u;
	return (float)((int32_t)(x->random >> 33) - (1 << 30)) / (float)(1 << 30);
}

static const float guard_value = 12345.0f;

static struct guarded make(const struct kn_ops *ops, struct kn_backend *b, size_t n)
{
	struct guarded g = {.n = n};
	void *p;
	BUG_IF(ops->mem_alloc(b, (n + 2 * GUARD) * sizeof(float), &p) != 0, "bench ops: out of memory");
	g.all = p;
	g.at = g.all + GUARD;
	for (int i = 0; i < GUARD; i++)
		g.all[i] = g.at[n + (size_t)i] = guard_value;
	for (size_t i = 0; i < n; i++)
		g.at[i] = NAN;
	return g;
}

static void fill(struct ops_bench *x, struct guarded g)
{
	for (size_t i = 0; i < g.n; i++)
		g.at[i] = draw(x);
}

static bool guards_hold(struct guarded g)
{
	for (int i = 0; i < GUARD; i++)
		if (g.all[i] != guard_value || g.at[g.n + (size_t)i] != guard_value)
			return false;
	return true;
}

/* The largest difference relative to the largest value; infinite if a value is NaN. */
static double off_by(const float *got, const float *want, size_t n)
{
	double diff = 0, most = 1e-30;
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(got[i]))
			return INFINITY;
		diff = fmax(diff, fabs((double)got[i] - (double)want[i]));
		most = fmax(most, fabs((double)want[i]));
	}
	return diff / most;
}

/* Prints one result. bytes and multiply-adds are the minimum that the operation needs. */
static void tell(struct ops_bench *x, const char *op, const char *shape, const char *type, int rows, double seconds,
		 double bytes, double madds, double off, bool guards, double most_off)
{
	double by_memory = bytes / x->ceiling.read_bytes, by_arithmetic = 2 * madds / x->ceiling.fp32_ops;
	double least = by_memory > by_arithmetic ? by_memory : by_arithmetic;
	bool right = guards && off <= most_off;
	x->n_wrong += !right;
	if (x->json)
		printf("%s{\"op\":\"%s\",\"shape\":\"%s\",\"type\":\"%s\",\"rows\":%d,\"us\":%.4g,\"share_of_"
		       "roofline\":%.4g,"
		       "\"bound\":\"%s\",\"error\":%.3g,\"right\":%s}",
		       x->first ? "" : ",", op, shape, type, rows, seconds * 1e6, least / seconds,
		       by_memory > by_arithmetic ? "memory" : "arithmetic", isfinite(off) ? off : 1e30,
		       right ? "true" : "false");
	else
		printf("%-10s %-14s %-7s %5d %12.1f %8.1f %% %-10s %9.1e  %s\n", op, shape, type, rows, seconds * 1e6,
		       100 * least / seconds, by_memory > by_arithmetic ? "memory" : "arithmetic", off,
		       right    ? "right"
		       : guards ? "WRONG"
				: "GUARD BROKEN");
	x->first = false;
	fflush(stdout);
}

/* ---- products ---- */

static int checked_rows(int n_rows, int *rows)
{
	rows[0] = 0;
	rows[1] = n_rows / 2;
	rows[2] = n_rows - 1;
	return n_rows < CHECKED_ROWS ? n_rows : CHECKED_ROWS;
}

/* Eight-bit activations have a root mean square error of 1/(127 sqrt(12)); the activations here have a root mean
 * square of 1/sqrt(3). Results have the same relative error. OWN_ROWS rows of weights give a few dozen distinct
 * results: the largest error of so few is below four times that, and the largest result is at least their root mean
 * square. */
#define EIGHT_BITS_ERROR (0.5 / 127 * 4)

static bool eight_bits(const struct kn_ops *o, int type)
{
	return o->eight_bits && kn_type_block(type) > 1 && type != KN_INT4;
}

static void product(struct ops_bench *x, int type, int n_out, int n_in)
{
	static const int row_counts[] = {1, 8, 64, 512};
	size_t row_bytes = kn_row_bytes(type, (size_t)n_in);
	float *row = sl_zalloc_n((size_t)n_in, sizeof *row);
	uint8_t *host = sl_alloc(row_bytes * (size_t)n_out);
	BUG_IF(row == NULL || host == NULL, "bench ops: out of memory");
	/* Quantizing a row is slow, so a few rows are repeated. */
	for (int o = 0; o < n_out; o++) {
		uint8_t *at = host + (size_t)o * row_bytes;
		for (int i = 0; i < n_in && o < OWN_ROWS; i++)
			row[i] = draw(x) / sqrtf((float)n_in);
		if (o >= OWN_ROWS)
			memcpy(at, host + (size_t)(o % OWN_ROWS) * row_bytes, row_bytes);
		else
			BUG_IF(kn_quantize_row(type, row, (size_t)n_in, at) != 0, "bench ops: a row of %s",
			       kn_type_name(type));
	}
	struct kn_weight w, rw;
	struct sl_err err;
	if (x->ops->weight_load(x->b, host, type, n_out, n_in, &w, &err) != 0 ||
	    x->ref->weight_load(x->rb, host, type, n_out, n_in, &rw, &err) != 0)
		BUG("bench ops: %s", err.text);
	struct guarded in = make(x->ops, x->b, (size_t)MAX_ROWS * (size_t)n_in);
	fill(x, in);
	for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++) {
		int rows[CHECKED_ROWS], n = row_counts[r], n_checked = checked_rows(n, rows);
		struct guarded out = make(x->ops, x->b, (size_t)n * (size_t)n_out);
		struct guarded want = make(x->ref, x->rb, (size_t)n_out);
		const struct kn_step s = {.n_rows = n};
		double took[TIMES], off = 0;
		for (int t = 0; t < TIMES; t++) {
			uint64_t begin = clock_now_ns();
			x->ops->step_begin(x->b, &s);
			x->ops->matmul(x->b, &w, in.at, n, out.at);
			x->ops->step_end(x->b);
			took[t] = (double)(clock_now_ns() - begin) / 1e9;
		}
		for (int i = 0; i < n_checked; i++) {
			x->ref->step_begin(x->rb, &s);
			x->ref->matmul(x->rb, &rw, in.at + (size_t)rows[i] * (size_t)n_in, 1, want.at);
			x->ref->step_end(x->rb);
			off = fmax(off, off_by(out.at + (size_t)rows[i] * (size_t)n_out, want.at, (size_t)n_out));
		}
		for (size_t i = 0; i < out.n; i++)
			off = isfinite(out.at[i]) ? off : INFINITY;
		char shape[32];
		snprintf(shape, sizeof shape, "%dx%d", n_out, n_in);
		tell(x, "matmul", shape, kn_type_name(type), n, percentile(took, TIMES, 50),
		     (double)row_bytes * n_out + 4.0 * n * (n_in + n_out), (double)n * n_out * n_in, off,
		     guards_hold(out) && guards_hold(in), eight_bits(x->ops, type) ? EIGHT_BITS_ERROR : 2e-5);
		x->ops->mem_free(x->b, out.all);
		x->ref->mem_free(x->rb, want.all);
	}
	x->ops->mem_free(x->b, in.all);
	x->ops->weight_free(x->b, &w);
	x->ref->weight_free(x->rb, &rw);
	sl_free(row);
	sl_free(host);
}

/* ---- attention ---- */

/* Fills the pages with random keys and values. */
static void fill_pages(struct ops_bench *x, const struct kn_kv *kv)
{
	float *one = sl_zalloc_n((size_t)kv->head_dim, sizeof *one);
	BUG_IF(one == NULL, "bench ops: out of memory");
	for (int i = 0; i < 2 * kv->n_pages * kv->n_kv_heads * kv->page_tokens; i++) {
		int token = i / 2 % kv->page_tokens, head = i / 2 / kv->page_tokens % kv->n_kv_heads;
		int page = i / 2 / kv->page_tokens / kv->n_kv_heads;
		for (int d = 0; d < kv->head_dim; d++)
			one[d] = draw(x);
		kn_kv_put(kv->type, (uint8_t *)(i % 2 ? kv->v : kv->k) + kn_kv_block_at(kv, page, 0, head), i % 2 == 0,
			  kv->page_tokens, kv->head_dim, token, one);
	}
	sl_free(one);
}

static void attention(struct ops_bench *x, int type, int n_heads, int n_kv_heads, int dim, int past, int n)
{
	int n_pages = (past + n + PAGE - 1) / PAGE, rows[CHECKED_ROWS], n_checked = checked_rows(n, rows);
	size_t row = (size_t)n_heads * (size_t)dim, head_bytes = kn_kv_head_bytes(type, PAGE, dim);
	size_t floats = (size_t)n_pages * (size_t)n_kv_heads * head_bytes / sizeof(float);
	struct guarded k = make(x->ops, x->b, floats), v = make(x->ops, x->b, floats);
	struct guarded q = make(x->ops, x->b, (size_t)n * row), out = make(x->ops, x->b, (size_t)n * row);
	struct guarded want = make(x->ref, x->rb, row);
	int32_t *pages = sl_zalloc_n((size_t)n_pages, sizeof *pages), *pos = sl_zalloc_n((size_t)n, sizeof *pos);
	int32_t *seq = sl_zalloc_n((size_t)n, sizeof *seq);
	BUG_IF(pages == NULL || pos == NULL || seq == NULL, "bench ops: out of memory");
	fill(x, q);
	for (int i = 0; i < n_pages; i++)
		pages[i] = n_pages - 1 - i;
	for (int i = 0; i < n; i++)
		pos[i] = past + i;
	struct kn_kv kv = {.k = k.at,
			   .v = v.at,
			   .type = type,
			   .n_pages = n_pages,
			   .page_tokens = PAGE,
			   .n_layers = 1,
			   .n_kv_heads = n_kv_heads,
			   .head_dim = dim};
	fill_pages(x, &kv);
	const struct kn_attn how = {.scale = 1 / sqrtf((float)dim)};
	struct kn_step s = {
	    .n_rows = n, .row_pos = pos, .row_seq = seq, .n_seqs = 1, .page_table = pages, .max_pages = n_pages};
	double took[TIMES], off = 0;
	for (int t = 0; t < TIMES; t++) {
		uint64_t begin = clock_now_ns();
		x->ops->step_begin(x->b, &s);
		x->ops->attention(x->b, q.at, n_heads, &kv, 0, &how, out.at);
		x->ops->step_end(x->b);
		took[t] = (double)(clock_now_ns() - begin) / 1e9;
	}
	for (int i = 0; i < n_checked; i++) {
		struct kn_step one = s;
		one.n_rows = 1;
		one.row_pos = pos + rows[i];
		x->ref->step_begin(x->rb, &one);
		x->ref->attention(x->rb, q.at + (size_t)rows[i] * row, n_heads, &kv, 0, &how, want.at);
		x->ref->step_end(x->rb);
		off = fmax(off, off_by(out.at + (size_t)rows[i] * row, want.at, row));
	}
	char shape[32];
	snprintf(shape, sizeof shape, "%d/%dx%d@%d", n_heads, n_kv_heads, dim, past);
	double positions = (double)n * past + (double)n * (n + 1) / 2;
	tell(x, "attention", shape, kn_kv_type_name(type), n, percentile(took, TIMES, 50),
	     2.0 * (past + n) * n_kv_heads * (double)head_bytes / PAGE + 8.0 * (double)n * (double)row,
	     2 * positions * n_heads * dim, off, guards_hold(out) && guards_hold(q) && guards_hold(k) && guards_hold(v),
	     1e-4);
	struct guarded all[] = {k, v, q, out};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		x->ops->mem_free(x->b, all[i].all);
	x->ref->mem_free(x->rb, want.all);
	sl_free(pages);
	sl_free(pos);
	sl_free(seq);
}

/* ---- row-wise operations ---- */

enum row_op { RMSNORM, SILU_MUL, GELU_MUL, ADD };

static void run_row_op(const struct kn_ops *o, struct kn_backend *b, enum row_op op, float *x, const float *y, int n,
		       int width)
{
	const struct kn_step s = {.n_rows = n};
	o->step_begin(b, &s);
	switch (op) {
	case RMSNORM: o->rmsnorm(b, x, y, 1e-5f, n, width, x); break;
	case SILU_MUL: o->silu_mul(b, x, y, n, width); break;
	case GELU_MUL: o->gelu_mul(b, x, y, n, width); break;
	case ADD: o->add(b, x, y, n, width); break;
	}
	o->step_end(b);
}

static void row_op(struct ops_bench *x, enum row_op op, const char *name, int width, int n)
{
	size_t count = (size_t)n * (size_t)width;
	struct guarded in = make(x->ops, x->b, count), y = make(x->ops, x->b, count), out = make(x->ops, x->b, count);
	struct guarded want = make(x->ref, x->rb, count);
	double took[TIMES];
	fill(x, in);
	fill(x, y);
	memcpy(want.at, in.at, count * sizeof(float));
	run_row_op(x->ref, x->rb, op, want.at, y.at, n, width);
	for (int t = 0; t < TIMES; t++) {
		memcpy(out.at, in.at, count * sizeof(float));
		uint64_t begin = clock_now_ns();
		run_row_op(x->ops, x->b, op, out.at, y.at, n, width);
		took[t] = (double)(clock_now_ns() - begin) / 1e9;
	}
	char shape[32];
	snprintf(shape, sizeof shape, "%d", width);
	double bytes = op == RMSNORM ? 8.0 * (double)count : 12.0 * (double)count;
	tell(x, name, shape, "f32", n, percentile(took, TIMES, 50), bytes, 2.0 * (double)count,
	     off_by(out.at, want.at, count), guards_hold(out) && guards_hold(in) && guards_hold(y), 1e-5);
	struct guarded all[] = {in, y, out};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		x->ops->mem_free(x->b, all[i].all);
	x->ref->mem_free(x->rb, want.all);
}

/* ---- the command ---- */

static void run_all(struct ops_bench *x, const char *only, bool quick)
{
	/* The 1B Llama shape: attention output, feed-forward up, feed-forward down. */
	static const int shapes[][2] = {{2048, 2048}, {8192, 2048}, {2048, 8192}};
	size_t n_shapes = quick ? 1 : sizeof shapes / sizeof *shapes;
	for (int i = 0; kn_type_at(i) >= 0 && (only == NULL || strcmp(only, "matmul") == 0); i++)
		for (size_t k = 0; k < n_shapes; k++)
			product(x, kn_type_at(i), quick ? 256 : shapes[k][0], quick ? 512 : shapes[k][1]);
	static const int pasts[] = {0, 500, 4000, 16000};
	for (size_t i = 0; i < (quick ? 1 : 4) && (only == NULL || strcmp(only, "attention") == 0); i++) {
		for (int t = 0; kn_kv_type_at(t) >= 0; t++) {
			int type = kn_kv_type_at(t);
			if (!x->ops->kv_type(type))
				continue;
			attention(x, type, 32, 8, 64, pasts[i], 1);
			attention(x, type, 32, 8, 64, pasts[i], 64);
			attention(x, type, 16, 16, 128, pasts[i], 64);
		}
	}
	if (only != NULL && strcmp(only, "rows") != 0)
		return;
	for (int n = 1; n <= MAX_ROWS; n *= 64) {
		row_op(x, RMSNORM, "rmsnorm", 2048, n);
		row_op(x, SILU_MUL, "silu_mul", 8192, n);
		row_op(x, GELU_MUL, "gelu_mul", 8192, n);
		row_op(x, ADD, "add", 2048, n);
	}
}

int bench_ops(int argc, char **argv)
{
	if (bench_gpu_asked(argc, argv))
		return bench_gpu_ops(argc, argv);
	const char *backend = "auto", *only = NULL;
	double threads = 0;
	bool json = false, quick = false;
	const struct bench_option options[] = {
	    {"--backend", NULL, &backend, NULL, 0, 0},   {"--op", NULL, &only, NULL, 0, 0},
	    {"--threads", &threads, NULL, NULL, 0, 256}, {"--quick", NULL, NULL, &quick, 0, 0},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, NULL);
	if (rc != 0)
		return rc;
	if (only != NULL && strcmp(only, "matmul") != 0 && strcmp(only, "attention") != 0 && strcmp(only, "rows") != 0)
		return bench_complain(CMD_EXIT_USAGE, "--op: matmul, attention or rows");
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	int n_threads = threads > 0 ? (int)threads : online > 0 ? (int)online : 1;
	struct ops_bench x = {.json = json, .first = true, .random = 1};
	struct kn_config kc = {.n_threads = n_threads, .max_rows = MAX_ROWS, .max_width = MAX_WIDTH};
	struct sl_err err = {0};
	x.ops = kn_select(backend, &err);
	x.ref = kn_select("cpu-ref", &err);
	if (x.ops == NULL || x.ref == NULL || x.ops->open(&kc, &x.b, &err) != 0)
		return bench_complain(1, "%s", err.text);
	if (x.ref->open(&kc, &x.rb, &err) != 0 || kn_measure_ceilings(n_threads, quick ? 0.05 : 0.5, &x.ceiling) != 0) {
		x.ops->close(x.b);
		return bench_complain(1, "%s", err.text[0] ? err.text : "out of memory");
	}
	if (json) {
		printf("{\"backend\":\"%s\",\"threads\":%d,\"read_bytes_per_s\":%.6g,\"fp32_ops_per_s\":%.6g,\"ops\":[",
		       x.ops->name, n_threads, x.ceiling.read_bytes, x.ceiling.fp32_ops);
	} else {
		bench_header();
		printf("%s, %d threads: reads %.1f GB/s, %.3f Tflop/s\n\n", x.ops->name, n_threads,
		       x.ceiling.read_bytes / 1e9, x.ceiling.fp32_ops / 1e12);
		printf("op         shape          type     rows           us  of roofline bound by       error\n");
	}
	run_all(&x, only, quick);
	if (json)
		printf("],\"wrong\":%d}\n", x.n_wrong);
	x.ref->close(x.rb);
	x.ops->close(x.b);
	return x.n_wrong > 0 ? bench_complain(1, "%d results are wrong", x.n_wrong) : 0;
}
