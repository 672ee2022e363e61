/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that pools share: parts, borders, and a random walk of slabs that change hands while every pool
 * writes into its pages. What another one writes into is found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "engine/kv/kv.h"
#include "engine/kv/kv_memory.h"

enum { POOLS = 3, TOKENS = 4, HEAD = 8, MAX_HELD = 4096 };

static const struct kn_ops *ops;
static struct kn_backend *backend;

struct shared {
	struct kv_memory *m;
	struct kv_pool *pool[POOLS];
	size_t page_floats[POOLS]; /* of keys */
	int32_t held[POOLS][MAX_HELD];
	float value[POOLS][MAX_HELD];
	int n[POOLS], n_pools;
};

static void begin(struct shared *x, const int *layers, int n, uint64_t bytes)
{
	size_t page_bytes[POOLS];
	struct sl_err err;
	*x = (struct shared){.n_pools = n};
	for (int i = 0; i < n; i++) {
		page_bytes[i] = kv_page_bytes(KN_F32, TOKENS, layers[i], 1, HEAD);
		x->page_floats[i] = page_bytes[i] / 2 / sizeof(float);
	}
	assert_int_equal(kv_memory_create(ops, backend, bytes, page_bytes, NULL, n, &x->m, &err), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(
		    kv_pool_create_in(x->m, i, ops, backend, KN_F32, TOKENS, layers[i], 1, HEAD, &x->pool[i], &err), 0);
}

static void finish(struct shared *x)
{
	for (int i = 0; i < x->n_pools; i++) {
		while (x->n[i] > 0)
			kv_page_unref(x->pool[i], x->held[i][--x->n[i]]);
		kv_pool_destroy(x->pool[i]);
	}
	kv_memory_destroy(x->m);
}

static void write_page(struct shared *x, int i, int at, float v)
{
	const struct kn_kv *kv = kv_pool_layout(x->pool[i]);
	for (size_t k = 0; k < x->page_floats[i]; k++) {
		((float *)kv->k)[(size_t)x->held[i][at] * x->page_floats[i] + k] = v;
		((float *)kv->v)[(size_t)x->held[i][at] * x->page_floats[i] + k] = -v;
	}
	x->value[i][at] = v;
}

static void check_page(const struct shared *x, int i, int at)
{
	const struct kn_kv *kv = kv_pool_layout(x->pool[i]);
	for (size_t k = 0; k < x->page_floats[i]; k++) {
		size_t f = (size_t)x->held[i][at] * x->page_floats[i] + k;
		if (((float *)kv->k)[f] != x->value[i][at] || ((float *)kv->v)[f] != -x->value[i][at])
			fail_msg("page %d of pool %d was written by another", x->held[i][at], i);
	}
}

static void parts(void **state)
{
	(void)state;
	static const int layers[][POOLS] = {{1, 1, 1}, {3, 1, 2}, {7, 5, 1}};
	struct shared x;
	for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
		uint64_t each = 400, unit = kv_page_bytes(KN_F32, TOKENS, 1, 1, HEAD);
		begin(&x, layers[k], POOLS, each * unit * (uint64_t)(layers[k][0] + layers[k][1] + layers[k][2]));
		int owned = 0;
		for (int i = 0; i < POOLS; i++) {
			/* About the same number of pages, less what borders and roundings cost. */
			assert_in_range(kv_pool_n_pages(x.pool[i]), each * 2 / 3, each * 5 / 4);
			assert_int_equal(kv_memory_n_owned(x.m, i), kv_memory_part(x.m, i));
			owned += kv_memory_part(x.m, i);
			kv_pool_validate(x.pool[i]);
		}
		assert_int_equal(owned, kv_memory_n_slabs(x.m));
		assert_in_range(owned, 16, KV_MEMORY_SLABS);
		finish(&x);
	}
	/* As small as can be, and smaller. */
	size_t bytes[2] = {kv_page_bytes(KN_F32, TOKENS, 1, 1, HEAD), kv_page_bytes(KN_F32, TOKENS, 1, 1, HEAD)};
	struct kv_memory *m;
	struct sl_err err;
	assert_int_equal(kv_memory_create(ops, backend, 2 * bytes[0], bytes, NULL, 2, &m, &err), 0);
	assert_int_equal(kv_memory_n_slabs(m), 2);
	kv_memory_destroy(m);
	assert_int_equal(kv_memory_create(ops, backend, 2 * bytes[0] - 1, bytes, NULL, 2, &m, &err), SL_ELIMIT);
}

/* A slab of which no page is held goes from one to another. */
static bool trade(struct shared *x, int slab, int to)
{
	int from = kv_memory_owner(x->m, slab);
	const struct kv_slab *s = kv_pool_slab(x->pool[from], slab);
	if (from == to || s->n_free < s->n_pages)
		return false;
	kv_pool_take_slab(x->pool[from], slab);
	kv_memory_set_owner(x->m, slab, to);
	kv_pool_give_slab(x->pool[to], slab);
	return true;
}

static void slabs_change_hands(void **state)
{
	(void)state;
	static const int layers[][POOLS] = {{1, 1, 1}, {4, 1, 2}, {7, 5, 3}};
	static struct shared x;
	uint64_t random = 5;
	for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
		begin(&x, layers[k], POOLS, 100ull * kv_page_bytes(KN_F32, TOKENS, 7, 1, HEAD));
		int n_trades = 0, n_full = 0;
		for (int step = 0; step < 20000; step++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint32_t draw = (uint32_t)(random >> 33);
			int i = (int)(draw % POOLS);
			/* Waves: now all take more than they give, now they give. */
			bool take = (draw >> 3) % 8 < (step / 1500 % 2 == 0 ? 6u : 2u);
			if (draw % 11 == 0) {
				n_trades += trade(&x, (int)(draw >> 8) % kv_memory_n_slabs(x.m), i);
			} else if (take && x.n[i] < MAX_HELD) {
				int rc = kv_page_alloc(x.pool[i], &x.held[i][x.n[i]]);
				assert_int_equal(rc, kv_pool_n_free(x.pool[i]) == 0 && rc != 0 ? SL_ELIMIT : 0);
				n_full += rc != 0;
				if (rc == 0)
					write_page(&x, i, x.n[i]++, (float)step);
			} else if (x.n[i] > 0) {
				int at = (int)((draw >> 8) % (uint32_t)x.n[i]);
				check_page(&x, i, at);
				kv_page_unref(x.pool[i], x.held[i][at]);
				x.held[i][at] = x.held[i][--x.n[i]];
				x.value[i][at] = x.value[i][x.n[i]];
			}
			if (step % 512 == 0)
				kv_pool_validate(x.pool[i]);
		}
		for (int i = 0; i < POOLS; i++)
			for (int at = 0; at < x.n[i]; at++)
				check_page(&x, i, at);
		assert_true(n_trades > 30);
		assert_true(n_full > 0);
		finish(&x);
	}
}

static int set_up(void **state)
{
	struct kn_config cfg = {.n_threads = 1, .max_rows = 1, .max_width = 64};
	struct sl_err err;
	(void)state;
	ops = kn_available()[0];
	return ops->open(&cfg, &backend, &err);
}

static int tear_down(void **state)
{
	(void)state;
	ops->close(backend);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(slabs_change_hands)};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
