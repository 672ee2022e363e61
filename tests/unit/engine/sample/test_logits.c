/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes over logits against plain ones: a full sort, sums in long double, the C library's exp.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sample/logits.h"

enum { MOST = 5000 };

static uint64_t state = 1;

static uint32_t next_random(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

/* Rows of different kinds: a bell, coarse (many ties), flat, steep, with holes. */
static void fill(float *l, int n, int kind)
{
	for (int i = 0; i < n; i++) {
		double u = next_random() * 0x1p-31, v = next_random() * 0x1p-31;
		double bell = sqrt(-2 * log(u + 1e-12)) * cos(6.283185307179586 * v);
		switch (kind) {
		case 0: l[i] = (float)(3 * bell); break;
		case 1: l[i] = (float)(floor(4 * bell) / 2); break;
		case 2: l[i] = 7; break;
		case 3: l[i] = (float)(-0.05 * i); break;
		case 4: l[i] = next_random() % 3 == 0 ? -INFINITY : (float)(2 * bell); break;
		default: l[i] = (float)(1e4 + 30 * bell); break;
		}
	}
}

static const float *row;

static int by_value(const void *a, const void *b)
{
	int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
	return row[i] != row[j] ? (row[i] > row[j] ? -1 : 1) : (i > j) - (i < j);
}

static void sorted(const float *l, int n, int32_t *order)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	row = l;
	qsort(order, (size_t)n, sizeof *order, by_value);
}

static const int sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1000, MOST};

static void test_largest(void **arg)
{
	(void)arg;
	static float l[MOST];
	static int32_t order[MOST];
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (int kind = 0; kind < 6; kind++)
			for (int round = 0; round < 20; round++) {
				int n = sizes[s];
				fill(l, n, kind);
				int holes = round % 4 == 0 ? n / 2 : 0;
				for (int h = 0; h < holes; h++)
					l[next_random() % (uint32_t)n] = NAN;
				float max = logits_clean_max(l, n);
				for (int i = 0; i < n; i++)
					assert_true(l[i] == l[i]);
				sorted(l, n, order);
				assert_int_equal(logits_argmax(l, n), order[0]);
				assert_true(max == l[order[0]]);
			}
}

static void test_mass(void **arg)
{
	(void)arg;
	static float l[MOST], w[MOST];
	static const float inverse[] = {1, 0.25f, 3, 1000, 1e30f};
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (int kind = 0; kind < 6; kind++)
			for (int t = 0; t < 5; t++) {
				int n = sizes[s];
				fill(l, n, kind);
				float max = logits_clean_max(l, n);
				if (max == -INFINITY)
					continue;
				double mass = logits_mass(l, n, max, inverse[t], w);
				long double exact = 0;
				for (int i = 0; i < n; i++) {
					/* The argument as the pass rounds it; its own error is the caller's. */
					float x = (l[i] - max) * inverse[t];
					double e = exp((double)x);
					exact += (long double)e;
					if (x > -86)
						assert_true(fabs((double)w[i] - e) <= 3e-7 * e);
					else
						assert_true(w[i] == 0);
				}
				assert_true(fabsl((long double)mass - exact) <= 3e-7L * exact);
				assert_true(logits_mass(l, n, max, inverse[t], NULL) == mass);
			}
}

static void test_ranks(void **arg)
{
	(void)arg;
	static const float values[] = {-INFINITY, -3e38f, -1, -1e-40f, 0, 1e-40f, 0.5f, 1, 3e38f, INFINITY};
	for (int a = 0; a < 10; a++) {
		for (int b = 0; b < 10; b++) {
			assert_int_equal(logits_rank_of(values[a], 5) > logits_rank_of(values[b], 5), a > b);
			assert_int_equal(logits_rank_of(values[a], 5) > logits_rank_of(values[b], 4), a > b);
			assert_int_equal(logits_rank_of(values[a], 4) > logits_rank_of(values[b], 5), a >= b);
		}
		assert_true(logits_rank_value(logits_rank_of(values[a], 7)) == values[a]);
		assert_int_equal(logits_rank_index(logits_rank_of(values[a], 123456)), 123456);
	}
	assert_true(logits_rank_of(-0.0f, 3) == logits_rank_of(0, 3));
}

static void test_best(void **arg)
{
	(void)arg;
	static float l[MOST];
	static int32_t order[MOST];
	static struct logits_item room[MOST];
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (int kind = 0; kind < 6; kind++)
			for (int round = 0; round < 8; round++) {
				int n = sizes[s], there = 0;
				int k = round < 4 ? 1 + (int)(next_random() % (unsigned)(n < 50 ? n : 50))
						  : 1 + (int)(next_random() % (unsigned)n);
				fill(l, n, kind);
				sorted(l, n, order);
				for (int i = 0; i < n; i++)
					there += l[i] > -INFINITY;
				assert_true(logits_best_room(n, k) <= MOST);
				int have = logits_best(l, n, k, room);
				assert_int_equal(have, k < there ? k : there);
				logits_sort(room, have);
				for (int i = 0; i < have; i++) {
					assert_int_equal(logits_rank_index(room[i].rank), order[i]);
					assert_true(logits_rank_value(room[i].rank) == l[order[i]]);
				}
			}
}

static void test_share_and_keep(void **arg)
{
	(void)arg;
	static float l[MOST], w[MOST], kept[MOST];
	static int32_t order[MOST], ids[MOST], all[MOST];
	static struct logits_item room[MOST];
	static const double shares[] = {1e-9, 0.1, 0.5, 0.9, 0.99, 0.999999, 1};
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (int kind = 0; kind < 6; kind++)
			for (int k = 0; k < 7; k++) {
				int n = sizes[s], want = 0, weigh = 0;
				fill(l, n, kind);
				float max = logits_clean_max(l, n);
				if (max == -INFINITY)
					continue;
				double mass = logits_mass(l, n, max, 1, w), so_far = 0;
				for (int i = 0; i < n; i++)
					weigh += w[i] > 0;
				/* Equal weights would reach the target or not by the order of adding: a share
				 * that falls between two of them. */
				double target = kind == 2 ? mass * shares[k] - 0.25 : mass * shares[k];
				sorted(l, n, order);
				while (want < weigh && (want == 0 || so_far < target))
					so_far += (double)w[order[want++]];
				logits_rank least = logits_share(l, w, n, target, room);
				/* All of the mass may be reached a rounding earlier. */
				if (k < 6)
					assert_int_equal(logits_rank_index(least), order[want - 1]);
				for (int i = 0; i < n; i++)
					all[i] = 10 * i;
				int have = logits_keep(l, l, NULL, n, least, kept, ids);
				assert_true(k == 6 ? have <= weigh : have == want);
				assert_int_equal(logits_keep(l, l, all, n, least, l, all), have);
				for (int i = 0; i < have; i++) {
					assert_true(i == 0 || ids[i] > ids[i - 1]);
					assert_int_equal(all[i], 10 * ids[i]);
					assert_true(l[i] == kept[i]);
				}
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_largest), cmocka_unit_test(test_mass),           cmocka_unit_test(test_ranks),
	    cmocka_unit_test(test_best),    cmocka_unit_test(test_share_and_keep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
