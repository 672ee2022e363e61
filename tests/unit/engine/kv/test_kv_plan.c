/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of one budget: random wants, whose plan must fit, be whole where everything fits, be fair, and use what can be
 * used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>

#include "engine/kv/kv_plan.h"

enum { MOST = 6, ROUNDS = 2000 };

static uint64_t draw(unsigned *seed, uint64_t least, uint64_t most)
{
	return least + (uint64_t)rand_r(seed) % (most - least + 1);
}

static uint64_t cost(const struct kv_want *w, const uint64_t *pages, int n)
{
	uint64_t all = 0;
	for (int i = 0; i < n; i++)
		all += w[i].page_bytes * pages[i];
	return all;
}

static void check(const struct kv_want *w, int n, uint64_t budget, const uint64_t *pages)
{
	uint64_t contexts = 0, dearest = 0;
	bool all_useful = true;
	for (int i = 0; i < n; i++) {
		contexts += w[i].page_bytes * w[i].context;
		dearest += w[i].page_bytes;
		assert_true(pages[i] <= w[i].useful);
		all_useful = all_useful && (pages[i] == w[i].useful || w[i].page_bytes == 0);
	}
	assert_true(cost(w, pages, n) <= budget);
	/* One page more for each model does not fit. */
	assert_true(all_useful || cost(w, pages, n) + dearest > budget);
	for (int i = 0; i < n; i++) {
		assert_true(contexts > budget || w[i].page_bytes == 0 || pages[i] >= w[i].context);
		for (int k = 0; k < n; k++) {
			/* One that has more than another has it as a context that is whole only if the other's is. */
			bool richer = pages[i] > pages[k] && w[k].page_bytes > 0;
			assert_true(!richer || pages[k] >= w[k].context);
		}
	}
}

static void random_wants(void **state)
{
	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned seed = round;
		struct kv_want w[MOST];
		uint64_t pages[MOST];
		int n = (int)draw(&seed, 1, MOST);
		for (int i = 0; i < n; i++) {
			w[i].page_bytes = draw(&seed, 0, 9) == 0 ? 0 : draw(&seed, 1, 5000);
			w[i].context = w[i].page_bytes == 0 ? 0 : draw(&seed, 1, 300);
			w[i].useful = w[i].context * draw(&seed, 1, 8);
		}
		uint64_t budget = draw(&seed, 0, 6000000);
		kv_plan(w, n, budget, pages);
		check(w, n, budget, pages);
	}
}

static void by_hand(void **state)
{
	(void)state;
	const struct kv_want w[2] = {{.page_bytes = 10, .context = 100, .useful = 400},
				     {.page_bytes = 10, .context = 4, .useful = 16}};
	uint64_t pages[2];
	kv_plan(w, 2, 60, pages);
	assert_int_equal(pages[0], 3);
	assert_int_equal(pages[1], 3);
	kv_plan(w, 2, 540, pages);
	assert_int_equal(pages[0], 50);
	assert_int_equal(pages[1], 4);
	kv_plan(w, 2, 1040, pages);
	assert_int_equal(pages[0], 100);
	assert_int_equal(pages[1], 4);
	kv_plan(w, 2, 1160, pages);
	assert_int_equal(pages[0], 100);
	assert_int_equal(pages[1], 16);
	kv_plan(w, 2, UINT64_MAX, pages);
	assert_int_equal(pages[0], 400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(random_wants)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
