/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice tune`: the settings of one engine with which most requests stay within the targets. tune_grid.c has what is
 * tried and what a point of it carries, in simulation; tune.c the command, its real runs and what it writes.
 */
#ifndef CMD_TUNE_H
#define CMD_TUNE_H

#include "cmd/plan/plan_ask.h"
#include "cmd/plan/tune_search.h"

/* The exit status. */
int cmd_tune(int argc, char **argv);

enum { TUNE_CHUNK, TUNE_ITL, TUNE_SEQUENCES, TUNE_MEMORY, TUNE_DRAFT };

/* What a search measures. */
struct tune_case {
	const struct plan_ask *ask;
	struct tune_grid grid;
	struct plan_box box; /* costs; the grid's values replace the rest */
	double page_bytes;   /* of keys and values */
	void (*told)(int n); /* after so many points; NULL: nobody listens */
	int n_told;
};

/* The grid around the defaults, its values within what the machine and the requests allow. */
void tune_case_init(struct tune_case *c, const struct plan_ask *ask, const struct plan_costs *costs, double accept);
/* An engine with these values. */
struct plan_box tune_box(const struct tune_case *c, const int *at);
/* tune_measure of a struct tune_case: the highest rate within the targets, in simulation. */
int tune_rate(void *ctx, const int *at, double floor, double *out);

#endif
