/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of one program in many random orders of a device's streams (tests/soak/standin.sh): SLUICE_ORDERS is set. What
 * is long and alike is shared among the seeds.
 */
#ifndef TESTS_KERNELS_SOAK_H
#define TESTS_KERNELS_SOAK_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool orders_only(void) { return getenv("SLUICE_ORDERS") != NULL; }

/* Of the random order; -1: it is none. */
static inline int orders_seed(void)
{
	const char *policy = getenv("SLUICE_STANDIN");
	return policy != NULL && strncmp(policy, "random:", 7) == 0 ? (int)strtol(policy + 7, NULL, 10) : -1;
}

/* Whether this run has case i, of which any n seeds in a row have each once. Other runs have all. */
static inline bool in_share(int i, int n)
{
	return !orders_only() || orders_seed() < 0 || (i + orders_seed()) % n == 0;
}

#endif
