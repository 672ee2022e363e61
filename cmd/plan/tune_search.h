/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for the best point of a bounded grid: coordinate descent from the default, one knob after the other over
 * all of its values, until none of them improves anything; then all values of two knobs together, which leave ridges
 * and plateaus that no single knob leaves. A point is measured again only where a higher floor hid its value. Pure.
 */
#ifndef CMD_TUNE_SEARCH_H
#define CMD_TUNE_SEARCH_H

#include <stdbool.h>

#include "base/err.h"

enum { TUNE_KNOBS = 5, TUNE_VALUES = 8, TUNE_POINTS = 1 << 15 };

struct tune_grid {
	int n_knobs;
	struct tune_knob {
		const char *name;
		double values[TUNE_VALUES];
		int n, usual; /* index of the default */
	} knobs[TUNE_KNOBS];
};

struct tune_result {
	int at[TUNE_KNOBS]; /* indexes of the best values; the default's where no other is clearly better */
	double best, usual; /* what was measured there, and at the default: best is not less */
	int n_measured;
};

/* More is better; at: indexes of values. What is not above `floor` need not be told exactly: any value up to it will
 * do. 0 or an error, which ends the search. */
typedef int tune_measure(void *ctx, const int *at, double floor, double *out);

/* gain: by how much, as a share, a value must be better than the default to be chosen instead. SL_ENOMEM, SL_EINVAL: no
 * such grid, or measure's. */
int tune_search(const struct tune_grid *g, double gain, tune_measure *measure, void *ctx, struct tune_result *out);

#endif
