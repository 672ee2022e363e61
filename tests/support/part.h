/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of what is drawn at random a test does. Under sanitizers the same code takes several times as long, and
 * what they look for shows with few draws; the whole of it is run without them.
 */
#ifndef TESTS_SUPPORT_PART_H
#define TESTS_SUPPORT_PART_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PART_OF(n) ((n) / 4)
#else
#define PART_OF(n) (n)
#endif

#endif
