/* SPDX-License-Identifier: Apache-2.0
 *
 * A histogram of times in fixed memory, however many samples it counts. Each bar is at most 1/64 of its value wide,
 * from 1 ns to hours.
 */
#ifndef CMD_HISTOGRAM_H
#define CMD_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_FINE_BITS = 6, HISTOGRAM_BARS = (64 - HISTOGRAM_FINE_BITS + 1) << HISTOGRAM_FINE_BITS };

struct histogram {
	uint64_t n, sum_ns, max_ns;
	uint64_t bar[HISTOGRAM_BARS];
};

void histogram_clear(struct histogram *h);
void histogram_add(struct histogram *h, uint64_t ns);
/* The p-th percentile, p in (0, 100]: the upper edge of its bar, but never above the largest sample. 0: no samples. */
uint64_t histogram_percentile(const struct histogram *h, double p);
double histogram_mean(const struct histogram *h);

#endif
