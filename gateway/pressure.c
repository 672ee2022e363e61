/* SPDX-License-Identifier: Apache-2.0
 *
 * What counts is what the kernel counts: resident pages of the process. Sums of our own would miss
 * what the libraries hold, and those are the larger part of a connection. Freed memory that the
 * allocator keeps would look like use for ever, so it is asked to return it while memory is short;
 * that walk takes a moment, so not more than once a second. Pressure ends a sixteenth below the limit,
 * so that it doesn't come and go with every request.
 *
 * Thread: any; one at a time measures.
 */
#include "gateway/pressure.h"

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

static atomic_int level;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t looked_ns, trimmed_ns; /* under the lock */

static struct metric resident = {
    .kind = METRIC_GAUGE,
    .name = "sluice_gateway_resident_bytes",
    .help = "Memory of the gateway's process.",
};
static struct metric short_of = {
    .kind = METRIC_GAUGE,
    .name = "sluice_gateway_memory_pressure",
    .help = "0: none, 1: over gateway.limits.memory, 2: far over it.",
};

__attribute__((constructor)) static void register_metrics(void)
{
	metric_register(&resident);
	metric_register(&short_of);
}

/* 0: not known. */
static uint64_t resident_bytes(void)
{
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	const char *second = strchr(text, ' ');
	return second == NULL ? 0 : strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
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
	if (before != PRESSURE_NONE && now_ns - trimmed_ns >= TRIM_NS) {
		malloc_trim(0);
		trimmed_ns = now_ns;
	}
	uint64_t bytes = resident_bytes();
	enum pressure p = judge(bytes, limit, before);
	atomic_store_explicit(&level, p, memory_order_relaxed);
	metric_set(&resident, (int64_t)bytes);
	metric_set(&short_of, p);
	if ((before == PRESSURE_NONE) != (p == PRESSURE_NONE))
		log_warn("%llu MiB resident: %s", (unsigned long long)(bytes >> 20),
			 p == PRESSURE_NONE ? "requests are taken again" : "requests are shed");
	pthread_mutex_unlock(&lock);
	return p;
}

enum pressure pressure_now(void)
{
	return (enum pressure)atomic_load_explicit(&level, memory_order_relaxed);
}
