/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines of several threads whose work is tiny, beside other tests: threads that spin take the processors from those
 * that they wait for. What they compute does not depend on it.
 */
#ifndef TESTS_SUPPORT_SHORT_SPINS_H
#define TESTS_SUPPORT_SHORT_SPINS_H

#include "kernels/cpu/pool.h"

static inline void short_spins(void) { kn_pool_spin(2000, 20000); }

#endif
