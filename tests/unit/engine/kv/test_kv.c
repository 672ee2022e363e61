/* SPDX-License-Identifier: Apache-2.0
 *
 * The page pool: a random walk of its operations against a model of it, copies on write, exhaustion,
 * impossible sizes and failures of the device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/fault.h"
#include "engine/kv/kv.h"

enum { PAGES = 13, TOKENS = 4, LAYERS = 2, KV_HEADS = 2, HEAD = 8, FLOATS = TOKENS * LAYERS * KV_HEADS * HEAD };

static struct kn_ops ops; /* the reference's, but for what a case replaces */
static struct kn_backend *backend;
static struct kv_pool *pool;
static bool copy_fails;
static int allocs_left = -1; /* until one fails; -1: never */
static int (*real_copy)(struct kn_backend *, const struct kn_kv *, int, int);
static int (*real_alloc)(struct kn_backend *, size_t, void **);
static int live;

static int page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	return copy_fails ? SL_EIO : real_copy(b, kv, src, dst);
}

static int mem_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	if (allocs_left == 0)
		return SL_ENOMEM;
	allocs_left -= allocs_left > 0;
	int rc = real_alloc(b, bytes, out);
	live += rc == 0;
	return rc;
}

static void (*real_free)(struct kn_backend *, void *);

static void mem_free(struct kn_backend *b, void *p)
{
	live--;
	real_free(b, p);
}

static int make_pool(void **arg)
{
	(void)arg;
	struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 64};
	struct sl_err err;
	ops = *kn_available()[0];
	real_copy = ops.page_copy;
	real_alloc = ops.mem_alloc;
	real_free = ops.mem_free;
	ops.page_copy = page_copy;
	ops.mem_alloc = mem_alloc;
	ops.mem_free = mem_free;
	if (ops.open(&cfg, &backend, &err) != 0)
		return -1;
	return kv_pool_create(&ops, backend, KN_F32, PAGES, TOKENS, LAYERS, KV_HEADS, HEAD, &pool, &err);
}

static int drop_pool(void **arg)
{
	(void)arg;
	kv_pool_destroy(pool); /* itself checks that every page came back */
	ops.close(backend);
	return live == 0 ? 0 : -1;
}

static float *page_of(int32_t page, bool k)
{
	const struct kn_kv *kv = kv_pool_layout(pool);
	return (float *)(k ? kv->k : kv->v) + (size_t)page * FLOATS;
}

static void fill(int32_t page, float v)
{
	for (int i = 0; i < FLOATS; i++) {
		page_of(page, true)[i] = v;
		page_of(page, false)[i] = -v;
	}
}

static void holds(int32_t page, float v)
{
	for (int i = 0; i < FLOATS; i++) {
		assert_true(page_of(page, true)[i] == v);
		assert_true(page_of(page, false)[i] == -v);
	}
}

static void test_sizes(void **arg)
{
	(void)arg;
	assert_int_equal(kv_page_bytes(KN_F32, TOKENS, LAYERS, KV_HEADS, HEAD), 2 * FLOATS * sizeof(float));
	assert_int_equal(kv_page_bytes(KN_F32, 1 << 30, 1 << 30, 1 << 30, 1 << 30), SIZE_MAX);
	assert_int_equal(kv_pool_n_pages(pool), PAGES);
	assert_int_equal(kv_page_tokens(pool), TOKENS);
	static const int wrong[][5] = {{0, 1, 1, 1, 1}, {1, 0, 1, 1, 1},  {1, 1, -1, 1, 1},
				       {1, 1, 1, 0, 1}, {1, 1, 1, 1, -8}, {1 << 30, 1 << 30, 1 << 30, 64, 64}};
	for (int i = 0; i < 6; i++) {
		struct kv_pool *p = NULL;
		struct sl_err err = {0};
		const int *w = wrong[i];
		assert_int_equal(kv_pool_create(&ops, backend, KN_F32, w[0], w[1], w[2], w[3], w[4], &p, &err),
				 SL_EINVAL);
		assert_true(p == NULL && err.text[0] != '\0');
	}
}

static void test_no_memory(void **arg)
{
	(void)arg;
	struct kv_pool *p = NULL;
	struct sl_err err = {0};
	int before = live;
	for (int i = 0; i < 2; i++) {
		allocs_left = i;
		assert_int_equal(kv_pool_create(&ops, backend, KN_F32, 2, 4, 1, 1, 8, &p, &err), SL_ENOMEM);
		assert_int_equal(live, before);
	}
	allocs_left = -1;
	for (long nth = 1; nth <= 3; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(kv_pool_create(&ops, backend, KN_F32, 2, 4, 1, 1, 8, &p, &err), SL_ENOMEM);
		fault_disarm_all();
		assert_int_equal(live, before);
	}
}

static void test_exhaustion(void **arg)
{
	(void)arg;
	int32_t pages[PAGES], more = -7;
	unsigned seen = 0;
	for (int i = 0; i < PAGES; i++) {
		assert_int_equal(kv_page_alloc(pool, &pages[i]), 0);
		assert_in_range(pages[i], 0, PAGES - 1);
		seen |= 1u << pages[i];
	}
	assert_int_equal(seen, (1u << PAGES) - 1);
	assert_int_equal(kv_page_alloc(pool, &more), SL_ELIMIT);
	/* A shared page can't be copied then; its one holder may write it all the same. */
	int32_t page = pages[3];
	assert_int_equal(kv_page_make_own(pool, &page), 0);
	assert_int_equal(page, pages[3]);
	kv_page_ref(pool, page);
	assert_int_equal(kv_page_make_own(pool, &page), SL_ELIMIT);
	assert_int_equal(page, pages[3]);
	kv_page_unref(pool, page);
	for (int i = 0; i < PAGES; i++)
		kv_page_unref(pool, pages[i]);
	assert_int_equal(kv_pool_n_free(pool), PAGES);
	kv_pool_validate(pool);

	fault_arm(FAULT_KV_PAGE, 2, 1);
	assert_int_equal(kv_page_alloc(pool, &pages[0]), 0);
	assert_int_equal(kv_page_alloc(pool, &pages[1]), SL_ELIMIT);
	fault_disarm_all();
	kv_page_unref(pool, pages[0]);
}

static void test_copy_on_write(void **arg)
{
	(void)arg;
	int32_t a, b;
	assert_int_equal(kv_page_alloc(pool, &a), 0);
	fill(a, 3);
	b = a;
	kv_page_ref(pool, a);
	copy_fails = true;
	assert_int_equal(kv_page_make_own(pool, &b), SL_EIO);
	copy_fails = false;
	assert_int_equal(b, a);
	assert_int_equal(kv_pool_n_free(pool), PAGES - 1);
	assert_int_equal(kv_page_make_own(pool, &b), 0);
	assert_int_not_equal(b, a);
	holds(b, 3);
	fill(b, 4);
	holds(a, 3);
	assert_int_equal(kv_pool_n_free(pool), PAGES - 2);
	kv_page_unref(pool, a);
	kv_page_unref(pool, b);
}

/* References as the test counts them; each page holds its own number, which copies carry along. */
static void test_walk(void **arg)
{
	(void)arg;
	enum { HELD = 40 };
	int32_t held[HELD];
	float value[HELD];
	int n = 0;
	uint64_t random = 5;
	for (int i = 0; i < 20000; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		uint32_t dice = (uint32_t)(random >> 33), action = dice % 8;
		int at = n > 0 ? (int)(dice / 8 % (uint32_t)n) : 0, refs = 0, used = 0, free_before;
		for (int k = 0; k < n; k++) {
			refs += held[k] == held[at];
			bool first = true;
			for (int j = 0; j < k; j++)
				first = first && held[j] != held[k];
			used += first;
		}
		free_before = PAGES - used;
		assert_int_equal(kv_pool_n_free(pool), free_before);
		if (action < 2 && n < HELD) {
			int rc = kv_page_alloc(pool, &held[n]);
			assert_int_equal(rc, free_before > 0 ? 0 : SL_ELIMIT);
			if (rc == 0) {
				for (int k = 0; k < n; k++)
					assert_int_not_equal(held[k], held[n]);
				value[n] = (float)i;
				fill(held[n++], (float)i);
			}
		} else if (action < 4 && n > 0 && n < HELD) {
			kv_page_ref(pool, held[at]);
			held[n] = held[at];
			value[n++] = value[at];
		} else if (action < 6 && n > 0) {
			int32_t was = held[at];
			int rc = kv_page_make_own(pool, &held[at]);
			assert_int_equal(rc, refs == 1 || free_before > 0 ? 0 : SL_ELIMIT);
			assert_true((held[at] == was) == (refs == 1 || rc != 0));
			if (rc == 0) {
				holds(held[at], value[at]);
				value[at] = (float)i;
				fill(held[at], (float)i);
			}
		} else if (n > 0) {
			holds(held[at], value[at]);
			kv_page_unref(pool, held[at]);
			held[at] = held[--n];
			value[at] = value[n];
		}
		kv_pool_validate(pool);
	}
	while (n > 0)
		kv_page_unref(pool, held[--n]);
	assert_int_equal(kv_pool_n_free(pool), PAGES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sizes),         cmocka_unit_test(test_no_memory), cmocka_unit_test(test_exhaustion),
	    cmocka_unit_test(test_copy_on_write), cmocka_unit_test(test_walk),
	};
	return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
