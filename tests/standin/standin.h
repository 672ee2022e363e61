/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for CUDA's runtime, on which the product's own device layer (device_cuda.cu, library_cuda.cu, list.cu)
 * runs without a device. It is the backend libsluice-cuda-standin.so; kernels run in the emulation (tests/emulation).
 *
 * Terms:
 *  - An operation (struct op) is what a stream runs: a kernel, a copy, a fill, a product of the vendor's library, the
 *    record of an event or the wait for one. Its position is its number in its stream.
 *  - A clock is one position a stream: what has been ordered before something. An operation's clock joins its stream's
 *    last operation, the events that its stream waited for, and what the host knew to be done. The order is a property
 *    of the calls, not of the run: two operations in conflict without an order are a finding whichever ran first.
 *  - A finding is what a device would answer with wrong results, or a call that a device refuses: it is printed, and
 *    the process aborts.
 *
 * Policies (SLUICE_STANDIN=late, early, random:SEED): when operations run.
 *  - late: when something waits for them, so that memory which is changed or freed too early corrupts a result;
 *  - early: at once;
 *  - random: at any call, of random streams, in any order that events permit.
 *
 * What is checked, and where: events (events.cu), launches' limits (kernels.cu), calls during a capture (graphs.cu),
 * copies of pageable memory (copies.cu), memory that is freed, not there or the host's (arena.cu), every access of a
 * kernel to memory of the device against the order (access.cu; the kernels are compiled with a call at each access),
 * errors that stay (errors.cu). report.cu prints what a run reached. library/ stands in for cuBLASLt; toolkit/ compares
 * the numbers of include/ with a toolkit's; each script in faults/ plants a fault that tests/kernels/test_standin.c has
 * to find.
 *
 * Not covered: capture of more than one stream, managed memory, peers, registers of a launch, time (a clock advances by
 * each operation).
 *
 * Thread: any; one lock guards everything, and operations run under it. The host's threads have one clock together:
 * what one of them waited for counts as known to all.
 */
#ifndef TESTS_STANDIN_H
#define TESTS_STANDIN_H

#include <cuda_runtime.h>

#include "kernels/cuda/device/launch.h"
#include "tests/standin/standin_api.h"

enum { MAX_STREAMS = 64, POS_BITS = 26 };

struct clock {
	uint32_t at[MAX_STREAMS];
};

enum op_kind { OP_KERNEL, OP_COPY, OP_FILL, OP_PRODUCT, OP_RECORD, OP_WAIT, OP_NOTHING };

struct op {
	struct op *next;
	enum op_kind kind;
	int slot;     /* of its stream */
	uint32_t pos; /* in its stream */
	struct clock clock;
	const char *name;            /* static; NULL: none */
	struct kn_command *command;  /* OP_KERNEL: owned, or exec's */
	struct CUgraphExec_st *exec; /* NULL: of no graph; else referenced */
	/* OP_COPY, OP_FILL (from NULL) */
	uint8_t *to;
	const uint8_t *from;
	size_t bytes;
	int value;
	bool hashed;
	uint64_t hash; /* of the source when the copy was given */
	/* OP_PRODUCT */
	struct standin_product product;
	/* OP_RECORD; NULL: the event is gone */
	struct CUevent_st *event;
	/* OP_WAIT */
	int wait_slot;
	uint32_t wait_pos;
};

/* ---- streams.cu ---- */

struct capture;

struct CUstream_st {
	const struct standin_calls *calls; /* first: the library's stand-in finds it there (standin_api.h) */
	int slot;
	uint32_t pos; /* of its last operation */
	struct clock clock;
	struct op *first, **last;
	bool has_kernels;
	struct capture *capture;
	char name[32];
	struct CUstream_st *next;
};

struct CUevent_st {
	bool timing, recorded, asked;
	bool was_captured;        /* recorded in a capture, not in a stream */
	struct capture *captured; /* NULL: it has ended */
	int slot;
	uint32_t pos;
	struct clock clock;
	uint64_t at_ns;
	struct CUevent_st *next;
};

/* Held by every call; a call may be made while it is held by its own thread. */
struct held {
	held();
	~held();
};

extern struct standin_counts standin_counts;
extern struct clock standin_host; /* what the host knows to be done */
extern uint64_t standin_now_ns;

bool op_before(int slot, uint32_t pos, const struct clock *c);
bool op_done(int slot, uint32_t pos);
/* Gives an operation to the stream, or to its capture; takes what it points to. */
cudaError_t op_give(struct CUstream_st *s, struct op *o);
struct op *op_new(enum op_kind kind);
void op_free(struct op *o);
/* Runs all operations of all streams, which the host knows to be done then. */
void streams_run_all(void);
bool stream_is(const struct CUstream_st *s);
/* Calls f for each operation that has not run. */
void streams_each_pending(void (*f)(const struct op *o, void *ctx), void *ctx);
void streams_drop_all(void);
void standin_log(enum standin_event_kind kind, const struct CUstream_st *s, const struct op *o);
/* How many there are. */
int streams_alive(void);
int streams_pending(void); /* operations that have not run */
/* Runs that stream up to there, and what it waits for. */
void streams_run_to(int slot, uint32_t pos);
/* Runs what a device may have done meanwhile. */
void streams_stir(void);
void clock_join(struct clock *to, const struct clock *from);
struct CUstream_st *stream_of(int slot);
int events_alive(void);
void events_forget_capture(const struct capture *c);

#define STREAM(s)          \
	if (!stream_is(s)) \
	return standin_refuse(cudaErrorInvalidResourceHandle, "%s of a stream that is not there", __func__)

uint32_t standin_random(uint32_t below);

/* ---- errors.cu ---- */
/* The error that stays until no handle is left; cudaSuccess: none. */
extern cudaError_t standin_broken;
/* Reports a finding, which ends the process. */
void standin_finding(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A call that a device refuses: a finding, unless the device is broken. Returns the error. */
cudaError_t standin_refuse(cudaError_t e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Remembers an error for cudaGetLastError; returns it. */
cudaError_t standin_error(cudaError_t e);
void standin_break(cudaError_t e, const char *kernel, const char *why);
/* For tests: whether this call is to fail (sluice_standin_fail). */
bool standin_struck(const char *call, cudaError_t *e);
/* As if in a new process, once nothing is left of the broken one. */
void standin_heal(void);

int standin_capability(void);

/* ---- graphs.cu ---- */
/* Appends an operation to the stream's capture. */
cudaError_t capture_add(struct CUstream_st *s, struct op *o);
/* A call that is not allowed while this thread, or in the global mode any thread, captures: 0, or the error. */
cudaError_t capture_forbids(const char *call);
void capture_invalidate(struct capture *c);
void exec_unref(struct CUgraphExec_st *x);
int execs_alive(void);
int graphs_alive(void);

/* ---- arena.cu ---- */
enum memory_kind : uint8_t { MEMORY_NONE, MEMORY_DEVICE, MEMORY_PINNED, MEMORY_FREED };

struct piece {
	uint8_t *at;
	size_t bytes;
	enum memory_kind kind;
	struct piece *next;
};

enum { ARENA_PAGE = 4096 };
constexpr uint64_t ARENA_BYTES = 64ull << 30;
extern uint8_t *arena;
extern uint8_t arena_kind[ARENA_BYTES / ARENA_PAGE]; /* enum memory_kind */

static inline bool in_arena(const void *p) { return (uintptr_t)p - (uintptr_t)arena < ARENA_BYTES; }
/* The live piece that has all of the range, or NULL. */
const struct piece *piece_of(const void *p, size_t bytes);
/* Whether operations that have not run read or write it, as far as their ranges and arguments say, and one's name. */
void piece_uses(const struct piece *p, bool *reads, bool *writes, const char **name);
/* How memory there is called, for findings. */
const char *memory_name(const void *p);

/* ---- access.cu ---- */
/* An access by a whole operation: against the order, and recorded. */
void access_range(const struct op *o, const void *p, size_t bytes, bool write);
void access_begin(const struct op *o, const void *shared, size_t shared_bytes);
void access_end(void);
void access_forget(const void *p, size_t bytes);

/* ---- kernels.cu ---- */
/* NULL, or what went wrong. */
const char *kernel_run(const struct op *o);
uint64_t kernel_ns(const struct kn_command *c);
/* Whether the program wants this launch to fail (base/fault.h). */
bool kernel_struck(void);

/* ---- copies.cu ---- */
void copy_run(const struct op *o);

/* ---- report.cu ---- */
void report_ran(const struct op *o);

#endif
