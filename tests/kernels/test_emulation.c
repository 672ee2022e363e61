/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulation itself: the places of a matrix's elements in a warp, sums over a warp, what it sees of blocks that
 * access each other's memory, and that the kernels' blocks do not, in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/kernels/tables.h"

#include "tests/kernels/battery.h"
#include "tests/kernels/fragments.h"

#define WATCHED "../../libsluice-cuda-watched.so"

static void test_fragments(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	const char *path = beside("../../libsluice-cuda-emulated.so");
	assert_non_null(kn_plugin_open(path, &err));
	const char *wrong = check_fragments(path);
	if (wrong != NULL)
		fail_msg("%s", wrong);
}

/* Lanes meet once for a tree, and get the bits that its shuffles give. */
static void test_trees(void **arg)
{
	const char *(*trees)(const float *v, float(*out)[4]);
	float v[LANES], out[LANES][4];
	(void)arg;
	void *symbol = backend_function(beside("../../libsluice-cuda-emulated.so"), "sluice_emulation_trees");
	assert_non_null(symbol);
	memcpy(&trees, &symbol, sizeof trees);
	for (int round = 0; round < 20; round++) {
		for (int l = 0; l < LANES; l++) /* sums that depend on their order */
			v[l] = ldexpf((float)((l * 37 + round * 11) % 64 - 32), (l * 7 + round) % 30);
		assert_null(trees(v, out));
		for (int l = 0; l < LANES; l++) {
			assert_memory_equal(&out[l][0], &out[l][1], sizeof(float));
			assert_memory_equal(&out[l][2], &out[l][3], sizeof(float));
			assert_true(out[l][2] >= v[l]);
		}
	}
}

/* Where the build has none: a sanitizer's. */
static const struct kn_ops *open_watched(void)
{
	struct sl_err err = {0};
	if (access(beside(WATCHED), F_OK) != 0)
		skip();
	const struct kn_ops *o = kn_plugin_open(beside(WATCHED), &err);
	if (o == NULL)
		fail_msg("%s", err.text);
	return o;
}

static void test_blocks_are_watched(void **arg)
{
	static const struct {
		const char *name;
		bool fault;
	} cases[] = {{"own words", false},
		     {"own bytes", false},
		     {"add atomically", false},
		     {"communicate", false},
		     {"read other", true},
		     {"write same", true},
		     {"write read", true},
		     {"copy other", true},
		     {"two trees", true},
		     {"load aligned", false},
		     {"load shared unaligned", true},
		     {"load unaligned", true}};
	const char *(*blocks)(const char *name);
	(void)arg;
	(void)open_watched();
	void *symbol = backend_function(beside(WATCHED), "sluice_emulation_blocks");
	assert_non_null(symbol);
	memcpy(&blocks, &symbol, sizeof blocks);
	for (int i = 0; i < N(cases); i++)
		for (int again = 0; again < 3; again++) { /* in other orders of blocks */
			const char *said = blocks(cases[i].name);
			assert_non_null(said);
			if ((said[0] != '\0') != cases[i].fault)
				fail_msg("%s: '%s'", cases[i].name, said);
		}
}

static void test_kernels_are_watched(void **arg)
{
	(void)arg;
	const char *wrong = battery(open_watched());
	if (wrong != NULL)
		fail_msg("%s", wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_fragments),
	    cmocka_unit_test(test_trees),
	    cmocka_unit_test(test_blocks_are_watched),
	    cmocka_unit_test(test_kernels_are_watched),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
