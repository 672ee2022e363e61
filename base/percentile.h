/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_PERCENTILE_H
#define BASE_PERCENTILE_H

#include <stddef.h>

/* Sorts x; the value that p percent are not above. 0 for none. */
double percentile(double *x, size_t n, double p);
/* For qsort: doubles, the least first. */
int percentile_ascending(const void *a, const void *b);

#endif
