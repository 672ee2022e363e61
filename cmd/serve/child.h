/* SPDX-License-Identifier: Apache-2.0
 *
 * One child process of the supervisor: starting it, reading its heartbeats, restarting it with backoff. Private to
 * supervise.c, which decides what follows from silence, messages and exits.
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

enum { CHILD_DUMP_MS = 200 };

enum child_state {
	CHILD_WAITING,
	CHILD_RUNNING,
	CHILD_READY,
	CHILD_RETIRED,
	CHILD_ENDING,
	CHILD_GONE,
};

/* A child's connections to the supervisor: heartbeats (a pipe); requests for what only the supervisor may open; the
 * listening sockets of a replaceable child. */
enum child_line { LINE_BEAT, LINE_BROKER, LINE_HANDOVER, N_LINES };

struct child {
	const struct supervise_child *what;
	enum child_state state;
	pid_t pid;          /* 0: no process */
	int lines[N_LINES]; /* our ends; -1 */
	int exe_fd;         /* what is executed; -1: the configuration's exe */
	bool was_ready;     /* ever, over all restarts */
	bool has_beaten;    /* since the last start */
	bool hung;          /* killed by us for silence */
	bool dumps;         /* silent: it was asked for its flight recorder, and is killed CHILD_DUMP_MS later */
	unsigned failures;  /* in a row */
	uint64_t since_ns;  /* of the current state */
	uint64_t beat_ns;   /* last sign of life */
	uint64_t due_ns;    /* WAITING: start then. RETIRED, ENDING, in an upgrade RUNNING: kill then */
	/* Of a replaceable child: its newest set of listening sockets, kept over restarts so that connections wait in
	 * their queues meanwhile. */
	struct fd_pass_in coming;
	struct fd_pass_set sockets;
};

/* A slot without a process. */
void child_init(struct child *c, const struct supervise_child *what, enum child_state state);
/* Closes its descriptors. Its process must be gone. */
void child_dispose(struct child *c);
void child_set_state(struct child *c, enum child_state to);

/* Starts argv. takeover: while another process still serves. given: listening sockets to inherit, or NULL. False
 * (logged): no process was started and the state is unchanged. */
bool child_start(const struct supervise_config *cfg, struct child *c, const char *const *argv, bool takeover,
		 const struct fd_pass_set *given);
/* → WAITING, with a backoff by c->failures. */
void child_wait(const struct supervise_config *cfg, struct child *c);

/* The supervisor was itself suspended for ns: that time counts neither as the child's silence nor against its
 * deadline. */
void child_excuse(struct child *c, uint64_t ns);
/* Calls on_byte for each byte of its heartbeat. */
void child_read_beats(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx);
/* Answers its requests to the broker, a bounded number at once. */
void child_answer(const struct supervise_config *cfg, struct child *c);
/* Receives the sockets that it has published, if any. */
void child_read_sockets(struct child *c);
/* The time at which c times out in its state; UINT64_MAX: never. */
uint64_t child_deadline(const struct supervise_config *cfg, const struct child *c);
/* It has a process that was not killed. */
bool child_alive(const struct child *c);
/* SIGKILL. */
void child_kill(struct child *c);
/* SIGTERM; a kill follows after within_ms. */
void child_end(struct child *c, uint64_t within_ms);
/* Its process was reaped: reads what it had sent, then closes its lines. */
void child_reaped(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx);
/* noun: a prefix of its name, such as "the new ". pid: of the process that ended. */
void child_log_exit(const struct child *c, const char *noun, pid_t pid, int status);

#endif
