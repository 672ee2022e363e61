/* SPDX-License-Identifier: Apache-2.0
 *
 * How the limits travel as arguments of their procedures.
 */
#ifndef CACHE_LIMITS_PRIV_H
#define CACHE_LIMITS_PRIV_H

#include "cache/limits.h"

/* Arguments: the id, then numbers, then five for each key. Answers: admit 2 + 4 a key, settle 3 a key. */
enum { ADMIT_ARGS = 4, SETTLE_ARGS = 3, ITEM_ARGS = 5, ADMIT_VALUES = 2, ADMIT_EACH = 4, SETTLE_EACH = 3 };

#endif
