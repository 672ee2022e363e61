/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend around the inner loops of an instruction set: memory, threads, pages and the table of operations.
 * Weights stay in the file's mapping or are interleaved (weights.c). Operations run synchronously, on the caller's
 * thread and the pool's.
 *
 * Work is split by outputs or by (row, head), never along a reduction, so the number of threads changes no result.
 * Small jobs stay on the caller's thread, because a fork and join would cost more than the job.
 *
 * VERSIONS of dividing a product among threads (a step of one row of the 1B shape, Q8_0, two threads of an AVX2
 * machine)
 *   1  four equal parts per thread. One thread waited for the other for 4.6 of 54.7 ms, besides 0.8 ms for silu on one
 *      thread
 *   2  half of the rest, divided by the number of threads, down to some microseconds' worth. Waiting 0.3 ms.
 *      Expected: 4 ms less. Measured: 0 to 6 % less, as a thread that does not wait reads faster.
 *   3  this: with few rows a thread takes its next share before it computes one, and prefetches how that begins.
 */
#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/places.h"

enum {
	SOON = 1 << 18, /* bytes of the next product that each thread prefetches */
	SHARES = 2,     /* shares per thread of a product's remaining outputs */
	MANY_ROWS = 16,
	MANY_TILES = 16, /* smallest such share */
	PACK_ROWS = 256, /* rows packed at a time: one or two L2 caches */
};

static int n_cpus(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The caller of the pool keeps what it may use: other threads of the process start from it. */
static void pin(struct kn_pool *pool, const struct kn_config *cfg)
{
	const int n = kn_pool_n_threads(pool);
	const char *why = "no memory";
	char line[256];
	int failed = 0;
	cpu_set_t allowed, its;
	if (n < 2)
		return; /* the caller computes alone */
	struct places *p = sl_zalloc(sizeof *p);
	if (p == NULL || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
	    !places_make("", &allowed, n, cfg->pin, p, &why)) {
		log_debug("threads are not pinned: %s", why);
		sl_free(p);
		return;
	}
	for (int i = 1; i < n; i++) {
		places_of(p, i, &its);
		failed += kn_pool_pin(pool, i, &its) != 0;
	}
	places_print(p, line, sizeof line);
	log_debug("threads pinned to %s: %s%s", p->single ? "one processor each" : "their node's processors", line,
		  failed > 0 ? "; the system does not let all of them" : "");
	sl_free(p);
}

static int open_isa(const struct kn_isa *isa, const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	if (cfg->fp8_weights)
		return sl_errf(err, SL_EUNSUPPORTED, "the CPU backend has no weights of type fp8");
	struct kn_backend *b = sl_zalloc(sizeof *b);
	if (b == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the CPU backend");
	int rc = kn_pool_create(cfg->n_threads > 0 ? cfg->n_threads : n_cpus(), &b->pool, err);
	if (rc != 0) {
		sl_free(b);
		return rc;
	}
	b->isa = isa;
	pin(b->pool, cfg);
	snprintf(b->line, sizeof b->line, "%s, %d threads", isa->name, kn_pool_n_threads(b->pool));
	*out = b;
	return 0;
}

static void cpu_close(struct kn_backend *b)
{
	kn_pool_destroy(b->pool);
	for (int i = 0; i < KN_N_ROPES; i++)
		sl_free(b->turns[i].at);
	sl_free(b->sums);
	sl_free(b->order);
	kn_by_expert_free(b->by_expert);
	kn_expert_rows_free(b->expert_rows);
	kn_pieces_free(b->pieces);
	kn_memory_give(b->tiles);
	kn_memory_give(b->packed);
	kn_memory_give(b->lora_tiles);
	sl_free(b);
}

static const char *cpu_describe(struct kn_backend *b) { return b->line; }

/* Bytes of half an L2 cache. */
static size_t half_cache(void)
{
	long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
	return bytes >= 1 << 19 && bytes <= 1 << 24 ? (size_t)bytes / 2 : 1 << 18;
}

int kn_reserve_bytes(void **at, size_t *have, size_t bytes)
{
	void *grown;
	if (bytes <= *have)
		return 0;
	if (kn_memory_take(bytes, &grown) != 0)
		return SL_ENOMEM;
	kn_memory_give(*at);
	*at = grown;
	*have = bytes;
	return 0;
}

/* Room for the tiles of rows of n_in weights. */
static int reserve_tiles(struct kn_backend *b, int n_in)
{
	size_t each = kn_least_tile(n_in) * sizeof(float), half = half_cache() / KN_ALIGN * KN_ALIGN, bytes;
	each = each > half ? each : half;
	if (__builtin_mul_overflow(each, (size_t)kn_pool_n_threads(b->pool), &bytes) ||
	    kn_reserve_bytes(&b->tiles, &b->tiles_bytes, bytes) != 0)
		return SL_ENOMEM;
	b->tile_floats = b->tiles_bytes / (size_t)kn_pool_n_threads(b->pool) / sizeof(float);
	return 0;
}

int kn_reserve_packed(struct kn_backend *b, int n_rows, int n_in, size_t least)
{
	size_t bytes = b->isa->packs == NULL ? 0 : b->isa->packed_bytes(n_rows, n_in) + KN_ALIGN;
	return bytes == 0 ? 0 : kn_reserve_bytes(&b->packed, &b->packed_bytes, bytes > least ? bytes : least);
}

/* Room for one more weight in the order of products. */
static int reserve_order(struct kn_backend *b)
{
	struct kn_first *grown = sl_realloc_n(b->order, (size_t)b->room + 1, sizeof *grown);
	if (grown == NULL)
		return SL_ENOMEM;
	b->order = grown;
	b->room++;
	return 0;
}

static int reserve(struct kn_backend *b, int n_in)
{
	return reserve_tiles(b, n_in) != 0 || kn_reserve_packed(b, PACK_ROWS, n_in, 0) != 0 || reserve_order(b) != 0
		   ? SL_ENOMEM
		   : 0;
}

static int cpu_weight_load(struct kn_backend *b, const void *host, int type, int n_out, int n_in, struct kn_weight *out,
			   struct sl_err *err)
{
	if (kn_type_block(type) == 0)
		return sl_errf(err, SL_EUNSUPPORTED, "weights of type %s are not supported", kn_type_name(type));
	if (reserve(b, n_in) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory to decode weight rows of %d", n_in);
	*out = (struct kn_weight){.data = host, .type = type, .n_out = n_out, .n_in = n_in};
	if (b->isa->interleaves != NULL && b->isa->interleaves(type))
		return kn_weight_interleave(b, out, err);
	return 0;
}

static int cpu_weight_adopt(struct kn_backend *b, const void *made, size_t bytes, int type, int n_out, int n_in,
			    struct kn_weight *out, struct sl_err *err)
{
	if (b->isa->interleaves == NULL || kn_type_block(type) == 0 || !b->isa->interleaves(type))
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s makes nothing of weights of type %s", b->isa->name,
			       kn_type_name(type));
	if (reserve(b, n_in) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory to decode weight rows of %d", n_in);
	return kn_weight_adopt(made, bytes, type, n_out, n_in, out, err);
}

/* Prefetches the start of the next product, assuming the order of the last step. */
static void tell_next(struct kn_backend *b)
{
	if (b->at_product < b->n_order)
		kn_pool_soon(b->pool, b->order[b->at_product].at, b->order[b->at_product].stride,
			     b->order[b->at_product].bytes);
}

static int cpu_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	b->step = s;
	for (int i = 0; i < KN_N_ROPES; i++)
		b->turns[i].inv_freq = NULL;
	b->packed_of = NULL;
	b->work = 0;
	b->at_product = 0;
	tell_next(b);
	b->lone = b->row_work > 0 && b->row_work * s->n_rows < KN_LONE_STEP;
	if (!b->lone)
		kn_pool_wake(b->pool);
	return 0;
}

static int cpu_step_end(struct kn_backend *b)
{
	b->row_work = b->step->n_rows > 0 ? b->work / b->step->n_rows : 0;
	b->lone = false;
	b->step = NULL;
	b->packed_of = NULL;
	kn_pool_rest(b->pool);
	return 0;
}

/* ---- products ---- */

/* Free threads take a product's outputs a share at a time. A share is a fraction of the rest, so all threads end at
 * about the same time even if one is delayed, with few shares in total. */
struct product {
	const struct kn_backend *b;
	const struct kn_weight *w;
	const float *x;
	int n_rows;
	float *y;
	bool packed;      /* b->packed instead of x */
	int n_parts;      /* of a packing, or threads of a product */
	int least;        /* outputs in a share */
	atomic_int taken; /* outputs */
};

/* Outputs o0 to o1 - 1. */
struct share {
	int o0, o1;
};

/* False: there is none. */
static bool take_share(struct product *p, struct share *out)
{
	const int step = p->b->isa->tile_outputs, n_out = p->w->n_out;
	int from = atomic_load_explicit(&p->taken, memory_order_relaxed), n;
	do {
		if (from >= n_out)
			return false;
		n = (n_out - from) / (p->n_parts * SHARES) / step * step;
		n = n > p->least ? n : p->least;
		n = n < n_out - from ? n : n_out - from;
	} while (!atomic_compare_exchange_weak_explicit(&p->taken, &from, from + n, memory_order_relaxed,
							memory_order_relaxed));
	*out = (struct share){from, from + n};
	return true;
}

static void run_product(void *ctx, int part)
{
	struct product *p = ctx;
	const struct kn_backend *b = p->b;
	float *tile = (float *)b->tiles + (size_t)kn_pool_self() * b->tile_floats;
	const bool few = p->n_rows <= MANY_ROWS;
	struct share now, next = {0};
	(void)part;
	for (bool more = take_share(p, &now); more; now = next) {
		/* Few rows: the next share's first weights are brought before this one is computed. */
		if (few && (more = take_share(p, &next)))
			kn_bring_share(b, p->w, next.o0);
		if (p->packed)
			b->isa->matmul_packed(p->w, now.o0, now.o1, b->packed, p->n_rows, p->y, tile, b->tile_floats);
		else
			b->isa->matmul(p->w, now.o0, now.o1, p->x, p->n_rows, p->y, tile, b->tile_floats);
		if (!few)
			more = take_share(p, &next);
	}
}

static void run_packing(void *ctx, int part)
{
	const struct product *p = ctx;
	p->b->isa->pack(p->w->type, p->x, p->n_rows, p->w->n_in, part, p->n_parts, p->b->packed);
}

/* The first share that a thread takes. */
static int first_share(const struct kn_backend *b, const struct kn_weight *w)
{
	return w->n_out / (kn_pool_n_threads(b->pool) * SHARES) / b->isa->tile_outputs * b->isa->tile_outputs;
}

/* Records this product's position in the step and prefetches the one that followed it in the last step. */
static void note_product(struct kn_backend *b, const struct kn_weight *w)
{
	if (b->at_product >= b->room)
		return;
	size_t share = (size_t)first_share(b, w) * kn_row_bytes(w->type & ~KN_INTERLEAVED, (size_t)w->n_in);
	b->order[b->at_product++] =
	    (struct kn_first){.at = w->data, .stride = share, .bytes = share < SOON ? share : SOON};
	tell_next(b);
	if (b->at_product > b->n_order)
		b->n_order = b->at_product;
}

static void run_shares(struct kn_backend *b, struct product *p)
{
	const int step = b->isa->tile_outputs;
	int64_t each = (int64_t)p->w->n_in * p->n_rows;
	if (each == 0)
		return;
	int64_t least = KN_MIN_SHARE / each / step * step;
	atomic_store_explicit(&p->taken, 0, memory_order_relaxed);
	p->n_parts = kn_parts_of(b, each * p->w->n_out) == 1 ? 1 : kn_pool_n_threads(b->pool);
	/* With many rows, decoding pays off more the larger the share that is kept for all rows. */
	p->least = p->n_parts == 1         ? p->w->n_out
		   : p->n_rows > MANY_ROWS ? MANY_TILES * step
		   : least > step          ? (int)least
					   : step;
	kn_run_parts(b, p->n_parts, run_product, p);
}

static int matmul_packed(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	for (int r = 0; r < n_rows; r += PACK_ROWS) {
		struct product p = {.b = b,
				    .w = w,
				    .x = x + (size_t)r * (size_t)w->n_in,
				    .y = y + (size_t)r * (size_t)w->n_out,
				    .packed = true};
		p.n_rows = n_rows - r < PACK_ROWS ? n_rows - r : PACK_ROWS;
		if (b->packed_of != p.x || b->packed_rows != p.n_rows || b->packed_width != w->n_in ||
		    !b->isa->packs_alike) {
			p.n_parts = kn_parts_of(b, (int64_t)p.n_rows * w->n_in * KN_PACK_COST);
			kn_run_parts(b, p.n_parts, run_packing, &p);
			b->packed_of = p.x;
			b->packed_rows = p.n_rows;
			b->packed_width = w->n_in;
		}
		run_shares(b, &p);
	}
	return 0;
}

/* Whether writing y, n floats, may have changed the packed activations' source. */
static bool touches_packed(const struct kn_backend *b, const float *y, size_t n)
{
	uintptr_t x0 = (uintptr_t)b->packed_of, y0 = (uintptr_t)y;
	size_t all = (size_t)b->packed_rows * (size_t)b->packed_width;
	return b->packed_of != NULL && y0 < x0 + all * sizeof *y && x0 < y0 + n * sizeof *y;
}

static int cpu_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	b->work += (int64_t)w->n_out * w->n_in * n_rows;
	note_product(b, w);
	if (b->isa->packs != NULL && b->isa->packs(w->type)) {
		int rc = matmul_packed(b, w, x, n_rows, y);
		if (touches_packed(b, y, (size_t)n_rows * (size_t)w->n_out))
			b->packed_of = NULL;
		return rc;
	}
	b->packed_of = NULL;
	struct product p = {.b = b, .w = w, .x = x, .n_rows = n_rows, .y = y};
	run_shares(b, &p);
	return 0;
}

/* ---- rows copied ---- */

static int cpu_embed(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	b->packed_of = NULL;
	for (int r = 0; r < b->step->n_rows; r++) {
		float *to = y + (size_t)r * (size_t)w->n_in;
		if ((w->type & KN_INTERLEAVED) != 0)
			kn_interleaved_row(w, b->step->row_token[r], to);
		else
			kn_dequantize_row(w, b->step->row_token[r], to);
	}
	return 0;
}

static int cpu_gather(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y)
{
	b->packed_of = NULL;
	return kn_host_gather(b, x, rows, n, width, y);
}

/* ---- the tables ---- */

#define OPERATIONS                                                                                      \
	.close = cpu_close, .describe = cpu_describe, .weight_load = cpu_weight_load,                   \
	.weight_adopt = cpu_weight_adopt, .made_layout = KN_INT8_LAYOUT, .step_begin = cpu_step_begin,  \
	.step_end = cpu_step_end, .step_issue = cpu_step_end, .embed = cpu_embed, .matmul = cpu_matmul, \
	.gather = cpu_gather, .sinks = true, .rotates = true, KN_HOST_OPS(KN_HOST_ENTRY) KN_CPU_OPS(KN_CPU_ENTRY)

#define BACKEND(set, its_name, eight)                                                                   \
	static int open_##set(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err) \
	{                                                                                               \
		return open_isa(&kn_isa_##set, cfg, out, err);                                          \
	}                                                                                               \
	const struct kn_ops kn_##set##_ops = {.name = its_name, .eight_bits = eight, .open = open_##set, OPERATIONS};

BACKEND(avx2, "cpu-avx2", false)
BACKEND(avx2_int8, "cpu-avx2-int8", true)
BACKEND(avx512, "cpu-avx512", false)
BACKEND(vnni, "cpu-vnni", true)
BACKEND(amx, "cpu-amx", false)
BACKEND(amx_int8, "cpu-amx-int8", true)
