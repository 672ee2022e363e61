/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Test threads read it while the test changes it. */
static const uint64_t *_Atomic fake_ns;
static const int64_t *_Atomic fake_unix_s;

uint64_t clock_now_ns(void)
{
	const uint64_t *fake = atomic_load_explicit(&fake_ns, memory_order_relaxed);
	if (fake != NULL)
		return __atomic_load_n(fake, __ATOMIC_RELAXED);
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint32_t clock_us_between(uint64_t from_ns, uint64_t to_ns)
{
	if (from_ns == 0 || to_ns <= from_ns)
		return 0;
	uint64_t us = (to_ns - from_ns) / 1000;
	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

int64_t clock_unix_s(void)
{
	const int64_t *fake = atomic_load_explicit(&fake_unix_s, memory_order_relaxed);
	return fake != NULL ? __atomic_load_n(fake, __ATOMIC_RELAXED) : (int64_t)time(NULL);
}

void clock_fake(const uint64_t *source_ns) { atomic_store(&fake_ns, source_ns); }

void clock_fake_unix(const int64_t *source_s) { atomic_store(&fake_unix_s, source_s); }
