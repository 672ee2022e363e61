/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench gpu PART`: times of a device's kernels, for tests/gpu/kit, which compares them with the device's
 * ceilings. Each figure is a line `NAME SECONDS BYTES OPERATIONS`; bytes and operations (a multiply-add counts as
 * two) are the minimum that the work requires.
 *
 * A figure is the time of one operation among many in a step: the difference between a step with many and a step with
 * one, which cancels the cost of launching. --loose uses the vendor's library where it is faster. Weights are
 * generated on the device. `sluice bench ops` and `sluice bench model` run these parts when their --backend is a
 * device. Shapes are those of an 8B Llama; --tiny makes them small enough for the emulation, which tests the program
 * but not its speed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/bench/bench_gpu.h"
#include "cmd/config/cmd.h"
#include "kernels/kv_type.h"

enum { TIMES = 5, MANY = 8, PAGE = 16, N_MATRICES = 7 };

void bench_gpu_tell(const char *name, double seconds, double bytes, double operations)
{
	printf("%s %.6g %.6g %.6g\n", name, seconds, bytes, operations);
	fflush(stdout);
}

int bench_gpu_open(struct gpu_bench *x, int max_rows, int max_width, bool fp8)
{
	struct sl_err err = {0};
	struct kn_config kc = {.max_rows = max_rows,
			       .max_width = max_width,
			       .fp8_weights = fp8,
			       .pad_rows = true,
			       .loose_products = x->loose};
	x->ops = kn_select(x->backend, &err);
	if (x->ops == NULL || x->ops->open(&kc, &x->b, &err) != 0) {
		x->b = NULL;
		return bench_complain(1, "%s", err.text);
	}
	return 0;
}

/* ---- numbers ---- */

static float draw(struct gpu_bench *x)
{
	x->random = x->random * 6364136223846793005u + 1442695040888963407u;
	return (float)((int32_t)(x->random >> 33) - (1 << 30)) / (float)(1 << 30);
}

static float *room(struct gpu_bench *x, size_t n)
{
	void *p = NULL;
	return x->ops->mem_alloc(x->b, n * sizeof(float), &p) == 0 ? p : NULL;
}

/* n random floats on the device; NULL: out of memory. */
static float *random_room(struct gpu_bench *x, size_t n)
{
	float *p = room(x, n), *host = sl_zalloc_n(n, sizeof *host);
	for (size_t i = 0; host != NULL && i < n; i++)
		host[i] = draw(x);
	if (host == NULL || p == NULL || x->ops->upload(x->b, p, host, n) != 0) {
		if (p != NULL)
			x->ops->mem_free(x->b, p);
		p = NULL;
	}
	sl_free(host);
	return p;
}

static void drop(struct gpu_bench *x, void *p)
{
	if (p != NULL)
		x->ops->mem_free(x->b, p);
}

/* Generates a matrix of random weights on the device. */
static int random_weight(struct gpu_bench *x, int type, int n_out, int n_in, struct kn_weight *w)
{
	const struct kn_noise noise = {.seed = x->random++, .spread = 1 / sqrtf((float)n_in)};
	struct sl_err err = {0};
	if (x->ops->weight_random == NULL)
		return bench_complain(1, "%s cannot generate random weights", x->ops->name);
	if (x->ops->weight_random(x->b, &noise, &n_out, 1, type, n_in, w, &err) != 0)
		return bench_complain(1, "%s", err.text);
	return 0;
}

/* ---- timing ---- */

struct timed {
	const struct kn_step *step;
	/* Operation i of a step. 0 or SL_E*. */
	int (*op)(struct gpu_bench *x, void *ctx, int i);
	void *ctx;
};

/* Seconds of the fastest of several steps of n operations; 0: a step failed. */
static double step_s(struct gpu_bench *x, const struct timed *t, int n)
{
	double best = 0;
	for (int k = 0; k < (x->tiny ? 1 : TIMES); k++) {
		uint64_t begin = clock_now_ns();
		int rc = x->ops->step_begin(x->b, t->step);
		for (int i = 0; i < n && rc == 0; i++)
			rc = t->op(x, t->ctx, i);
		int end = x->ops->step_end(x->b);
		double took = (double)(clock_now_ns() - begin) / 1e9;
		if (rc != 0 || end != 0) {
			bench_complain(1, "%s", x->ops->describe(x->b));
			return 0;
		}
		best = k == 0 || took < best ? took : best;
	}
	return best;
}

/* Seconds of one operation, from steps of n; 0: a step failed. */
static double op_s(struct gpu_bench *x, const struct timed *t, int n)
{
	double one = step_s(x, t, 1), all = one > 0 ? step_s(x, t, 1 + n) : 0;
	return all > one ? (all - one) / n : all / (1 + n);
}

/* ---- ceilings ---- */

struct copies {
	struct kn_kv kv;
};

static int copy_op(struct gpu_bench *x, void *ctx, int i)
{
	struct copies *c = ctx;
	return x->ops->page_copy(x->b, &c->kv, i % 2, 1 - i % 2);
}

/* The pages are larger than any on-chip memory. A copy reads and writes one page of keys and one of values. */
static int bench_copy(struct gpu_bench *x)
{
	struct kn_step s = {.n_rows = 1};
	struct copies c = {.kv = {.type = KN_F32,
				  .n_pages = 2,
				  .page_tokens = PAGE,
				  .n_layers = x->tiny ? 1 : 1024,
				  .n_kv_heads = x->tiny ? 1 : 64,
				  .head_dim = 128}};
	size_t page = kn_kv_page_bytes(&c.kv);
	c.kv.k = random_room(x, page / 2);
	c.kv.v = random_room(x, page / 2);
	double seconds = c.kv.k != NULL && c.kv.v != NULL ? op_s(x, &(struct timed){&s, copy_op, &c}, MANY) : 0;
	if (seconds > 0)
		bench_gpu_tell("copy", seconds, 4 * (double)page, 0);
	drop(x, c.kv.k);
	drop(x, c.kv.v);
	return seconds > 0 ? 0 : 1;
}

struct products {
	struct kn_weight w[N_MATRICES];
	int n, n_rows;
	float *x, *y;
};

static int product_op(struct gpu_bench *x, void *ctx, int i)
{
	struct products *p = ctx;
	return x->ops->matmul(x->b, &p->w[i % p->n], p->x, p->n_rows, p->y);
}

/* All products of a layer, as one operation. */
static int layer_op(struct gpu_bench *x, void *ctx, int i)
{
	struct products *p = ctx;
	int rc = 0;
	(void)i;
	for (int k = 0; k < p->n && rc == 0; k++)
		rc = product_op(x, ctx, k);
	return rc;
}

static void drop_products(struct gpu_bench *x, struct products *p)
{
	for (int i = 0; i < p->n; i++)
		x->ops->weight_free(x->b, &p->w[i]);
	drop(x, p->x);
	drop(x, p->y);
}

static int bench_matrix(struct gpu_bench *x)
{
	int n = x->tiny ? 64 : 8192;
	struct kn_step s = {.n_rows = n};
	struct products p = {
	    .n_rows = n, .x = random_room(x, (size_t)n * (size_t)n), .y = room(x, (size_t)n * (size_t)n)};
	double seconds = 0;
	if (p.x != NULL && p.y != NULL && random_weight(x, KN_BF16, n, n, &p.w[0]) == 0) {
		p.n = 1;
		seconds = op_s(x, &(struct timed){&s, product_op, &p}, 2);
	}
	if (seconds > 0)
		bench_gpu_tell(x->fp8     ? (x->loose ? "library_fp8" : "matrix_fp8")
			       : x->loose ? "library_bf16"
					  : "matrix_bf16",
			       seconds, 0, 2.0 * n * n * n);
	drop_products(x, &p);
	return seconds > 0 ? 0 : 1;
}

/* ---- products of few rows ---- */

static const struct {
	int n_out, n_in;
} layer[N_MATRICES] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
		       {14336, 4096}, {14336, 4096}, {4096, 14336}};

static int bench_matvec_type(struct gpu_bench *x, int type)
{
	static const int rows[] = {1, 8, 64, 256};
	enum { MOST = 256, WIDEST = 14336 };
	int cut = x->tiny ? 64 : 1, rc = 0;
	double bytes = 0, weights = 0;
	size_t n = (size_t)MOST * WIDEST / (size_t)cut;
	struct products p = {.x = random_room(x, n), .y = room(x, n)};
	if (p.x == NULL || p.y == NULL)
		rc = bench_complain(1, "out of memory");
	for (int i = 0; i < N_MATRICES && rc == 0; i++) {
		int n_out = layer[i].n_out / cut, n_in = layer[i].n_in / cut;
		n_in = x->tiny ? 256 : n_in; /* a multiple of every type's block */
		n_out = n_out > 64 && x->tiny ? 64 : n_out;
		rc = random_weight(x, type, n_out, n_in, &p.w[i]);
		p.n += rc == 0;
		weights += (double)n_out * n_in;
		bytes += x->fp8 ? (double)n_out * (n_in + 4) : (double)kn_row_bytes(type, (size_t)n_in) * n_out;
	}
	for (size_t r = 0; r < (x->tiny ? 2 : sizeof rows / sizeof *rows) && rc == 0; r++) {
		char name[64];
		struct kn_step s = {.n_rows = rows[r]};
		p.n_rows = rows[r];
		double seconds = op_s(x, &(struct timed){&s, layer_op, &p}, x->tiny ? 1 : MANY);
		snprintf(name, sizeof name, "product_%s_%d", x->fp8 ? "fp8" : kn_type_name(type), rows[r]);
		if (seconds > 0)
			bench_gpu_tell(name, seconds, bytes, 2 * weights * rows[r]);
		rc = seconds > 0 ? 0 : 1;
	}
	drop_products(x, &p);
	return rc;
}

static int bench_matvec(struct gpu_bench *x)
{
	static const int types[] = {KN_BF16, KN_Q8_0, KN_INT4, KN_Q4_0, KN_Q4_K};
	int rc = 0;
	for (size_t i = 0; i < (x->fp8 ? 1 : sizeof types / sizeof *types); i++)
		rc |= bench_matvec_type(x, types[i]);
	return rc;
}

/* ---- attention ---- */

enum { HEADS = 32, KV_HEADS = 8, DIM = 128 };

struct attends {
	struct kn_kv kv;
	struct kn_step step;
	struct kn_attn attn;
	float *q, *k, *v, *out;
	int32_t *pos, *seq, *pages;
};

static int attend_op(struct gpu_bench *x, void *ctx, int i)
{
	struct attends *a = ctx;
	(void)i;
	return x->ops->attention(x->b, a->q, HEADS, &a->kv, 0, &a->attn, a->out);
}

/* Writes random keys and values for all positions, one sequence per step. */
static int write_pages(struct gpu_bench *x, struct attends *a, int n_seqs, int past)
{
	static const double freqs[DIM / 2] = {1};
	const struct kn_rope rope = {.n_rot = DIM, .halves = true, .magnitude = 1, .inv_freq = freqs};
	int rc = 0;
	for (int q = 0; q < n_seqs && rc == 0; q++) {
		for (int i = 0; i < past; i++) {
			a->pos[i] = i;
			a->seq[i] = q;
		}
		a->step.n_rows = past;
		rc = x->ops->step_begin(x->b, &a->step);
		if (rc == 0)
			rc = x->ops->rope_kv_write(x->b, &rope, a->q, HEADS, a->k, a->v, &a->kv, 0);
		int end = x->ops->step_end(x->b);
		rc = rc != 0 ? rc : end;
	}
	return rc;
}

static int open_attends(struct gpu_bench *x, struct attends *a, int n_seqs, int past)
{
	int rows = past > n_seqs ? past : n_seqs, n_pages = n_seqs * ((past + PAGE - 1) / PAGE);
	size_t n = (size_t)rows * DIM;
	*a = (struct attends){.attn = {.scale = 0.088f},
			      .kv = {.type = KN_F16,
				     .n_pages = n_pages,
				     .page_tokens = PAGE,
				     .n_layers = 1,
				     .n_kv_heads = KV_HEADS,
				     .head_dim = DIM}};
	size_t half = kn_kv_page_bytes(&a->kv) * (size_t)n_pages / sizeof(float);
	a->kv.k = room(x, half);
	a->kv.v = room(x, half);
	a->q = random_room(x, n * HEADS);
	a->k = random_room(x, n * KV_HEADS);
	a->v = random_room(x, n * KV_HEADS);
	a->out = room(x, n * HEADS);
	a->pos = sl_zalloc_n((size_t)rows, sizeof *a->pos);
	a->seq = sl_zalloc_n((size_t)rows, sizeof *a->seq);
	a->pages = sl_zalloc_n((size_t)n_pages, sizeof *a->pages);
	if (!a->kv.k || !a->kv.v || !a->q || !a->k || !a->v || !a->out || !a->pos || !a->seq || !a->pages)
		return bench_complain(1, "out of memory");
	for (int i = 0; i < n_pages; i++)
		a->pages[i] = (int32_t)((int64_t)i * 7919 %
					n_pages); /* 7919 is prime: a permutation, unless it divides n_pages */
	a->step = (struct kn_step){.row_pos = a->pos,
				   .row_seq = a->seq,
				   .n_seqs = n_seqs,
				   .page_table = a->pages,
				   .max_pages = n_pages / n_seqs,
				   .page_tokens = PAGE};
	return write_pages(x, a, n_seqs, past) == 0 ? 0 : bench_complain(1, "%s", x->ops->describe(x->b));
}

static void close_attends(struct gpu_bench *x, struct attends *a)
{
	void *device[] = {a->kv.k, a->kv.v, a->q, a->k, a->v, a->out}, *host[] = {a->pos, a->seq, a->pages};
	for (size_t i = 0; i < sizeof device / sizeof *device; i++)
		drop(x, device[i]);
	for (size_t i = 0; i < sizeof host / sizeof *host; i++)
		sl_free(host[i]);
}

static int bench_attention(struct gpu_bench *x)
{
	struct attends a;
	int n_seqs = x->tiny ? 2 : 64, past = x->tiny ? 40 : 4096;
	int rc = open_attends(x, &a, n_seqs, past);
	if (rc == 0) {
		for (int i = 0; i < n_seqs; i++) {
			a.pos[i] = past - 1;
			a.seq[i] = i;
		}
		a.step.n_rows = n_seqs;
		double seconds = op_s(x, &(struct timed){&a.step, attend_op, &a}, x->tiny ? 1 : MANY);
		double both = 2.0 * n_seqs * past * KV_HEADS * DIM, queries = 4.0 * n_seqs * past * HEADS * DIM;
		if (seconds > 0)
			bench_gpu_tell("attention_decode", seconds, both * 2, queries);
		for (int i = 0; i < past; i++) {
			a.pos[i] = i;
			a.seq[i] = 0;
		}
		a.step.n_rows = past;
		double prompt = op_s(x, &(struct timed){&a.step, attend_op, &a}, x->tiny ? 1 : MANY);
		if (prompt > 0)
			bench_gpu_tell("attention_prompt", prompt, 0, 2.0 * HEADS * DIM * past * past);
		rc = seconds > 0 && prompt > 0 ? 0 : 1;
	}
	close_attends(x, &a);
	return rc;
}

/* ---- operations on rows ---- */

struct rows {
	int n, width, wide;
	float *x, *y, *gate, *gain;
};

static int norm_op(struct gpu_bench *x, void *ctx, int i)
{
	struct rows *r = ctx;
	(void)i;
	return x->ops->rmsnorm(x->b, r->x, r->gain, 1e-5f, r->n, r->width, r->y);
}

static int add_norm_op(struct gpu_bench *x, void *ctx, int i)
{
	struct rows *r = ctx;
	(void)i;
	return x->ops->add_rmsnorm(x->b, r->x, r->gate, r->gain, 1e-5f, r->n, r->width, r->y);
}

static int gate_op(struct gpu_bench *x, void *ctx, int i)
{
	struct rows *r = ctx;
	(void)i;
	return x->ops->gate_mul(x->b, r->gate, r->n, r->wide, false, r->y);
}

static int bench_rows(struct gpu_bench *x)
{
	struct rows r = {.n = x->tiny ? 4 : 512, .width = x->tiny ? 64 : 4096, .wide = x->tiny ? 128 : 14336};
	struct kn_step s = {.n_rows = r.n};
	const size_t n = (size_t)r.n, width = (size_t)r.width, wide = (size_t)r.wide;
	const struct {
		const char *name;
		int (*op)(struct gpu_bench *x, void *ctx, int i);
		size_t floats; /* read and written */
	} ops[] = {{"rows_norm", norm_op, 2 * n * width},
		   {"rows_add_norm", add_norm_op, 4 * n * width},
		   {"rows_gate", gate_op, 3 * n * wide}};
	int rc = 0;
	r.x = random_room(x, n * width);
	r.gain = random_room(x, width);
	r.gate = random_room(x, 2 * n * wide);
	r.y = room(x, n * wide);
	if (r.x == NULL || r.gain == NULL || r.gate == NULL || r.y == NULL)
		rc = bench_complain(1, "out of memory");
	for (size_t i = 0; i < sizeof ops / sizeof *ops && rc == 0; i++) {
		double seconds = op_s(x, &(struct timed){&s, ops[i].op, &r}, x->tiny ? 1 : MANY);
		if (seconds > 0)
			bench_gpu_tell(ops[i].name, seconds, (double)(ops[i].floats * sizeof(float)), 0);
		rc = seconds > 0 ? 0 : 1;
	}
	drop(x, r.x);
	drop(x, r.gain);
	drop(x, r.gate);
	drop(x, r.y);
	return rc;
}

/* ---- start ---- */

/* A matrix from the host's pageable memory, as a model file's: its load, and the first product, which waits for it. */
static int load_and_multiply(struct gpu_bench *x, int n)
{
	struct kn_step s = {.n_rows = 1};
	struct products p = {.n = 0, .n_rows = 1, .x = random_room(x, (size_t)n), .y = room(x, (size_t)n)};
	size_t bytes = (size_t)n * kn_row_bytes(KN_BF16, (size_t)n);
	uint16_t *host = sl_alloc(bytes);
	struct sl_err err = {0};
	if (host == NULL || p.x == NULL || p.y == NULL) {
		sl_free(host);
		drop_products(x, &p);
		return bench_complain(1, "out of memory");
	}
	for (size_t i = 0; i < bytes / sizeof *host; i++)
		host[i] = (uint16_t)(0x3C00 + i * 2654435761u % 512); /* small numbers */
	uint64_t begin = clock_now_ns();
	int rc = x->ops->weight_load(x->b, host, KN_BF16, n, n, &p.w[0], &err);
	p.n = rc == 0;
	if (rc == 0 && x->ops->settle != NULL)
		rc = x->ops->settle(x->b);
	uint64_t loaded = clock_now_ns();
	if (rc == 0)
		rc = x->ops->step_begin(x->b, &s);
	if (rc == 0)
		rc = product_op(x, &p, 0);
	int end = x->ops->step_end(x->b);
	uint64_t done = clock_now_ns();
	if (rc == 0 && end == 0) {
		bench_gpu_tell("upload", (double)(loaded - begin) / 1e9, (double)bytes, 0);
		bench_gpu_tell("first", (double)(done - loaded) / 1e9, 0, 0);
	}
	drop_products(x, &p);
	sl_free(host);
	return rc == 0 && end == 0 ? 0 : bench_complain(1, "%s", err.text[0] ? err.text : x->ops->describe(x->b));
}

static int bench_start(struct gpu_bench *x)
{
	bench_gpu_tell("open", x->open_s, 0, 0);
	return load_and_multiply(x, x->tiny ? 64 : 16384);
}

/* ---- sampling ---- */

static int bench_sample(struct gpu_bench *x)
{
	enum { MOST = 256 };
	int n = x->tiny ? 4 : MOST, vocab = x->tiny ? 512 : 128256, rc = 0;
	static struct kn_drawn drawn[MOST];
	struct kn_draw draws[MOST];
	struct kn_step s = {.n_rows = n};
	size_t all = (size_t)n * (size_t)vocab;
	float *logits = room(x, all), *host = sl_zalloc_n(all, sizeof *host);
	double best = 0;
	if (logits == NULL || host == NULL || x->ops->sample == NULL) {
		drop(x, logits);
		sl_free(host);
		return bench_complain(1, "out of memory, or %s cannot draw tokens", x->ops->name);
	}
	for (size_t i = 0; i < all; i++)
		host[i] = 8 * draw(x);
	for (int i = 0; i < n; i++)
		draws[i] = (struct kn_draw){.row = i, .temperature = 0.8f, .top_p = 0.95f, .key = (uint64_t)i};
	for (int k = 0; k < (x->tiny ? 1 : 2 * TIMES) && rc == 0; k++) { /* drawing overwrites the logits */
		rc = x->ops->upload(x->b, logits, host, all);
		uint64_t begin = clock_now_ns();
		rc = rc != 0 ? rc : x->ops->step_begin(x->b, &s);
		if (rc == 0)
			rc = x->ops->sample(x->b, logits, vocab, draws, n, drawn);
		int end = x->ops->step_end(x->b);
		double took = (double)(clock_now_ns() - begin) / 1e9;
		rc = rc != 0 ? rc : end;
		best = k == 0 || took < best ? took : best;
	}
	if (rc == 0)
		bench_gpu_tell("sample_256", best, 4.0 * (double)all, 0);
	drop(x, logits);
	sl_free(host);
	return rc;
}

/* ---- the commands ---- */

static const struct {
	const char *name;
	int (*run)(struct gpu_bench *x);
	bool fp8;
} parts[] = {
    {"copy", bench_copy, false},       {"matrix", bench_matrix, false},      {"matrix-fp8", bench_matrix, true},
    {"products", bench_matvec, false}, {"products-fp8", bench_matvec, true}, {"attention", bench_attention, false},
    {"sample", bench_sample, false},   {"rows", bench_rows, false},          {"start", bench_start, false}};

static int run_part(struct gpu_bench *x, size_t i)
{
	x->fp8 = parts[i].fp8;
	uint64_t begin = clock_now_ns();
	int rc = bench_gpu_open(x, x->tiny ? 256 : 8192, 131072, x->fp8);
	x->open_s = (double)(clock_now_ns() - begin) / 1e9;
	if (rc == 0)
		rc = parts[i].run(x);
	if (x->b != NULL)
		x->ops->close(x->b);
	x->b = NULL;
	return rc;
}

static int run_model(struct gpu_bench *x, const char *path, const char *kind)
{
	x->fp8 = strcmp(kind, "fp8") == 0;
	return bench_gpu_model(x, path, kind);
}

int bench_gpu(int argc, char **argv)
{
	struct gpu_bench x = {.backend = "cuda", .random = 1};
	const char *part = NULL, *model = NULL, *kind = "bf16";
	double batch = 0, prompt = 0;
	const struct bench_option options[] = {
	    {"--backend", NULL, &x.backend, NULL, 0, 0}, {"--batch", &batch, NULL, NULL, 1, 256},
	    {"--prompt", &prompt, NULL, NULL, 1, 8192},  {"--model", NULL, &model, NULL, 0, 0},
	    {"--kind", NULL, &kind, NULL, 0, 0},         {"--loose", NULL, NULL, &x.loose, 0, 0},
	    {"--tiny", NULL, NULL, &x.tiny, 0, 0},       {"--adapters", NULL, NULL, &x.adapters, 0, 0}};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &part);
	if (rc != 0)
		return rc;
	if (part != NULL && strcmp(part, "model") == 0) {
		if (model == NULL)
			return bench_complain(CMD_EXIT_USAGE, "gpu model needs --model FILE or random:SHAPE:TYPE");
		x.fp8 = strcmp(kind, "fp8") == 0;
		return batch > 0 || prompt > 0 ? bench_gpu_steps(&x, model, kind, (int)batch, (int)prompt)
					       : bench_gpu_model(&x, model, kind);
	}
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (part != NULL && strcmp(part, parts[i].name) == 0)
			return run_part(&x, i);
	return bench_complain(CMD_EXIT_USAGE,
			      "gpu needs a PART: copy, matrix, matrix-fp8, products, products-fp8, attention, "
			      "sample, rows, start, model");
}

bool bench_gpu_asked(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "--backend") == 0 && strncmp(argv[i + 1], "cuda", 4) == 0)
			return true;
	return false;
}

int bench_gpu_ops(int argc, char **argv)
{
	struct gpu_bench x = {.backend = "cuda", .random = 1};
	const struct bench_option options[] = {{"--backend", NULL, &x.backend, NULL, 0, 0},
					       {"--loose", NULL, NULL, &x.loose, 0, 0},
					       {"--tiny", NULL, NULL, &x.tiny, 0, 0}};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, NULL), worst = 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts && rc == 0; i++) {
		int part = run_part(&x, i);
		worst = part != 0 ? part : worst;
	}
	return rc != 0 ? rc : worst;
}

int bench_gpu_model_of(int argc, char **argv)
{
	struct gpu_bench x = {.backend = "cuda", .random = 1};
	const char *path = NULL, *kind = "model";
	const struct bench_option options[] = {{"--backend", NULL, &x.backend, NULL, 0, 0},
					       {"--kind", NULL, &kind, NULL, 0, 0},
					       {"--adapters", NULL, NULL, &x.adapters, 0, 0},
					       {"--loose", NULL, NULL, &x.loose, 0, 0},
					       {"--tiny", NULL, NULL, &x.tiny, 0, 0}};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &path);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return bench_complain(CMD_EXIT_USAGE, "model needs a file or random:SHAPE:TYPE");
	return run_model(&x, path, kind);
}
