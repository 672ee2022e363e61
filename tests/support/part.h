/* SPDX-License-Identifier: Apache-2.0
 *
 * The share of its random cases, or of its lengths, that a test runs. Sanitized code is several times slower, and few
 * cases suffice for what sanitizers detect; without them all cases run. And what of more of the same a run has that
 * is not THOROUGH.
 */
#ifndef TESTS_SUPPORT_PART_H
#define TESTS_SUPPORT_PART_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define PART_OF(n) ((n) / 4)
#else
#define SANITIZED 0
#define PART_OF(n) (n)
#endif

/* With THOROUGH all, else some. */
static inline int some_of(int some, int all) { return getenv("THOROUGH") != NULL ? all : some; }

#endif
