/* SPDX-License-Identifier: Apache-2.0
 *
 * When the requests of an open loop are due, as gaps between them. Pure: the same seed gives the same gaps.
 */
#ifndef CMD_LOAD_ARRIVALS_H
#define CMD_LOAD_ARRIVALS_H

#include <stdint.h>

#include "base/err.h"

struct load_random {
	uint64_t state;
};

/* Uniform in (0, 1]. */
double load_uniform(struct load_random *r);

/* Gaps are gamma-distributed with this shape: 1 is a Poisson process, below 1 traffic comes in clusters (the
 * coefficient
 * of variation is 1/√shape), infinity is a steady beat. `burst` requests are due at once. */
struct arrivals {
	double rate; /* requests per second, on the average */
	double shape;
	uint32_t burst, n_in_burst; /* n_in_burst: how many of it have been due */
};

/* "poisson", "even", "gamma:SHAPE" or "burst:N" (N at once, bursts as a Poisson process). SL_EINVAL. */
int arrivals_parse(const char *text, struct arrivals *out);
/* Seconds from one request to the next. */
double arrivals_gap(struct arrivals *a, struct load_random *r);

#endif
