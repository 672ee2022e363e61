/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend around the inner loops of an instruction set: memory, threads, pages and the table
 * of operations. Weights stay where the file's mapping has them. Operations run at once in the
 * caller's thread and the pool's; step_end has nothing to wait for.
 *
 * Work is split by outputs or by (row, head), never along a reduction, so threads change no result.
 * Small jobs stay in the caller's thread: a fork and join costs more than they do.
 */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool.h"

enum {
	MIN_PART = 1 << 17, /* multiply-adds worth a part of their own: some 10 µs */
	OUT_STEP = 16,      /* outputs of a part are a multiple of it: one cache line of y */
};

struct kn_backend {
	const struct kn_isa *isa;
	struct kn_pool *pool;
	const struct kn_step *step;
	/* Of each thread: decoded weights, half a second-level cache of them, or more where the longest
	 * rows there are need it. */
	float *tiles;
	size_t tile_floats;
	/* cosines and sines of the step's rows for one rotation, the same in every layer:
	 * [n_rows][n_rot / 2] each, in one block. */
	float *turns;
	size_t n_turns; /* floats there is room for */
	bool turned;    /* they are this step's, for `rope` */
	struct kn_rope rope;
	char line[64];
};

static int n_cpus(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int open_isa(const struct kn_isa *isa, const struct kn_config *cfg, struct kn_backend **out,
		    struct sl_err *err)
{
	struct kn_backend *b = sl_zalloc(sizeof *b);
	if (b == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the CPU backend");
	int rc = kn_pool_create(cfg->n_threads > 0 ? cfg->n_threads : n_cpus(), &b->pool, err);
	if (rc != 0) {
		sl_free(b);
		return rc;
	}
	b->isa = isa;
	snprintf(b->line, sizeof b->line, "%s, %d threads", isa->name, kn_pool_n_threads(b->pool));
	*out = b;
	return 0;
}

static void cpu_close(struct kn_backend *b)
{
	kn_pool_destroy(b->pool);
	sl_free(b->turns);
	free(b->tiles);
	sl_free(b);
}

static const char *cpu_describe(struct kn_backend *b)
{
	return b->line;
}

static int cpu_mem_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	size_t rounded;
	(void)b;
	if (bytes == 0 || __builtin_add_overflow(bytes, KN_ALIGN - 1, &rounded))
		return SL_ENOMEM;
	rounded = rounded / KN_ALIGN * KN_ALIGN;
	void *p = aligned_alloc(KN_ALIGN, rounded);
	if (p == NULL)
		return SL_ENOMEM;
	memset(p, 0, rounded);
	*out = p;
	return 0;
}

static void cpu_mem_free(struct kn_backend *b, void *p)
{
	(void)b;
	free(p);
}

/* Bytes of half a second-level cache. */
static size_t half_cache(void)
{
	long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
	return bytes >= 1 << 19 && bytes <= 1 << 24 ? (size_t)bytes / 2 : 1 << 18;
}

/* Room for the tiles of rows of n_in weights. */
static int reserve_tiles(struct kn_backend *b, int n_in)
{
	size_t floats = kn_least_tile(n_in), half = half_cache() / KN_ALIGN * KN_ALIGN / sizeof(float), bytes;
	void *tiles;
	if (floats < half)
		floats = half;
	if (floats <= b->tile_floats)
		return 0;
	if (__builtin_mul_overflow(floats, (size_t)kn_pool_n_threads(b->pool) * sizeof(float), &bytes) ||
	    cpu_mem_alloc(b, bytes, &tiles) != 0)
		return SL_ENOMEM;
	free(b->tiles);
	b->tiles = tiles;
	b->tile_floats = floats;
	return 0;
}

static int cpu_weight_load(struct kn_backend *b, const void *host, int type, int n_out, int n_in,
			   struct kn_weight *out, struct sl_err *err)
{
	if (kn_type_block(type) == 0)
		return sl_errf(err, SL_EUNSUPPORTED, "weights of type %s are not supported", kn_type_name(type));
	if (reserve_tiles(b, n_in) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory to decode weight rows of %d", n_in);
	*out = (struct kn_weight){.data = host, .type = type, .n_out = n_out, .n_in = n_in};
	return 0;
}

static void cpu_weight_free(struct kn_backend *b, struct kn_weight *w)
{
	(void)b;
	w->data = NULL;
}

static int cpu_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	b->step = s;
	b->turned = false;
	kn_pool_wake(b->pool);
	return 0;
}

static int cpu_step_end(struct kn_backend *b)
{
	b->step = NULL;
	return 0;
}

/* ---- products ---- */

struct product {
	const struct kn_backend *b;
	const struct kn_weight *w;
	const float *x;
	int n_rows;
	float *y;
	int n_parts;
};

/* The first output of a part; part n_parts is the end. */
static int first_output(const struct product *p, int part)
{
	if (part == p->n_parts)
		return p->w->n_out;
	return (int)((int64_t)p->w->n_out * part / p->n_parts) / OUT_STEP * OUT_STEP;
}

static void run_product(void *ctx, int part)
{
	const struct product *p = ctx;
	int o0 = first_output(p, part), o1 = first_output(p, part + 1);
	if (o0 < o1)
		p->b->isa->matmul(p->w, o0, o1, p->x, p->n_rows, p->y,
				  p->b->tiles + (size_t)kn_pool_self() * p->b->tile_floats, p->b->tile_floats);
}

/* How many parts work multiply-adds are worth: none smaller than MIN_PART, a few for each thread so
 * that a thread that was held up does not hold up all. */
static int parts_of(const struct kn_backend *b, int64_t work)
{
	int64_t most = (int64_t)kn_pool_n_threads(b->pool) * 4, parts = work / MIN_PART;
	return parts < 2 ? 1 : (int)(parts < most ? parts : most);
}

static void run_parts(struct kn_backend *b, int n_parts, void (*run)(void *ctx, int i), void *ctx)
{
	if (n_parts == 1)
		run(ctx, 0);
	else
		kn_pool_run(b->pool, n_parts, run, ctx);
}

static int cpu_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	struct product p = {.b = b, .w = w, .x = x, .n_rows = n_rows, .y = y};
	p.n_parts = parts_of(b, (int64_t)w->n_out * w->n_in * n_rows);
	run_parts(b, p.n_parts, run_product, &p);
	return 0;
}

static int cpu_embed(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	for (int r = 0; r < b->step->n_rows; r++)
		kn_dequantize_row(w, b->step->row_token[r], y + (size_t)r * (size_t)w->n_in);
	return 0;
}

/* ---- rows ---- */

static int cpu_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows,
		       int width, float *y)
{
	for (int r = 0; r < n_rows; r++, x += width, y += width) {
		float scale = 1.0f / sqrtf(b->isa->sum_squares(x, width) / (float)width + eps);
		for (int i = 0; i < width; i++)
			y[i] = x[i] * scale * gain[i];
	}
	return 0;
}

static int cpu_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
	return 0;
}

static int cpu_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] += y[i];
	return 0;
}

static int cpu_gather(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y)
{
	(void)b;
	for (int i = 0; i < n; i++)
		memcpy(y + (size_t)i * (size_t)width, x + (size_t)rows[i] * (size_t)width,
		       (size_t)width * sizeof *y);
	return 0;
}

static int cpu_read_back(struct kn_backend *b, const float *src, size_t n, float *host)
{
	(void)b;
	memcpy(host, src, n * sizeof *host);
	return 0;
}

/* ---- keys and values ---- */

/* Floats from the start of k or v to token `token` of a page in one layer. */
static size_t page_offset(const struct kn_kv *kv, int layer, int32_t page, int token)
{
	BUG_IF(page < 0 || page >= kv->n_pages, "page %d of %d", page, kv->n_pages);
	return (((size_t)page * (size_t)kv->n_layers + (size_t)layer) * (size_t)kv->page_tokens +
		(size_t)token) * (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
}

static int32_t page_of(const struct kn_step *s, int32_t seq, int page_index)
{
	return s->page_table[(size_t)seq * (size_t)s->max_pages + (size_t)page_index];
}

static void rotate(float *head, int n_rot, const float *cosines, const float *sines)
{
	for (int i = 0; i < n_rot / 2; i++) {
		float a = head[2 * i], c = head[2 * i + 1];
		head[2 * i] = a * cosines[i] - c * sines[i];
		head[2 * i + 1] = a * sines[i] + c * cosines[i];
	}
}

/* In double: a float angle of a late position would be off by more than the result may be. */
static void angles(const struct kn_rope *rope, int32_t pos, float *cosines, float *sines)
{
	for (int i = 0; i < rope->n_rot / 2; i++) {
		double angle = (double)pos * pow((double)rope->freq_base, -2.0 * i / rope->n_rot) *
			       (double)rope->freq_scale;
		if (rope->factors != NULL)
			angle /= (double)rope->factors[i];
		cosines[i] = (float)cos(angle);
		sines[i] = (float)sin(angle);
	}
}

static bool same_rope(const struct kn_rope *a, const struct kn_rope *b)
{
	return a->n_rot == b->n_rot && a->freq_base == b->freq_base && a->freq_scale == b->freq_scale &&
	       a->factors == b->factors;
}

/* The turns of the step's rows, computed at its first layer. SL_EIO without memory. */
static int turns_of_step(struct kn_backend *b, const struct kn_rope *rope)
{
	const struct kn_step *s = b->step;
	if (b->turned && same_rope(&b->rope, rope))
		return 0;
	size_t half = (size_t)rope->n_rot / 2, need = 2 * half * (size_t)s->n_rows;
	if (need > b->n_turns) {
		float *grown = sl_realloc_n(b->turns, need, sizeof *grown);
		if (grown == NULL)
			return SL_EIO;
		b->turns = grown;
		b->n_turns = need;
	}
	for (int r = 0; r < s->n_rows; r++)
		angles(rope, s->row_pos[r], b->turns + (size_t)r * 2 * half, b->turns + ((size_t)r * 2 + 1) * half);
	b->rope = *rope;
	b->turned = true;
	return 0;
}

static int cpu_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads,
			     float *k, const float *v, const struct kn_kv *kv, int layer)
{
	const struct kn_step *s = b->step;
	size_t hd = (size_t)kv->head_dim, width = (size_t)kv->n_kv_heads * hd;
	size_t half = (size_t)rope->n_rot / 2;
	int rc = turns_of_step(b, rope);
	if (rc != 0)
		return rc;
	for (int r = 0; r < s->n_rows; r++, k += width, v += width) {
		int32_t pos = s->row_pos[r];
		const float *cosines = b->turns + (size_t)r * 2 * half, *sines = cosines + half;
		for (int h = 0; h < n_heads; h++, q += hd)
			rotate(q, rope->n_rot, cosines, sines);
		for (int h = 0; h < kv->n_kv_heads; h++)
			rotate(k + (size_t)h * hd, rope->n_rot, cosines, sines);
		size_t at = page_offset(kv, layer, page_of(s, s->row_seq[r], pos / kv->page_tokens),
					pos % kv->page_tokens);
		memcpy((float *)kv->k + at, k, width * sizeof *k);
		memcpy((float *)kv->v + at, v, width * sizeof *v);
	}
	return 0;
}

static int cpu_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	(void)b;
	size_t from = page_offset(kv, 0, src, 0), to = page_offset(kv, 0, dst, 0);
	size_t bytes = (size_t)kv->n_layers * (size_t)kv->page_tokens * (size_t)kv->n_kv_heads *
		       (size_t)kv->head_dim * sizeof(float);
	memcpy((float *)kv->k + to, (float *)kv->k + from, bytes);
	memcpy((float *)kv->v + to, (float *)kv->v + from, bytes);
	return 0;
}

/* ---- attention ---- */

struct attention {
	const struct kn_backend *b;
	const float *q;
	int n_heads;
	const struct kn_kv *kv;
	int layer;
	float scale;
	float *out;
	int n_parts;
};

/* One row and head: online softmax over absolute blocks of KN_ATTN_BLOCK positions, left to right
 * (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). Within a block scores are
 * taken page by page, which changes no order. */
static void attend(const struct attention *a, int row, int head)
{
	const struct kn_step *s = a->b->step;
	const struct kn_kv *kv = a->kv;
	const struct kn_isa *isa = a->b->isa;
	size_t hd = (size_t)kv->head_dim, stride = (size_t)kv->n_kv_heads * hd;
	size_t head_at = (size_t)(head / (a->n_heads / kv->n_kv_heads)) * hd;
	size_t at = ((size_t)row * (size_t)a->n_heads + (size_t)head) * hd;
	int n = s->row_pos[row] + 1;
	float p[KN_ATTN_BLOCK], max = -INFINITY, sum = 0;
	float *out = a->out + at;
	memset(out, 0, hd * sizeof *out);
	for (int start = 0; start < n; start += KN_ATTN_BLOCK) {
		int end = n < start + KN_ATTN_BLOCK ? n : start + KN_ATTN_BLOCK;
		int run;
		for (int i = start; i < end; i += run) {
			int token = i % kv->page_tokens;
			run = kv->page_tokens - token < end - i ? kv->page_tokens - token : end - i;
			size_t k = page_offset(kv, a->layer, page_of(s, s->row_seq[row], i / kv->page_tokens), token);
			isa->scores(a->q + at, (float *)kv->k + k + head_at, stride, run, kv->head_dim, a->scale,
				    p + (i - start));
		}
		float before = max;
		for (int i = 0; i < end - start; i++)
			max = p[i] > max ? p[i] : max;
		if (start > 0 && max > before) {
			float shrink = expf(before - max);
			sum *= shrink;
			for (size_t d = 0; d < hd; d++)
				out[d] *= shrink;
		}
		for (int i = 0; i < end - start; i++) {
			p[i] = expf(p[i] - max);
			sum += p[i];
		}
		for (int i = start; i < end; i += run) {
			int token = i % kv->page_tokens;
			run = kv->page_tokens - token < end - i ? kv->page_tokens - token : end - i;
			size_t v = page_offset(kv, a->layer, page_of(s, s->row_seq[row], i / kv->page_tokens), token);
			isa->weigh(p + (i - start), (float *)kv->v + v + head_at, stride, run, kv->head_dim, out);
		}
	}
	for (size_t d = 0; d < hd; d++)
		out[d] /= sum;
}

static void run_attention(void *ctx, int part)
{
	const struct attention *a = ctx;
	int64_t n = (int64_t)a->b->step->n_rows * a->n_heads;
	for (int64_t i = n * part / a->n_parts; i < n * (part + 1) / a->n_parts; i++)
		attend(a, (int)(i / a->n_heads), (int)(i % a->n_heads));
}

static int cpu_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
			 float scale, float *out)
{
	struct attention a = {.b = b, .q = q, .n_heads = n_heads, .kv = kv, .layer = layer, .scale = scale,
			      .out = out};
	int64_t positions = 0;
	for (int r = 0; r < b->step->n_rows; r++)
		positions += b->step->row_pos[r] + 1;
	/* A score costs a product and a weighing, and an exponential worth some thirty multiply-adds. */
	a.n_parts = parts_of(b, positions * n_heads * (2 * kv->head_dim + 32));
	run_parts(b, a.n_parts, run_attention, &a);
	return 0;
}

/* ---- the tables ---- */

#define OPERATIONS                                                                                     \
	.close = cpu_close, .describe = cpu_describe, .mem_alloc = cpu_mem_alloc,                      \
	.mem_free = cpu_mem_free, .weight_load = cpu_weight_load, .weight_free = cpu_weight_free,      \
	.step_begin = cpu_step_begin, .step_end = cpu_step_end, .embed = cpu_embed,                    \
	.rmsnorm = cpu_rmsnorm, .matmul = cpu_matmul, .rope_kv_write = cpu_rope_kv_write,              \
	.attention = cpu_attention, .silu_mul = cpu_silu_mul, .add = cpu_add, .gather = cpu_gather,    \
	.read_back = cpu_read_back, .page_copy = cpu_page_copy

static int open_avx2(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	return open_isa(&kn_isa_avx2, cfg, out, err);
}

static int open_avx512(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	return open_isa(&kn_isa_avx512, cfg, out, err);
}

const struct kn_ops kn_avx2_ops = {.name = "cpu-avx2", .open = open_avx2, OPERATIONS};
const struct kn_ops kn_avx512_ops = {.name = "cpu-avx512", .open = open_avx512, OPERATIONS};
