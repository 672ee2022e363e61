/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the battery share (battery.h): a table with its backend, numbers for two of them, comparisons.
 */
#ifndef TESTS_KERNELS_BATTERY_RIG_H
#define TESTS_KERNELS_BATTERY_RIG_H

#include <math.h>

#include "kernels/kv_type.h"
#include "tests/kernels/weights.h"

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	int rc;       /* the first operation that failed */
	int attended; /* the reference: how many steps' attention it has computed, or recalled */
};

static inline void did(struct rig *r, int rc)
{
	if (r->rc == 0)
		r->rc = rc;
}

static inline float *room(struct rig *r, size_t n)
{
	void *p = NULL;
	if (r->o->mem_alloc(r->b, n * sizeof(float), &p) != 0)
		return NULL;
	for (size_t i = 0; i < n; i++)
		((float *)p)[i] = NAN;
	return p;
}

/* The same numbers in both. */
static inline void fill(float *x, float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = y[i] = next_float();
}

static inline const char *differ(const char *what, const float *x, const float *y, size_t n, double bound)
{
	static char text[160];
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)x[i] - (double)y[i]) <= bound)) {
			snprintf(text, sizeof text, "%s: number %zu is %.9g, not %.9g within %.3g", what, i,
				 (double)y[i], (double)x[i], bound);
			return text;
		}
	return NULL;
}

/* After a fault there is no more memory, and no number is worth a comparison. */
static inline bool right(const struct rig *rigs, const char *wrong) { return wrong == NULL && rigs[1].rc == 0; }

static inline const char *failure(const struct rig *r)
{
	static char text[160];
	snprintf(text, sizeof text, "an operation failed: %.120s", r->o->describe(r->b));
	return text;
}

#endif
