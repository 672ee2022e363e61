/* SPDX-License-Identifier: Apache-2.0
 *
 * A supervisor of a few child processes, whatever they are: starts them, watches exits and
 * heartbeats (base/beat.h), restarts with backoff, ends them in order. It knows nothing of engines
 * and gateways; cmd/serve.c tells it what to run.
 */
#ifndef CMD_SUPERVISE_H
#define CMD_SUPERVISE_H

#include <stdint.h>

enum { SUPERVISE_MAX_CHILDREN = 8, SUPERVISE_MAX_ARGS = 600 };

struct supervise_child {
	const char *name;         /* for the log */
	const char *const *argv;  /* NULL-terminated; `--beat-fd N` is appended */
	/* NULL: cfg's. Otherwise a program that is not ours: it gets no --beat-fd, counts as ready once it
	 * is started, is watched by its exits only, and writes to our standard error. */
	const char *foreign_exe;
};

struct supervise_config {
	const char *exe; /* what is executed for every child */
	const struct supervise_child *children; /* in the order of starting; ended in reverse */
	int n_children;
	uint64_t hang_ms;       /* silence after which a child is killed */
	uint64_t first_beat_ms; /* patience for the first beat after a start */
	uint64_t backoff_min_ms, backoff_max_ms;
	uint64_t healthy_ms;    /* ready for that long: its failures are forgotten */
	uint64_t drain_ms;      /* of one child, before it is killed */
	void (*on_ready)(void *ctx); /* once: every child is ready for the first time */
	void *ctx;
};

/* Blocks until SIGTERM, SIGINT or SIGHUP, or until a child that was never ready exits with status
 * 78 (its configuration is wrong: a restart can't help). Returns the exit status: 0, 78, or 1 when
 * the system refuses (logged). Must be called while the process has one thread. */
int supervise(const struct supervise_config *cfg);

#endif
