/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: what each thread of a process did in the last seconds, written to a file when a signal asks for
 * it and when the process fails. Events are numbers: they hold no text of prompts or answers, no key and no token id.
 *
 *   ring     a thread's last events, in memory that is allocated once. Only its thread writes, without a lock.
 *   dump     all rings of the process in one file, STATE/flight/PROCESS-N.flight, mode 0600. There are at most
 *            FLIGHT_FILES of a process name: the oldest is replaced.
 *
 * Signals: SIGUSR1 dumps and the process continues. SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT dump once and keep
 * their effect. The handler calls only functions that are safe in one (POSIX.1-2017, 2.4.3).
 *
 * A dump is written while threads go on. Reading it (flight_read), events that may have been overwritten meanwhile are
 * left out: the file has each ring's count of events from before and after its bytes.
 */
#ifndef BASE_FLIGHT_H
#define BASE_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/probes.h"

/* Numbers of the file's format: new ones go to the end. flight_kinds names them and their values. */
enum flight_kind {
	FLIGHT_NONE,
	FLIGHT_STEP,    /* a step of a model was issued */
	FLIGHT_LANDED,  /* it has ended */
	FLIGHT_PREEMPT, /* a sequence lost its pages */
	FLIGHT_START,   /* a sequence got pages: where its prompt left the cache */
	FLIGHT_ADMIT,   /* an answer begins: no tenant, whose number may be guessed from an address */
	FLIGHT_END,     /* an answer has ended */
	FLIGHT_REFUSE,  /* a request got an error */
	FLIGHT_LOAD,    /* an answer was refused for load */
	FLIGHT_CASCADE, /* a plan, or a switch */
	FLIGHT_ENGINE,  /* the link to the engine went up or down */
	FLIGHT_STORE,   /* the link to the store changed its state */
	FLIGHT_CONTROL, /* a reload, a drain, an administrator's action */
	FLIGHT_N_KINDS
};

enum {
	FLIGHT_VALUES = 5,
	FLIGHT_NAME = 16, /* bytes of a thread's or process's name, with its end */
	FLIGHT_RINGS = 128,
	FLIGHT_FILES = 8,
	FLIGHT_MOST_EVENTS = 1 << 16, /* of a ring */
};

struct flight_kind_info {
	const char *name;
	const char *values[FLIGHT_VALUES]; /* NULL: not used */
};
extern const struct flight_kind_info flight_kinds[FLIGHT_N_KINDS];

/* An event in memory and in the file: eight words of the machine's byte order. */
enum { FLIGHT_W_NUMBER, FLIGHT_W_TIME, FLIGHT_W_KIND, FLIGHT_W_VALUES, FLIGHT_WORDS = 8 };

struct flight_ring {
	char name[FLIGHT_NAME];
	uint32_t n_events;   /* a power of two */
	atomic_ullong count; /* events written ever */
	atomic_ullong (*events)[FLIGHT_WORDS];
};

/* Gives the calling thread a ring of n_events, rounded up to a power of two and at most FLIGHT_MOST_EVENTS. Without
 * memory, or with FLIGHT_RINGS in use, its events are not recorded. A thread that has one keeps it. Nothing before
 * flight_start. */
void flight_open(const char *name, unsigned n_events);
/* At the thread's end; its events are gone. */
void flight_close(void);

extern _Thread_local struct flight_ring *flight_own;

/* kind is a constant where it is called, so one probe is left. */
static inline void flight_probe(enum flight_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	switch (kind) {
	case FLIGHT_STEP: PROBE5(step, a, b, c, d, e); break;
	case FLIGHT_LANDED: PROBE5(landed, a, b, c, d, e); break;
	case FLIGHT_PREEMPT: PROBE5(preempt, a, b, c, d, e); break;
	case FLIGHT_START: PROBE5(start, a, b, c, d, e); break;
	case FLIGHT_ADMIT: PROBE5(admit, a, b, c, d, e); break;
	case FLIGHT_END: PROBE5(end, a, b, c, d, e); break;
	case FLIGHT_REFUSE: PROBE5(refuse, a, b, c, d, e); break;
	case FLIGHT_LOAD: PROBE5(load, a, b, c, d, e); break;
	case FLIGHT_CASCADE: PROBE5(cascade, a, b, c, d, e); break;
	case FLIGHT_ENGINE: PROBE5(engine, a, b, c, d, e); break;
	case FLIGHT_STORE: PROBE5(store, a, b, c, d, e); break;
	case FLIGHT_CONTROL: PROBE5(control, a, b, c, d, e); break;
	case FLIGHT_NONE:
	case FLIGHT_N_KINDS: break;
	}
}

/* An event of the calling thread, and a probe; the event is not kept if the thread has no ring. */
static inline void flight_note(enum flight_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	struct flight_ring *r = flight_own;
	flight_probe(kind, a, b, c, d, e);
	if (r == NULL)
		return;
	const unsigned long long n = atomic_load_explicit(&r->count, memory_order_relaxed);
	atomic_ullong *w = r->events[n & (r->n_events - 1)];
	const unsigned long long words[FLIGHT_WORDS] = {n + 1, clock_now_ns(), kind, a, b, c, d, e};
	atomic_store_explicit(&w[FLIGHT_W_NUMBER], 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int i = 1; i < FLIGHT_WORDS; i++)
		atomic_store_explicit(&w[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&w[FLIGHT_W_NUMBER], words[0], memory_order_release);
	atomic_store_explicit(&r->count, n + 1, memory_order_release);
}

/* Once in a process: dumps go to folder/PROCESS-N.flight; makes the folder, 0700, installs the handlers and unblocks
 * SIGUSR1. SL_EIO with *err: there is no recorder, and SIGUSR1 is ignored. process: at most FLIGHT_NAME - 1 bytes. */
int flight_start(const char *process, const char *folder, struct sl_err *err);
/* Writes a dump to fd; for the handler and for tests. reason: the signal's number. False: not all was written. */
bool flight_dump(int fd, int reason);

/* ---- reading a dump ---- */

struct flight_dump_head {
	char magic[8]; /* "SLFLIGHT" */
	uint32_t version, n_rings;
	char process[FLIGHT_NAME];
	uint32_t pid, reason;
	uint64_t unix_ns, now_ns; /* the time of the dump by both clocks */
};
enum { FLIGHT_VERSION = 1 };

/* Before a ring's events; its count after them follows as one word. */
struct flight_ring_head {
	char name[FLIGHT_NAME];
	uint32_t n_events, zero;
	uint64_t count;
};

struct flight_event {
	uint64_t now_ns, values[FLIGHT_VALUES];
	uint32_t kind;
};

/* Checks bytes, which any program may have written, and calls on_event for each whole event, ring by ring, oldest
 * first. SL_EPROTO with *err: it is no dump, or damaged; events before the damage were reported. */
int flight_read(const void *bytes, size_t n, struct flight_dump_head *head,
		void (*on_event)(void *ctx, const char *thread, const struct flight_event *e), void *ctx,
		struct sl_err *err);

#endif
