/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded into a redis-server by LD_PRELOAD: its time of day is the machine's plus the microseconds in the file that
 * CLOCK_SHIM names, which a test writes. The monotonic clock is unchanged, as when an administrator sets the time.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *ahead_us;

__attribute__((constructor)) static void open_file(void)
{
	const char *path = getenv("CLOCK_SHIM");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = fd >= 0 ? mmap(NULL, sizeof *ahead_us, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		abort();
	ahead_us = at;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	int64_t us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + __atomic_load_n(ahead_us, __ATOMIC_RELAXED);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}

time_t time(time_t *out)
{
	struct timeval tv;
	gettimeofday(&tv, NULL);
	if (out != NULL)
		*out = tv.tv_sec;
	return tv.tv_sec;
}
