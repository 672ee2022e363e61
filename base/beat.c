/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat of a child process: one small thread that looks at all slots and is the only writer of the pipe.
 *
 * Why a thread: a loop that sends its own beats proves only that this loop turns. Here a beat goes out only while every
 * registered loop has touched its slot within stale_ms, so one hung thread stops the beats and the supervisor restarts
 * the process. A touch is one relaxed store, cheap enough for the hottest loop.
 *
 * Readiness uses the same pipe: callers set the wanted state and wake the thread. The pipe is non-blocking; when it is
 * full (the supervisor is stopped in a debugger) a beat is dropped and a change of readiness is sent later. Once the
 * supervisor is gone, nothing more is written.
 *
 * Thread: all signals are blocked in the beat thread; SIGPIPE in particular is directed at the writing thread and must
 * not end the process. The state below is one per process.
 */
#include "base/beat.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

enum want { WANT_NOTHING, WANT_READY, WANT_NOT_READY };

static struct {
	pthread_mutex_t lock; /* everything but touched_ns */
	pthread_cond_t changed;
	pthread_t thread;
	bool running, stop;
	int fd;
	unsigned interval_ms;
	uint64_t stale_ns;
	enum want wanted, sent;
	bool used[BEAT_MAX_SLOTS], complained[BEAT_MAX_SLOTS];
	const char *names[BEAT_MAX_SLOTS];
	atomic_uint_least64_t touched_ns[BEAT_MAX_SLOTS];
} beat = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

int beat_slot(const char *name)
{
	int slot = -1;
	pthread_mutex_lock(&beat.lock);
	for (int i = 0; i < BEAT_MAX_SLOTS && slot < 0; i++) {
		if (!beat.used[i])
			slot = i;
	}
	if (slot >= 0) {
		beat.used[slot] = true;
		beat.complained[slot] = false;
		beat.names[slot] = name;
		beat_touch(slot);
	}
	pthread_mutex_unlock(&beat.lock);
	return slot;
}

void beat_touch(int slot)
{
	if (slot < 0) /* no slot was free: this loop is not watched */
		return;
	BUG_IF(slot >= BEAT_MAX_SLOTS, "beat_touch: slot %d", slot);
	atomic_store_explicit(&beat.touched_ns[slot], clock_now_ns(), memory_order_relaxed);
}

void beat_slot_close(int slot)
{
	if (slot < 0)
		return;
	pthread_mutex_lock(&beat.lock);
	BUG_IF(slot >= BEAT_MAX_SLOTS || !beat.used[slot], "beat_slot_close: slot %d", slot);
	beat.used[slot] = false;
	pthread_mutex_unlock(&beat.lock);
}

/* With the lock held. */
static bool all_fresh(uint64_t now)
{
	bool fresh = true;
	for (int i = 0; i < BEAT_MAX_SLOTS; i++) {
		if (!beat.used[i])
			continue;
		uint64_t touched = atomic_load_explicit(&beat.touched_ns[i], memory_order_relaxed);
		bool stale = now > touched && now - touched > beat.stale_ns;
		if (stale && !beat.complained[i])
			log_warn("loop %s has not turned for %llu ms: no more heartbeats", beat.names[i],
				 (unsigned long long)((now - touched) / NS_PER_MS));
		beat.complained[i] = stale;
		fresh = fresh && !stale;
	}
	return fresh;
}

/* With the lock held. False when the byte did not go out. */
static bool send_byte(int m)
{
	char c = (char)m;
	ssize_t n;
	do {
		n = write(beat.fd, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EPIPE) {
		close(beat.fd);
		beat.fd = -1;
	}
	return n == 1;
}

static struct timespec after_ms(unsigned ms)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	uint64_t ns = (uint64_t)ts.tv_nsec + ms * NS_PER_MS;
	ts.tv_sec += (time_t)(ns / NS_PER_S);
	ts.tv_nsec = (long)(ns % NS_PER_S);
	return ts;
}

static void *beat_main(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&beat.lock);
	uint64_t looked = clock_now_ns();
	while (!beat.stop && beat.fd >= 0) {
		if (beat.wanted != beat.sent && send_byte(beat.wanted == WANT_READY ? BEAT_READY : BEAT_NOT_READY))
			beat.sent = beat.wanted;
		/* After the whole process was stopped, skip one check: the loops have only just resumed. */
		uint64_t now = clock_now_ns();
		bool stopped = now - looked > beat.interval_ms * NS_PER_MS + beat.stale_ns / 2;
		looked = now;
		if (beat.fd >= 0 && !stopped && all_fresh(now))
			send_byte(BEAT_ALIVE);
		struct timespec until = after_ms(beat.interval_ms);
		enum want before = beat.wanted;
		int rc = 0;
		while (!beat.stop && beat.wanted == before && rc == 0)
			rc = pthread_cond_timedwait(&beat.changed, &beat.lock, &until);
	}
	pthread_mutex_unlock(&beat.lock);
	return NULL;
}

int beat_start(int fd, unsigned interval_ms, unsigned stale_ms)
{
	if (fd < 0)
		return 0;
	BUG_IF(beat.running, "beat_start: started twice");
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return SL_EIO;

	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&beat.changed, &monotonic);
	pthread_condattr_destroy(&monotonic);

	pthread_mutex_lock(&beat.lock);
	beat.fd = fd;
	beat.stop = false;
	beat.interval_ms = interval_ms > 0 ? interval_ms : 1;
	beat.stale_ns = stale_ms * NS_PER_MS;
	beat.sent = WANT_NOTHING;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&beat.thread, NULL, beat_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	beat.running = rc == 0;
	if (rc != 0)
		beat.fd = -1;
	pthread_mutex_unlock(&beat.lock);
	return rc == 0 ? 0 : SL_EIO;
}

void beat_ready(bool ready)
{
	pthread_mutex_lock(&beat.lock);
	beat.wanted = ready ? WANT_READY : WANT_NOT_READY;
	if (beat.running)
		pthread_cond_signal(&beat.changed);
	pthread_mutex_unlock(&beat.lock);
}

bool beat_ask(enum beat_ask what)
{
	pthread_mutex_lock(&beat.lock);
	bool sent = beat.running && beat.fd >= 0 && send_byte((int)what);
	pthread_mutex_unlock(&beat.lock);
	return sent;
}

void beat_stop(void)
{
	pthread_mutex_lock(&beat.lock);
	bool running = beat.running;
	beat.stop = true;
	if (running)
		pthread_cond_signal(&beat.changed);
	pthread_mutex_unlock(&beat.lock);
	if (!running)
		return;
	pthread_join(beat.thread, NULL);
	pthread_cond_destroy(&beat.changed);
	if (beat.fd >= 0)
		close(beat.fd);
	beat.fd = -1;
	beat.running = false;
	beat.wanted = beat.sent = WANT_NOTHING;
}
