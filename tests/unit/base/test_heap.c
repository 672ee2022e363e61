/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>

#include "base/heap.h"

struct item {
	struct heap_node node;
	uint32_t key;
};

static bool before(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct item, node)->key < heap_entry(b, const struct item, node)->key;
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

enum { N = 500 };

static uint32_t least(const struct item *items)
{
	uint32_t key = UINT32_MAX;
	for (int i = 0; i < N; i++)
		key = items[i].node.in && items[i].key < key ? items[i].key : key;
	return key;
}

static void the_least_is_on_top(void **state)
{
	(void)state;
	static struct item items[N];
	struct heap h;
	uint64_t random = 7;
	size_t n = 0;
	heap_init(&h, before);
	for (int step = 0; step < 20000; step++) {
		struct item *it = &items[draw(&random, N)];
		if (it->node.in) {
			heap_remove(&h, &it->node);
			n--;
		} else {
			it->key = draw(&random, 1000);
			heap_insert(&h, &it->node);
			n++;
		}
		assert_int_equal(h.n, n);
		assert_int_equal(h.top == NULL, n == 0);
		if (n > 0)
			assert_int_equal(heap_entry(h.top, struct item, node)->key, least(items));
	}
	uint32_t last = 0;
	while (h.top != NULL) {
		struct item *it = heap_entry(h.top, struct item, node);
		assert_true(it->key >= last);
		last = it->key;
		heap_remove(&h, h.top);
	}
	assert_int_equal(h.n, 0);
}

struct sum {
	uint32_t below, n_below, n_seen;
};

static bool count_below(void *ctx, struct heap_node *n)
{
	struct sum *s = ctx;
	s->n_seen++;
	if (heap_entry(n, struct item, node)->key >= s->below)
		return false;
	s->n_below++;
	return true;
}

static void a_walk_sees_what_comes_before(void **state)
{
	(void)state;
	static struct item items[N];
	struct heap h;
	heap_init(&h, before);
	for (uint32_t i = 0; i < N; i++) {
		items[i].key = i * 37 % N;
		heap_insert(&h, &items[i].node);
	}
	for (uint32_t i = 0; i < N; i += 3) /* gives the heap some depth */
		heap_remove(&h, &items[i].node);
	uint32_t expected = 0;
	for (uint32_t i = 0; i < N; i++)
		expected += items[i].node.in && items[i].key < 100;
	struct sum s = {.below = 100};
	heap_walk(&h, SIZE_MAX, count_below, &s);
	assert_int_equal(s.n_below, expected);
	s = (struct sum){.below = UINT32_MAX};
	heap_walk(&h, SIZE_MAX, count_below, &s);
	assert_int_equal(s.n_below, h.n);
	s = (struct sum){.below = UINT32_MAX};
	heap_walk(&h, 10, count_below, &s);
	assert_int_equal(s.n_seen, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_least_is_on_top),
	    cmocka_unit_test(a_walk_sees_what_comes_before),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
