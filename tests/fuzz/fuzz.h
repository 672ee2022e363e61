/* SPDX-License-Identifier: Apache-2.0
 *
 * What a fuzz target defines. The same file is linked with libFuzzer for long runs and with
 * standalone.c for the short seeded ones.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The seed corpus, made by code: the i-th seed into out. Returns its length, or 0 past the last. */
size_t fuzz_seed(size_t i, uint8_t *out, size_t max);

/* A property that does not hold is a finding like a crash. */
#define FUZZ_REQUIRE(cond) BUG_IF(!(cond), "%s", #cond)

#endif
