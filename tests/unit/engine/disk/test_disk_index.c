/* SPDX-License-Identifier: Apache-2.0
 *
 * Which page goes first by each policy, and what that is worth on traces of texts that come again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/disk/disk_index.h"

static struct disk_key key_of(uint64_t text, uint64_t depth)
{
	return (struct disk_key){.lo = text << 20 | depth, .hi = ~text};
}

static struct disk_entry *add(struct disk_index *x, uint64_t text, uint64_t depth, uint64_t created)
{
	struct disk_entry *e = calloc(1, sizeof *e);
	e->key = key_of(text, depth);
	e->depth = depth;
	e->created_s = created;
	if (disk_index_add(x, e))
		return e;
	free(e);
	return NULL;
}

static void evict(struct disk_index *x)
{
	struct disk_entry *e = disk_index_worst(x);
	disk_index_evicting(x, e);
	disk_index_remove(x, e);
	free(e);
}

static void dispose(struct disk_index *x)
{
	while (disk_index_worst(x) != NULL)
		evict(x);
	assert_null(disk_index_oldest(x));
	disk_index_dispose(x);
}

static uint64_t text_of(const struct disk_entry *e) { return e->key.lo >> 20; }

static void orders(void **state)
{
	(void)state;
	for (int policy = 0; policy < DISK_POLICIES; policy++) {
		struct disk_index x;
		assert_int_equal(disk_index_init(&x, (enum disk_policy)policy), 0);
		struct disk_entry *a = add(&x, 1, 1, 10), *b = add(&x, 2, 1, 11), *c = add(&x, 3, 1, 9);
		assert_null(add(&x, 2, 1, 12));
		assert_ptr_equal(disk_index_oldest(&x), c);
		disk_index_use(&x, a, true);
		disk_index_use(&x, a, true);
		disk_index_use(&x, b, true);
		disk_index_use(&x, c, true);
		/* a was used twice, c last, and c is the oldest. */
		static const uint64_t first[] = {1, 2, 3};
		assert_int_equal(text_of(disk_index_worst(&x)), first[policy]);
		b->damaged = true;
		assert_null(disk_index_find(&x, key_of(2, 1)));
		assert_ptr_equal(disk_index_find(&x, key_of(1, 1)), a);
		dispose(&x);
	}
}

/* Used together, the deepest goes first. */
static void leaves_first(void **state)
{
	(void)state;
	static const enum disk_policy by_use[] = {DISK_LRU, DISK_LFU};
	for (int i = 0; i < 2; i++) {
		enum disk_policy policy = by_use[i];
		struct disk_index x;
		struct disk_entry *of[5];
		assert_int_equal(disk_index_init(&x, policy), 0);
		for (uint64_t d = 0; d < 5; d++)
			of[d] = add(&x, 1, d + 1, 7);
		for (int d = 0; d < 5; d++)
			disk_index_use(&x, of[d], d == 0);
		for (uint64_t d = 5; d > 0; d--) {
			assert_int_equal(disk_index_worst(&x)->depth, d);
			evict(&x);
		}
		dispose(&x);
	}
}

/* ---- traces ---- */

static uint64_t random_state;

static uint64_t at_random(uint64_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % below;
}

/* The next text of a trace. */
typedef uint64_t next_fn(uint64_t step);

/* Conversations: most requests go on with one of the last few. */
static uint64_t conversations(uint64_t step)
{
	uint64_t newest = step / 8;
	return newest - (newest > 0 ? at_random(newest < 60 ? newest : 60) : 0);
}

/* A few prompts of services among many texts that come once: by a power law. */
static uint64_t services(uint64_t step)
{
	if (at_random(2) == 0)
		return 1000000 + step;
	uint64_t n = 1;
	while (n < 400 && at_random(100) < 97)
		n++;
	return n;
}

/* What is popular changes, and batches go through all of their texts in turn. */
static uint64_t batches(uint64_t step)
{
	uint64_t era = step / 5000;
	if (step % 5000 < 1500)
		return 500000 + step % 500;
	return era * 100 + at_random(40) * at_random(3);
}

static double hit_ratio(enum disk_policy policy, next_fn *next)
{
	enum { STEPS = 30000, PAGES = 8, ROOM = 40 * PAGES };
	struct disk_index x;
	uint64_t hits = 0, asked = 0;
	assert_int_equal(disk_index_init(&x, policy), 0);
	random_state = 42;
	for (uint64_t step = 0; step < STEPS; step++) {
		uint64_t text = next(step), depth = 1;
		struct disk_entry *e;
		for (; depth <= PAGES && (e = disk_index_find(&x, key_of(text, depth))) != NULL; depth++)
			disk_index_use(&x, e, depth == 1);
		hits += depth - 1;
		asked += PAGES;
		for (; depth <= PAGES; depth++) {
			if (x.entries.n == ROOM)
				evict(&x);
			(void)add(&x, text, depth, step);
		}
	}
	dispose(&x);
	return (double)hits / (double)asked;
}

static void traces(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		next_fn *next;
	} all[] = {{"conversations", conversations}, {"services", services}, {"batches", batches}};
	double of[3][DISK_POLICIES];
	print_message("| trace | lru | lfu | ttl |\n|---|---|---|---|\n");
	for (int i = 0; i < 3; i++) {
		for (int p = 0; p < DISK_POLICIES; p++)
			of[i][p] = hit_ratio((enum disk_policy)p, all[i].next);
		print_message("| %s | %.3f | %.3f | %.3f |\n", all[i].name, of[i][DISK_LRU], of[i][DISK_LFU],
			      of[i][DISK_TTL]);
		assert_true(of[i][DISK_LRU] > 0 && of[i][DISK_TTL] > 0);
	}
	assert_true(of[0][DISK_LRU] > of[0][DISK_TTL]);
	assert_true(of[1][DISK_LFU] > of[1][DISK_LRU]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(leaves_first),
					   cmocka_unit_test(traces)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
