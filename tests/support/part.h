/* SPDX-License-Identifier: Apache-2.0
 *
 * The share of its random cases that a test runs. Sanitized code is several times slower, and few cases suffice for
 * what sanitizers detect; without them all cases run.
 */
#ifndef TESTS_SUPPORT_PART_H
#define TESTS_SUPPORT_PART_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PART_OF(n) ((n) / 4)
#else
#define PART_OF(n) (n)
#endif

#endif
