/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this is `make perf`. Only then may a test assert durations.
 */
#ifndef TESTS_PERF_H
#define TESTS_PERF_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool perf(void) { return getenv("SLUICE_PERF") != NULL; }

#endif
