/* SPDX-License-Identifier: Apache-2.0
 *
 * The measure is what the kernel counts: the resident pages of the process. Our own sums would miss the memory of the
 * libraries, which is most of a connection's. Freed memory that the allocator keeps would count as used for ever, so it
 * is trimmed while memory is short, at most once a second because a trim takes time. Pressure ends a sixteenth below
 * the limit, so that it does not alternate with every request.
 *
 * Memory is also trimmed without pressure. After a flood of connections freed blocks lie between used ones, in the
 * arena of each thread, and the allocator returns by itself only the end of an arena. So resident pages are compared
 * from time to time with the allocator's count of used memory. The difference is freed memory that is kept, plus what
 * the allocator does not see (stacks, libraries). When the difference has grown SLACK_BYTES above its minimum, memory
 * is trimmed.
 *
 * Thread: any; one at a time measures.
 */
#include "gateway/transport/pressure.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#define LOOK_NS (100 * NS_PER_MS)
#define TRIM_NS (1000 * NS_PER_MS)
#define COMPARE_NS (2000 * NS_PER_MS)
enum { SLACK_BYTES = 8 << 20 };

static atomic_int level;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t looked_ns, trimmed_ns, compared_ns; /* under the lock */
static uint64_t least_kept = UINT64_MAX;            /* the minimum of kept_bytes since the last trim; under the lock */

GAUGE(resident, "sluice_gateway_resident_bytes", "Resident memory of the gateway process.");
COUNTER(trims, "sluice_gateway_memory_trims_total", "Times that freed memory was returned to the operating system.");
GAUGE(short_of, "sluice_gateway_memory_pressure", "0: none, 1: over gateway.limits.memory, 2: far over it.");

/* 0: unknown. *own: without shared and file-backed pages. */
static uint64_t resident_bytes(uint64_t *own)
{
	*own = 0;
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	char *at = strchr(text, ' ');
	if (at == NULL)
		return 0;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = strtoull(at, &at, 10), shared = strtoull(at, NULL, 10);
	*own = all > shared ? (all - shared) * page : 0;
	return all * page;
}

static void trim(uint64_t now_ns)
{
	malloc_trim(0);
	trimmed_ns = now_ns;
	metric_add(&trims, 1);
}

/* Resident memory that the allocator does not count as used. */
static uint64_t kept_bytes(uint64_t own)
{
	struct mallinfo2 m = mallinfo2();
	uint64_t used = (uint64_t)m.uordblks + m.hblkhd;
	return own > used ? own - used : 0;
}

static void return_kept(uint64_t own, uint64_t now_ns)
{
	if (compared_ns != 0 && now_ns - compared_ns < COMPARE_NS)
		return;
	compared_ns = now_ns;
	uint64_t kept = kept_bytes(own);
	if (least_kept != UINT64_MAX && kept > least_kept + SLACK_BYTES) {
		trim(now_ns);
		(void)resident_bytes(&own);
		/* The rest can't be returned, so it is the new minimum. */
		least_kept = kept_bytes(own);
	} else if (kept < least_kept) {
		least_kept = kept;
	}
}

static enum pressure judge(uint64_t bytes, uint64_t limit, enum pressure before)
{
	if (limit == 0)
		return PRESSURE_NONE;
	uint64_t slack = before == PRESSURE_NONE ? 0 : limit / 16;
	if (bytes > limit + limit / 8)
		return PRESSURE_FULL;
	return bytes > limit - slack ? PRESSURE_SHED : PRESSURE_NONE;
}

enum pressure pressure_look(uint64_t limit, uint64_t now_ns)
{
	if (pthread_mutex_trylock(&lock) != 0)
		return pressure_now();
	if (looked_ns != 0 && now_ns - looked_ns < LOOK_NS) {
		pthread_mutex_unlock(&lock);
		return pressure_now();
	}
	looked_ns = now_ns;
	enum pressure before = pressure_now();
	uint64_t own;
	if (before != PRESSURE_NONE && now_ns - trimmed_ns >= TRIM_NS)
		trim(now_ns);
	uint64_t bytes = resident_bytes(&own);
	return_kept(own, now_ns);
	enum pressure p = judge(bytes, limit, before);
	atomic_store_explicit(&level, p, memory_order_relaxed);
	metric_set(&resident, (int64_t)bytes);
	metric_set(&short_of, p);
	if ((before == PRESSURE_NONE) != (p == PRESSURE_NONE))
		log_warn("%llu MiB resident: %s", (unsigned long long)(bytes >> 20),
			 p == PRESSURE_NONE ? "requests are accepted again" : "requests are shed");
	pthread_mutex_unlock(&lock);
	return p;
}

enum pressure pressure_now(void) { return (enum pressure)atomic_load_explicit(&level, memory_order_relaxed); }
