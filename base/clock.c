/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Threads of a test read it while the test turns it. */
static const uint64_t *_Atomic fake_ns;

uint64_t clock_now_ns(void)
{
	const uint64_t *fake = atomic_load_explicit(&fake_ns, memory_order_relaxed);
	if (fake != NULL)
		return __atomic_load_n(fake, __ATOMIC_RELAXED);
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

int64_t clock_unix_s(void)
{
	return (int64_t)time(NULL);
}

void clock_fake(const uint64_t *source_ns)
{
	atomic_store(&fake_ns, source_ns);
}
