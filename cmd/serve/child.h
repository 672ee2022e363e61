/* SPDX-License-Identifier: Apache-2.0
 *
 * One child process of the supervisor: started, heard, restarted with backoff. Private to supervise.c,
 * which decides what its silence, its words and its end mean.
 *
 * States, moved only by child_set_state:
 *
 *   WAITING ──(due)──→ RUNNING ──(ready beat)──→ READY
 *      ↑                  │  ↑────(not ready)──────┘│
 *      └──(exit: backoff)─┴────────────────────────┘
 *   a foreign child is READY as soon as it runs
 *   replaced: READY, RUNNING → RETIRED (drains, ends by itself) → GONE
 *   on shutdown: WAITING → GONE; RUNNING, READY, RETIRED ──(SIGTERM)──→ ENDING ──(exit)──→ GONE
 */
#ifndef CMD_CHILD_H
#define CMD_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fd_pass.h"
#include "cmd/serve/supervise.h"

enum child_state {
	CHILD_WAITING,
	CHILD_RUNNING,
	CHILD_READY,
	CHILD_RETIRED,
	CHILD_ENDING,
	CHILD_GONE,
};

struct child {
	const struct supervise_child *what;
	enum child_state state;
	pid_t pid;         /* 0: no process */
	int beat_fd;       /* the pipe's read end; -1 */
	int broker_fd;     /* where it asks for what only we may open; -1 */
	int exe_fd;        /* what is executed; -1: the configuration's exe */
	bool was_ready;    /* ever, over all restarts */
	bool has_beaten;   /* since the last start */
	bool hung;         /* killed by us for silence */
	unsigned failures; /* in a row */
	uint64_t since_ns; /* of the current state */
	uint64_t beat_ns;  /* last sign of life */
	uint64_t due_ns;   /* WAITING: start then. RETIRED, ENDING, in an upgrade RUNNING: kill then */
	/* Of a replaceable child: where its listening sockets come from, and the newest set of them.
	 * Kept over restarts, so that connections wait in their queues meanwhile. */
	int handover_fd; /* -1 */
	struct fd_pass_in coming;
	struct fd_pass_set sockets;
};

/* A place without a process. */
void child_init(struct child *c, const struct supervise_child *what, enum child_state state);
/* Lets go of its descriptors. No process is there any more. */
void child_dispose(struct child *c);
void child_set_state(struct child *c, enum child_state to);

/* Starts argv. takeover: beside another process that serves still. given: sockets to begin with, or
 * NULL. False (logged): there is no process, and c is in the state that it was in. */
bool child_start(const struct supervise_config *cfg, struct child *c, const char *const *argv, bool takeover,
		 const struct fd_pass_set *given);
/* → WAITING, for as long as its failures say. */
void child_wait(const struct supervise_config *cfg, struct child *c);

/* The supervisor has slept so much longer than it wanted: whatever held it up (the whole machine was stopped) held up
 * the child, so that much of its silence and of its time to get ready does not count. */
void child_excuse(struct child *c, uint64_t ns);
/* Reads what it has said: on_byte for each byte of its heartbeat. */
void child_read_beats(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx);
/* Has what it asks for answered. */
void child_answer(const struct supervise_config *cfg, struct child *c);
/* Takes the set of sockets that it has published, if it has. */
void child_read_sockets(struct child *c);
/* When something must be done about c though nothing happens; UINT64_MAX: never. */
uint64_t child_deadline(const struct supervise_config *cfg, const struct child *c);
/* There is a process and nobody has killed it yet. */
bool child_alive(const struct child *c);
/* At once; its exit comes as any other. */
void child_kill(struct child *c);
/* SIGTERM, and a kill when that has not helped after within_ms. */
void child_end(struct child *c, uint64_t within_ms);
/* Its process has been waited for. What it said before is taken; its lines are closed. */
void child_reaped(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx);
/* noun: what stands before its name, "the new "; pid: it was (it has none any more). */
void child_log_exit(const struct child *c, const char *noun, pid_t pid, int status);

#endif
