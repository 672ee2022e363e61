/* SPDX-License-Identifier: Apache-2.0
 *
 * Time. Code that depends on time takes a clock reading as an argument or reads it here, so that tests and simulations
 * can control it.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

/* Monotonic nanoseconds. */
uint64_t clock_now_ns(void);
/* Microseconds between two readings; 0 if the first is 0 (never taken) or not earlier. */
uint32_t clock_us_between(uint64_t from_ns, uint64_t to_ns);
/* Seconds since 1970. */
int64_t clock_unix_s(void);
/* Tests: makes clock_now_ns return *source; NULL: the real clock again. Borrowed. */
void clock_fake(const uint64_t *source_ns);
/* Tests: the same for clock_unix_s, which may step either way. */
void clock_fake_unix(const int64_t *source_s);

#endif
