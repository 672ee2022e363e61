/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this is `make perf`, which measures. Only then may a test judge how long something took.
 */
#ifndef TESTS_PERF_H
#define TESTS_PERF_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool perf(void) { return getenv("SLUICE_PERF") != NULL; }

#endif
