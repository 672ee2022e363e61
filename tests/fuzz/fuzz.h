/* SPDX-License-Identifier: Apache-2.0
 *
 * What a fuzz target defines. The same file is linked with libFuzzer for long runs and with
 * standalone.c for the short seeded ones.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include <string.h>

#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The seed corpus, made by code: the i-th seed into out. Returns its length, or 0 past the last. */
size_t fuzz_seed(size_t i, uint8_t *out, size_t max);

/* The same from a list of n_seeds texts, cut to max bytes. */
static inline size_t fuzz_seed_text(const char *const *seeds, size_t n_seeds, size_t i, uint8_t *out, size_t max)
{
	if (i >= n_seeds)
		return 0;
	size_t n = strlen(seeds[i]);
	if (n > max)
		n = max;
	memcpy(out, seeds[i], n);
	return n;
}

/* A property that does not hold is a finding like a crash. */
#define FUZZ_REQUIRE(cond) BUG_IF(!(cond), "%s", #cond)

#endif
