/* SPDX-License-Identifier: Apache-2.0 */
#include "base/percentile.h"

#include <stdlib.h>

int percentile_ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double percentile(double *x, size_t n, double p)
{
	if (n == 0)
		return 0;
	qsort(x, n, sizeof *x, percentile_ascending);
	size_t at = (size_t)(p / 100 * (double)n);
	return x[at < n ? at : n - 1];
}
