/* SPDX-License-Identifier: Apache-2.0
 *
 * A supervisor of a few child processes, whatever they are: starts them, watches exits and
 * heartbeats (base/beat.h), restarts with backoff, replaces one by a newer executable, ends them in
 * order. It knows nothing of engines and gateways; cmd/serve/serve.c decides what runs.
 */
#ifndef CMD_SUPERVISE_H
#define CMD_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
	SUPERVISE_MAX_CHILDREN = 8,
	SUPERVISE_MAX_ARGS = 600,
	SUPERVISE_MAX_RETIRED = 4, /* replaced ones that still drain */
	SUPERVISE_STATUS_CONFIG = 78,
};

struct supervise_child {
	const char *name;        /* for the log */
	const char *const *argv; /* NULL-terminated; `--beat-fd N` is appended */
	/* NULL: cfg's. Otherwise a program that is not ours: it gets no --beat-fd, counts as ready once it
	 * is started, is watched by its exits only, and writes to our standard error. */
	const char *foreign_exe;
	/* One child may be. Its listening sockets are kept here: `--handover-fd N` is a socket over which
	 * it gets those that are there (none at first) and sends those it uses (gateway/transport/handover.h), so
	 * that a restart refuses no connection. Reloads reach it by SIGHUP. In an upgrade another
	 * process is started beside it with `--takeover`, and when that is ready, it gets SIGUSR2 and is
	 * to end once its work has. */
	bool replaceable;
};

/* Read anew whenever it is used: on_reload and on_upgraded may change the times and what argv points
 * to. */
struct supervise_config {
	const char *exe;                        /* what is executed for every child */
	const struct supervise_child *children; /* in the order of starting; ended in reverse */
	int n_children;
	uint64_t hang_ms;       /* silence after which a child is killed */
	uint64_t first_beat_ms; /* patience for the first beat after a start */
	uint64_t backoff_min_ms, backoff_max_ms;
	uint64_t healthy_ms;         /* ready for that long: its failures are forgotten */
	uint64_t drain_ms;           /* of one child, before it is killed */
	uint64_t takeover_ms;        /* of an upgrade: until the new one is ready */
	uint64_t retired_ms;         /* of one that was replaced, before it is killed */
	void (*on_ready)(void *ctx); /* once: every child is ready for the first time */
	/* SIGHUP. 0: the replaceable child is signalled; or one line in *err. NULL: nothing to reload. */
	int (*on_reload)(void *ctx, struct sl_err *err);
	/* SIGUSR2. 0 with what the new process is started with, valid until on_upgraded; or one line in
	 * *err. exe is opened at once: what it names later does not matter. NULL: no upgrades. */
	int (*on_upgrade)(void *ctx, const char **exe, const char *const **argv, struct sl_err *err);
	/* Asked when a child has failed: is there nothing to write on that it needs (a full disk)? Then its failures do
	 * not make the wait longer than a few times backoff_min_ms, since they are not its fault and may end at any
	 * moment. NULL: never. */
	bool (*starved)(void *ctx);
	/* Something can be read on fd, the broker's end of a child's line (base/broker.h): one request is answered. 1;
	 * 0: none is there; negative: the line is closed. NULL: children get no `--broker-fd N`. */
	int (*on_asked)(void *ctx, const struct supervise_child *what, int fd);
	/* In the forked child that becomes a foreign program. Not 0: it must not run (errno). NULL: nothing to do. */
	int (*before_foreign)(void *ctx);
	int kept_fd; /* stays open in children that are ours; 0: none */
	/* The new one has replaced the old one, or has not. */
	void (*on_upgraded)(void *ctx, bool done);
	void *ctx;
};

/* Blocks until SIGTERM or SIGINT (or SIGHUP, when that is the end of the terminal it was started
 * from), or until a child that was never ready exits with status 78 (its configuration is wrong: a
 * restart can't help). Returns the exit status: 0, 78, or 1 when the system refuses (logged). Must be
 * called while the process has one thread. */
int supervise(const struct supervise_config *cfg);

#endif
