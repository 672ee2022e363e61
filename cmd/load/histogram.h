/* SPDX-License-Identifier: Apache-2.0
 *
 * Times in a bounded place: a histogram whose bars are at most 1/64 of their value wide, from 1 ns
 * to hours. Any number of samples costs the same memory, so a run may take as long as it likes.
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
/* The value that p percent of the samples are not above, to the upper edge of its bar and never
 * above the largest sample; 0 without samples. p: (0, 100]. */
uint64_t histogram_percentile(const struct histogram *h, double p);
double histogram_mean(const struct histogram *h);

#endif
