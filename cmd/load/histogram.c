/* SPDX-License-Identifier: Apache-2.0
 *
 * Each value below 64 has its own bar; above, each power of two is divided into 64 bars. So a percentile is at most 1.6
 * % too high.
 */
#include "cmd/load/histogram.h"

#include <math.h>
#include <string.h>

enum { FINE = 1 << HISTOGRAM_FINE_BITS };

static unsigned bar_of(uint64_t ns)
{
	if (ns < FINE)
		return (unsigned)ns;
	unsigned power = 63u - (unsigned)__builtin_clzll(ns);
	unsigned shift = power - HISTOGRAM_FINE_BITS;
	return ((shift + 1) << HISTOGRAM_FINE_BITS) + (unsigned)((ns >> shift) & (FINE - 1));
}

/* The largest value of a bar. */
static uint64_t top_of(unsigned bar)
{
	if (bar < FINE)
		return bar;
	unsigned shift = (bar >> HISTOGRAM_FINE_BITS) - 1;
	uint64_t low = (uint64_t)(FINE + (bar & (FINE - 1))) << shift;
	return low + ((1ull << shift) - 1);
}

void histogram_clear(struct histogram *h) { memset(h, 0, sizeof *h); }

void histogram_add(struct histogram *h, uint64_t ns)
{
	h->n++;
	h->sum_ns += ns;
	h->max_ns = ns > h->max_ns ? ns : h->max_ns;
	h->bar[bar_of(ns)]++;
}

uint64_t histogram_percentile(const struct histogram *h, double p)
{
	uint64_t want = (uint64_t)ceil(p / 100 * (double)h->n), seen = 0;
	want = want == 0 ? 1 : want;
	for (unsigned i = 0; i < HISTOGRAM_BARS && h->n > 0; i++) {
		seen += h->bar[i];
		if (seen >= want)
			return top_of(i) < h->max_ns ? top_of(i) : h->max_ns;
	}
	return h->max_ns;
}

double histogram_mean(const struct histogram *h) { return h->n > 0 ? (double)h->sum_ns / (double)h->n : 0; }
