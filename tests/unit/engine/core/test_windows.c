/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose layers are in groups, with random weights: windows smaller than a page and over several, some of the
 * layers windowed and all of them. Every answer is, bit for bit, the one with all layers in one group that keeps
 * everything: alone, in batches, in other chunks and pages, after prefix hits, with drafts, pre-empted, on one thread
 * and on two. How pages of such models are swapped and move between models: tests/sim/test_windowed_sim.c.
 */
#include "crowd_run.h"

#include "base/log.h"
#include "engine/kv/kv.h"
#include "tests/support/random_file.h"

static void as_with_one_group(void **state)
{
	(void)state;
	static const struct {
		const char *shape;
		int n_layers, window, n_most, n_requests;    /* most: with THOROUGH */
	} cases[] = {{"tiny-gemma3", 6, 70, CROWD_MOST, 40}, /* five of six windowed, over several pages */
		     {"tiny-gemma3", 12, 9, 32, 16},         /* smaller than a page */
		     {"tiny-gemma2", 4, 33, 32, 16},         /* every other one */
		     {"tiny-mistral", 3, 50, 32, 16}};       /* all */
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	char path[256];
	assert_non_null(expect);
	md_path(path, dir, "model.gguf");
	crowd_model[0].path = path;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_arch a = random_arch(cases[i].shape);
		a.n_layers = cases[i].n_layers;
		a.window = cases[i].window;
		random_file_of("model.gguf", &a, "q8_0", 5, 2);
		crowd_n = getenv("THOROUGH") != NULL ? cases[i].n_most : cases[i].n_requests;
		crowd_cached = 0;
		struct eng_config cfg = crowd_config();
		cfg.kv_one_group = true;
		crowd_alone(&cfg, expect);
		/* Pages of no power of two; memory for a few of them, in which window parts of the tree give way too.
		 */
		uint64_t page = kv_page_bytes(KN_F16, CROWD_PAGE, a.n_layers, a.n_kv_heads, a.head_dim);
		(void)crowd_in_every_way(expect, 5, 26 * page, cfg.max_sequences);
		print_message("%d layers, window %d: ", a.n_layers, a.window);
		crowd_assert_cached(cases[i].shape);
	}
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_with_one_group)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, setup, teardown);
}
