/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice cascade refit`: weights fitted to the log of a running server, for a timer.
 */
#ifndef CMD_REFIT_H
#define CMD_REFIT_H

#include <stdbool.h>

#include "cascade/learn.h"

enum { REFIT_EXIT_KEPT = 3 };

struct refit_ask {
	const char *log, *weights;
	bool json;
	struct casc_refit_settings settings;
};

/* Reads LOG.1, if it is there, and LOG; replaces the weights if the new ones are better. 0: it has; REFIT_EXIT_KEPT: it
 * has not, and says why; 1: *err. */
int refit_run(const struct refit_ask *a, struct sl_err *err);

#endif
