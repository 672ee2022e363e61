/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers in groups, and pages counted by group: against a sequence that takes and gives back page by page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "engine/sched/kv_groups.h"

enum { LAYERS = 96 };

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

/* Every every-th layer sees all; 0: none does. */
static struct kv_groups pattern(uint32_t n, uint32_t every, int window, uint32_t n_ctx, int *windows)
{
	for (uint32_t i = 0; i < n; i++)
		windows[i] = every > 0 && (i + 1) % every == 0 ? 0 : window;
	return kv_groups_make(windows, n, n_ctx, 16);
}

static void layers_are_divided(void **state)
{
	(void)state;
	static const struct {
		uint32_t n, every;
		int window;
		uint32_t n_ctx, n_full, n_groups, n_layers;
	} cases[] = {
	    {32, 4, 1024, 32768, 1, 4, 8},   /* three of four */
	    {32, 2, 4096, 131072, 1, 2, 16}, /* every other one */
	    {26, 6, 512, 32768, 2, 13, 2},   /* Gemma 3 1B: 4 of 26, no padding */
	    {62, 6, 1024, 131072, 2, 13, 5}, /* Gemma 3 27B: 10 of 62 */
	    {32, 0, 4096, 32768, 0, 1, 32},  /* all windowed */
	    {32, 1, 1024, 32768, 1, 1, 32},  /* none is */
	    {32, 4, 32768, 32768, 1, 1, 32}, /* a window that never fills */
	    {32, 4, 30000, 32768, 1, 1, 32}, /* saves too little */
	    {1, 0, 16, 512, 0, 1, 1},        {4, 4, 24, 4096, 1, 4, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int windows[LAYERS];
		struct kv_groups g = pattern(cases[i].n, cases[i].every, cases[i].window, cases[i].n_ctx, windows);
		assert_int_equal(g.n_layers, cases[i].n_layers);
		assert_int_equal(g.n_full, cases[i].n_full);
		assert_int_equal(g.n_groups, cases[i].n_groups);
		assert_int_equal(g.window, g.n_groups > g.n_full ? cases[i].window : 0);
	}
}

/* Each layer has a place of its own, in a group of its kind. */
static void every_layer_has_a_place(void **state)
{
	(void)state;
	uint64_t random = 3;
	for (int round = 0; round < 3000; round++) {
		uint32_t n = 1 + draw(&random, LAYERS), n_ctx = 16u << draw(&random, 12), each = 1 + draw(&random, 8);
		int windows[LAYERS];
		struct kn_place places[LAYERS];
		bool taken[LAYERS + LAYERS / 8] = {false};
		for (uint32_t i = 0; i < n; i++)
			windows[i] = draw(&random, each) == 0 ? 0 : 1 + (int)draw(&random, 2000);
		struct kv_groups g = kv_groups_make(windows, n, n_ctx, 16);
		kv_groups_places(&g, windows, n, places);
		assert_true(g.n_groups <= KV_GROUPS_MAX && g.n_full <= g.n_groups);
		assert_true(g.n_groups * g.n_layers - n <= n / 8);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t at = (uint32_t)places[i].group * g.n_layers + (uint32_t)places[i].layer;
			assert_true(at < g.n_groups * g.n_layers && !taken[at]);
			taken[at] = true;
			assert_true((uint32_t)places[i].group < g.n_full || windows[i] > 0);
			assert_true((uint32_t)places[i].group < g.n_full || windows[i] <= (int)g.window);
			if (g.n_groups > 1)
				assert_int_equal((uint32_t)places[i].group >= g.n_full, windows[i] > 0);
		}
		/* One group is as good as any, or the choice saves an eighth. */
		struct kv_groups alone = kv_groups_one(16, n);
		uint64_t cost = (uint64_t)kv_groups_peak(&g, n_ctx, 1) * g.n_layers;
		uint64_t whole = (uint64_t)kv_groups_peak(&alone, n_ctx, 1) * n;
		assert_true(cost == whole ? g.window == 0 : cost <= whole - whole / 8);
	}
}

/* A sequence that takes pages before each step and gives back after it what the next row does not see. */
struct brute {
	bool held[8][512];
	uint32_t n, most;
};

static void set(struct brute *b, uint32_t group, uint32_t index, bool held)
{
	b->n += held && !b->held[group][index];
	b->n -= !held && b->held[group][index];
	b->held[group][index] = held;
	b->most = b->n > b->most ? b->n : b->most;
}

static void counts_are_those_of_a_sequence(void **state)
{
	(void)state;
	uint64_t random = 9;
	uint32_t reached = 0;
	for (int round = 0; round < 2000; round++) {
		struct kv_groups g = {.page_tokens = 1 + draw(&random, 20),
				      .n_full = draw(&random, 3),
				      .n_layers = 1,
				      .window = 1 + draw(&random, 60)};
		g.n_groups = g.n_full + draw(&random, 4);
		if (g.n_groups == g.n_full)
			g = kv_groups_one(g.page_tokens, 1);
		static struct brute b;
		memset(&b, 0, sizeof b);
		uint32_t n = 1 + draw(&random, 400), chunk = 1 + draw(&random, 50), past = 0, first = 0, end = 0;
		uint32_t peak = kv_groups_peak(&g, n, chunk);
		while (past < n) {
			uint32_t step = 1 + draw(&random, chunk),
				 rest = kv_groups_rest(&g, past, n - past, chunk, first, end);
			step = step < n - past ? step : n - past;
			uint32_t before = b.n, more = kv_groups_more(&g, past, end, past + step);
			for (uint32_t pos = 0; pos < past + step; pos++)
				for (uint32_t k = 0; k < g.n_groups; k++)
					if (k < g.n_full || pos / g.page_tokens >= first)
						set(&b, k, pos / g.page_tokens, true);
			assert_int_equal(b.n - before, more);
			assert_true(more <= rest && before + rest <= peak);
			end = kv_groups_indices(&g, past + step);
			past += step;
			uint32_t to = kv_groups_first(&g, past);
			/* The row at `past` sees `to`, and nothing before it. */
			if (g.window > 0) {
				assert_true(to * g.page_tokens + g.window <= past + 1 || to == 0);
				assert_true((to + 1) * g.page_tokens + g.window > past + 1);
			}
			for (uint32_t k = g.n_full; k < g.n_groups; k++)
				for (uint32_t i = first; i < to; i++)
					set(&b, k, i, false);
			first = to;
			assert_int_equal(kv_groups_held(&g, first, end), b.n);
			uint32_t seen = 0;
			for (; seen < b.n; seen++) {
				uint32_t group, index;
				kv_groups_at(&g, first, end, seen, &group, &index);
				assert_true(b.held[group][index]);
			}
			/* Room for drafts: with the page of the next token and n_free more. */
			uint32_t n_free = draw(&random, 12);
			uint64_t room = kv_groups_room(&g, past, end, n_free);
			uint32_t with_next = past / g.page_tokens + 1 > end ? past / g.page_tokens + 1 : end;
			assert_true(kv_groups_more(&g, past, with_next, past + 1 + room) <= n_free);
			assert_true(kv_groups_more(&g, past, with_next, past + 2 + room) > n_free);
		}
		assert_true(b.most <= peak);
		reached += b.most == peak;
		/* What fits does, and one token more does not. */
		uint32_t most = kv_groups_fit(&g, peak, chunk, 100000);
		assert_true(most >= n && kv_groups_peak(&g, most, chunk) <= peak);
		assert_true(most == 100000 || kv_groups_peak(&g, most + 1, chunk) > peak);
	}
	assert_true(reached > 600); /* the peak is not only a bound */
}

/* Pages that a sequence keeps once its prompt is computed, of today's: three of four layers windowed. */
static void three_of_four_layers_windowed(void **state)
{
	(void)state;
	int windows[32];
	struct kv_groups g = pattern(32, 4, 1024, 32768, windows), whole = kv_groups_one(16, 32);
	uint32_t kept = kv_groups_held(&g, kv_groups_first(&g, 32768), kv_groups_indices(&g, 32768)) * g.n_layers;
	uint32_t before = kv_groups_held(&whole, 0, kv_groups_indices(&whole, 32768)) * whole.n_layers;
	print_message("window 1,024, context 32,768: %u of %u layer pages, %.3f\n", kept, before,
		      (double)kept / before);
	assert_true(kept * 10 <= before * 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layers_are_divided),
	    cmocka_unit_test(every_layer_has_a_place),
	    cmocka_unit_test(counts_are_those_of_a_sequence),
	    cmocka_unit_test(three_of_four_layers_windowed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
