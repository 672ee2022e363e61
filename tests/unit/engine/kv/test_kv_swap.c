/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages in the host's memory: a random walk of going out and coming back against what was in them, of every type of
 * keys and values; no room, no memory, a device that fails. And the plan of a device's memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "engine/core/device_memory.h"
#include "engine/kv/kv_swap.h"
#include "kernels/kv_type.h"

enum { PAGES = 24, TOKENS = 4, LAYERS = 2, KV_HEADS = 2, HEAD = 8, PLACES = 10, SEQS = 6 };

static struct kn_ops ops; /* the reference's, with a host beside it */
static struct kn_backend *backend;
static struct kv_pool *pool;
static struct kv_swap *swap;
static int copies_left = -1; /* until one fails; -1: never */
static int host_live;
static uint64_t state = 1;

static uint32_t next_bits(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

static uint8_t *half_of(const struct kn_kv *kv, bool keys, int page)
{
	return (uint8_t *)(keys ? kv->k : kv->v) + (size_t)page * kn_kv_page_bytes(kv);
}

static int page_out(struct kn_backend *b, const struct kn_kv *kv, int page, void *host)
{
	(void)b;
	if (copies_left == 0)
		return SL_EIO;
	copies_left -= copies_left > 0;
	memcpy(host, half_of(kv, true, page), kn_kv_page_bytes(kv));
	memcpy((uint8_t *)host + kn_kv_page_bytes(kv), half_of(kv, false, page), kn_kv_page_bytes(kv));
	return 0;
}

static int page_in(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page)
{
	(void)b;
	if (copies_left == 0)
		return SL_EIO;
	copies_left -= copies_left > 0;
	memcpy(half_of(kv, true, page), host, kn_kv_page_bytes(kv));
	memcpy(half_of(kv, false, page), (const uint8_t *)host + kn_kv_page_bytes(kv), kn_kv_page_bytes(kv));
	return 0;
}

static int host_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	(void)b;
	if (bytes > (size_t)1 << 40)
		return SL_ENOMEM;
	*out = malloc(bytes);
	host_live += *out != NULL;
	return *out != NULL ? 0 : SL_ENOMEM;
}

static void host_free(struct kn_backend *b, void *p)
{
	(void)b;
	host_live--;
	free(p);
}

static int settle(struct kn_backend *b)
{
	(void)b;
	return copies_left == 0 ? SL_EIO : 0;
}

static void begin(int type)
{
	struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 64};
	struct sl_err err;
	ops = *kn_available()[0];
	ops.page_out = page_out;
	ops.page_in = page_in;
	ops.host_alloc = host_alloc;
	ops.host_free = host_free;
	ops.settle = settle;
	assert_int_equal(ops.open(&cfg, &backend, &err), 0);
	assert_int_equal(kv_pool_create(&ops, backend, type, PAGES, TOKENS, LAYERS, KV_HEADS, HEAD, &pool, &err), 0);
	uint64_t bytes = (uint64_t)PLACES * kv_page_bytes(type, TOKENS, LAYERS, KV_HEADS, HEAD);
	assert_int_equal(kv_swap_create(&ops, backend, pool, bytes + 1, &swap, &err), 0);
	assert_int_equal(kv_swap_n_slots(swap), PLACES);
	assert_int_equal(kv_swap_n_free(swap), PLACES);
	assert_int_equal(kv_pool_n_free(pool), PAGES);
	assert_true(kv_swap_ns(swap, 4) > 0 && kv_swap_ns(swap, 0) == 0);
}

static void end(void)
{
	kv_swap_destroy(swap);
	kv_pool_destroy(pool);
	ops.close(backend);
	assert_int_equal(host_live, 0);
}

static void fill(int32_t page, uint8_t seed)
{
	const struct kn_kv *kv = kv_pool_layout(pool);
	for (size_t i = 0; i < kn_kv_page_bytes(kv); i++) {
		half_of(kv, true, page)[i] = (uint8_t)(seed + 3 * i);
		half_of(kv, false, page)[i] = (uint8_t)(seed + 5 * i + 1);
	}
}

static bool has(int32_t page, uint8_t seed)
{
	const struct kn_kv *kv = kv_pool_layout(pool);
	for (size_t i = 0; i < kn_kv_page_bytes(kv); i++)
		if (half_of(kv, true, page)[i] != (uint8_t)(seed + 3 * i) ||
		    half_of(kv, false, page)[i] != (uint8_t)(seed + 5 * i + 1))
			return false;
	return true;
}

/* A row of page tables: of three groups, one of them full. */
enum { ROW = 8, GROUPS = 3, FIRST = 2 };

static void each_page(const struct kv_swapped *w, int32_t *row, void (*see)(int32_t *page, int i, void *ctx), void *ctx)
{
	const struct kv_groups *g = kv_pool_groups(pool);
	int n = 0;
	for (uint32_t i = w->first; i < w->end; i++)
		for (uint32_t k = 0; k < (i >= w->first_windowed ? g->n_groups : g->n_full); k++)
			see(&row[k * ROW + i], n++, ctx);
}

static void take_one(int32_t *page, int i, void *ctx)
{
	const int *seed = ctx; /* negative: none */
	assert_int_equal(kv_page_alloc(pool, page), 0);
	fill(*page, *seed < 0 ? 0 : (uint8_t)(*seed + i));
}

static void check_one(int32_t *page, int i, void *ctx) { assert_true(has(*page, (uint8_t)(*(int *)ctx + i))); }

static void give_one(int32_t *page, int i, void *ctx)
{
	(void)i, (void)ctx;
	kv_page_unref(pool, *page);
}

static void swap_around(const struct kv_groups *g)
{
	struct kv_swapped of[SEQS] = {0};
	int seeds[SEQS] = {0}, n_full = 0, n_back = 0, none = -1;
	if (g != NULL)
		kv_pool_set_groups(pool, g, NULL);
	for (int step = 0; step < 600; step++) {
		uint32_t i = next_bits() % SEQS;
		int32_t row[GROUPS * ROW];
		if (of[i].n_pages > 0 && next_bits() % 4 == 0) {
			kv_swap_drop(swap, &of[i]); /* cancelled */
			continue;
		}
		struct kv_swapped w = of[i];
		if (w.n_pages > 0) {
			uint32_t n = kv_swap_count(swap, &w, w.first, w.end);
			assert_int_equal(n, w.n_pages);
			each_page(&w, row, take_one, &none);
			for (uint32_t p = w.end; p-- > FIRST;)
				assert_int_equal(kv_swap_in(swap, &of[i], p, row, ROW), 0);
			each_page(&w, row, check_one, &seeds[i]);
			kv_swap_drop(swap, &of[i]);
			n_back++;
		} else {
			uint32_t there = kv_swap_n_free(swap);
			w.first = FIRST;
			w.end = FIRST + 1 + next_bits() % 5;
			w.first_windowed = next_bits() % (w.end + 1);
			w.n_past = w.end * TOKENS - 1;
			uint32_t n = kv_swap_count(swap, &w, w.first, w.end);
			each_page(&w, row, take_one, &step);
			of[i] = w;
			int rc = kv_swap_out(swap, row, ROW, &of[i]);
			assert_int_equal(rc, n > there ? SL_ELIMIT : 0);
			assert_int_equal(kv_swap_n_free(swap), n > there ? there : there - n);
			assert_int_equal(of[i].end, n > there ? 0 : w.end);
			seeds[i] = step;
			n_full += rc != 0;
		}
		each_page(&w, row, give_one, NULL);
	}
	assert_true(n_full > 10 && n_back > 100);
	for (int i = 0; i < SEQS; i++)
		kv_swap_drop(swap, &of[i]);
}

static void walk(void **arg)
{
	(void)arg;
	static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_KV_Q8, KN_FP8};
	static const struct kv_groups mixed = {
	    .page_tokens = TOKENS, .n_groups = GROUPS, .n_full = 1, .n_layers = LAYERS, .window = 5};
	for (size_t k = 0; k < 2 * (sizeof types / sizeof *types); k++) {
		if (!kn_available()[0]->kv_type(types[k / 2]))
			continue;
		begin(types[k / 2]);
		swap_around(k % 2 == 0 ? NULL : &mixed);
		end();
	}
}

/* The first n indices of a row. */
static int out_all(const int32_t *pages, uint32_t n, struct kv_swapped *of)
{
	*of = (struct kv_swapped){.end = n, .n_past = 4 * n};
	return kv_swap_out(swap, pages, n, of);
}

static void failures(void **arg)
{
	(void)arg;
	struct kv_swapped of = {0};
	struct kv_swap *other;
	struct sl_err err;
	int32_t pages[3];
	begin(KN_F16);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kv_page_alloc(pool, &pages[i]), 0);
	/* The device fails at the first, second or third page: nothing is kept. */
	for (int nth = 0; nth < 3; nth++) {
		copies_left = nth;
		assert_int_equal(out_all(pages, 3, &of), SL_EIO);
		assert_true(of.n_pages == 0 && of.slots == NULL);
		assert_int_equal(kv_swap_n_free(swap), PLACES);
	}
	copies_left = -1;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(out_all(pages, 3, &of), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(kv_swap_n_free(swap), PLACES);
	assert_int_equal(out_all(pages, 3, &of), 0);
	copies_left = 0;
	assert_int_equal(kv_swap_in(swap, &of, 1, pages, 3), SL_EIO);
	copies_left = -1;
	kv_swap_drop(swap, &of);
	/* None can be made: too little, too much, no memory, copies that fail, a backend that has none. */
	assert_int_equal(kv_swap_create(&ops, backend, pool, 10, &other, &err), SL_ELIMIT);
	for (long nth = 1; nth <= 2; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(kv_swap_create(&ops, backend, pool, 1 << 20, &other, &err), SL_ENOMEM);
		fault_disarm_all();
	}
	for (int nth = 0; nth < 5; nth++) {
		copies_left = nth;
		assert_int_equal(kv_swap_create(&ops, backend, pool, 1 << 20, &other, &err), SL_EIO);
	}
	copies_left = -1;
	assert_int_equal(kv_pool_n_free(pool), PAGES - 3);
	ops.page_out = NULL;
	assert_int_equal(kv_swap_create(&ops, backend, pool, 1 << 20, &other, &err), SL_EUNSUPPORTED);
	for (int i = 0; i < 3; i++)
		kv_page_unref(pool, pages[i]);
	end();
}

static void plans(void **arg)
{
	(void)arg;
	struct device_plan p;
	char line[256];
	struct kn_memory now = {.free = 60u << 20, .total = 100u << 20};
	device_memory_plan(&now, 10 << 20, 0, 0.9, &p);
	assert_int_equal(p.taken, 40 << 20);
	assert_in_range(p.kv, (40 << 20) - 1, 40 << 20);
	assert_string_equal(
	    device_memory_line(&p, line, sizeof line),
	    "device memory: 40 of 100 MiB are taken with all weights, 10 MiB kept for steps and graphs, 10 MiB in "
	    "reserve: 40 MiB for keys and values");
	/* Adapters that are to come. */
	device_memory_plan(&now, 10 << 20, 15 << 20, 0.9, &p);
	assert_in_range(p.kv, (25 << 20) - 1, 25 << 20);
	assert_string_equal(
	    device_memory_line(&p, line, sizeof line),
	    "device memory: 40 of 100 MiB are taken with all weights, 10 MiB kept for steps and graphs, 15 MiB for "
	    "adapters, 10 MiB in reserve: 25 MiB for keys and values");
	device_memory_plan(&now, 10 << 20, 41 << 20, 0.9, &p);
	assert_int_equal(p.kv, 0);
	/* All of it; less than is taken; less than steps need. */
	device_memory_plan(&now, 0, 0, 1, &p);
	assert_int_equal(p.kv, 60 << 20);
	device_memory_plan(&now, 0, 0, 0.3, &p);
	assert_int_equal(p.kv, 0);
	device_memory_plan(&now, 51 << 20, 0, 0.9, &p);
	assert_int_equal(p.kv, 0);
	/* A device that tells nonsense. */
	now = (struct kn_memory){.free = UINT64_MAX, .total = 50};
	device_memory_plan(&now, 1, 0, 1, &p);
	assert_int_equal(p.kv, 49);
}

/* A model starts with one piece of its memory; the others come while it swaps, until the host has no more. */
static void test_pieces(void **arg)
{
	(void)arg;
	enum { MIB_PAGES = 24, PIECE = KV_SWAP_PIECE >> 20, ALL = 2 * PIECE + PIECE / 2 };
	struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 64};
	struct sl_err err;
	int32_t pages[MIB_PAGES];
	struct kv_swapped of[4] = {{0}};
	begin(KN_F32); /* the backend's functions */
	end();
	assert_int_equal(ops.open(&cfg, &backend, &err), 0);
	assert_int_equal(kv_pool_create(&ops, backend, KN_F32, MIB_PAGES, 256, 2, 2, 128, &pool, &err), 0);
	assert_int_equal(kv_swap_create(&ops, backend, pool, (uint64_t)ALL << 20, &swap, &err), 0);
	assert_int_equal(kv_swap_page_bytes(swap), 1 << 20);
	assert_int_equal(kv_swap_most_slots(swap), ALL);
	assert_int_equal(kv_swap_n_slots(swap), PIECE);
	assert_int_equal(host_live, 1);
	for (int i = 0; i < MIB_PAGES; i++)
		assert_int_equal(kv_page_alloc(pool, &pages[i]), 0);
	assert_int_equal(out_all(pages, MIB_PAGES, &of[0]), 0);
	assert_int_equal(out_all(pages, MIB_PAGES, &of[1]), SL_ELIMIT);
	assert_int_equal(kv_swap_grow(swap), 0);
	memset(half_of(kv_pool_layout(pool), true, pages[9]), 0x5A, 64);
	assert_int_equal(out_all(pages, MIB_PAGES, &of[1]), 0);
	assert_int_equal(kv_swap_n_free(swap), 2 * PIECE - 2 * MIB_PAGES);
	assert_int_equal(kv_swap_grow(swap), 0);
	assert_int_equal(kv_swap_grow(swap), SL_ELIMIT);
	assert_int_equal(kv_swap_n_slots(swap), ALL);
	assert_int_equal(out_all(pages, MIB_PAGES, &of[2]), 0);
	memset(half_of(kv_pool_layout(pool), true, pages[9]), 0, 64);
	assert_int_equal(kv_swap_in(swap, &of[1], 9, pages, MIB_PAGES), 0);
	for (int i = 0; i < 64; i++)
		assert_int_equal(half_of(kv_pool_layout(pool), true, pages[9])[i], 0x5A);
	for (int i = 0; i < 3; i++)
		kv_swap_drop(swap, &of[i]);
	for (int i = 0; i < MIB_PAGES; i++)
		kv_page_unref(pool, pages[i]);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(walk), cmocka_unit_test(failures), cmocka_unit_test(plans),
					   cmocka_unit_test(test_pieces)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
