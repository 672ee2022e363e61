/* SPDX-License-Identifier: Apache-2.0
 *
 * The room runs the service: serve.c prepares it, and this supervisor runs the children. It starts them, watches exits
 * and heartbeats (base/beat.h), restarts with backoff, replaces one child by a newer executable, and ends them in
 * order. It is independent of what the children do; serve.c decides what runs. engine.c and gateway.c are the
 * children's entries. Thread: main.
 *
 *   child        one supervised process over all its restarts (child.h)
 *   newcomer     the new process of an upgrade or a succession, until it replaces the old one
 *   succession   children replaced in a reload
 *   retired      a replaced process that still drains
 */
#ifndef CMD_SUPERVISE_H
#define CMD_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fd_pass.h"
#include "cmd/serve/notify.h"

enum {
	SUPERVISE_MAX_CHILDREN = 12,
	SUPERVISE_MAX_ARGS = 600,
	SUPERVISE_MAX_RETIRED = 4, /* replaced ones that still drain */
	SUPERVISE_STATUS_CONFIG = 78,
};

struct supervise_child {
	const char *name;        /* for the log */
	const char *const *argv; /* NULL-terminated; `--beat-fd N` is appended */
	/* NULL: cfg's. Otherwise a foreign program: it gets no --beat-fd, is ready as soon as it runs, is watched by
	 * its exits only, and writes to our standard error. */
	const char *foreign_exe;
	/* At most one child is replaceable. The supervisor keeps its listening sockets, so that a restart refuses no
	 * connection: over the socket `--handover-fd N` the child gets the sockets kept so far (none at first) and
	 * sends those it uses (gateway/transport/handover.h). SIGHUP reloads it. In an upgrade another process starts
	 * beside it with `--takeover`; when that is ready, the old one gets SIGUSR2 and ends when its work is done. */
	bool replaceable;
	int kept_fd; /* stays open in this child; 0: none */
	/* What its successor is started with, with `--takeover` behind, where on_reload asks for one. */
	const char *const *next_argv;
};

/* The supervisor reads it at each use: on_reload and on_upgraded may change the times and what argv points to. */
struct supervise_config {
	const char *exe;                        /* what is executed for every child */
	const struct supervise_child *children; /* in the order of starting; ended in reverse */
	int n_children;
	uint64_t hang_ms;       /* silence after which a child is killed */
	uint64_t first_beat_ms; /* the same before the first beat after a start */
	uint64_t backoff_min_ms, backoff_max_ms;
	uint64_t healthy_ms;         /* after being ready for so long, a child has no failures */
	uint64_t drain_ms;           /* of one child, before it is killed */
	uint64_t takeover_ms;        /* in an upgrade, until the new process is ready */
	uint64_t retired_ms;         /* of a replaced process, before it is killed */
	void (*on_ready)(void *ctx); /* once, when every child has become ready */
	/* SIGHUP. 0: the replaceable child is signalled; or one line in *err. NULL: nothing to reload. Positive, bit i:
	 * child i is replaced first, one after the other, by a process with its next_argv. Each starts beside the
	 * former one and takes over as in an upgrade: once it is ready, the former gets SIGUSR2 and ends when its work
	 * is done. on_succeeded follows. */
	int (*on_reload)(void *ctx, struct sl_err *err);
	/* done: all were replaced; the replaceable child is signalled next. Otherwise one was not ready: those before
	 * it are replaced again, by processes with their argv. */
	void (*on_succeeded)(void *ctx, bool done);
	/* SIGUSR2. 0 with the new process's executable and arguments, valid until on_upgraded; or one line in *err. exe
	 * is opened at once. NULL: no upgrades. */
	int (*on_upgrade)(void *ctx, const char **exe, const char *const **argv, struct sl_err *err);
	/* Called when a child has failed: is the disk full, for example? Such failures are not the child's and may end
	 * at any moment, so the wait stays below a few times backoff_min_ms. NULL: never. */
	bool (*starved)(void *ctx);
	/* Answers one request on fd, the broker's end of a child's line (base/broker.h). 1; 0: there is none; negative:
	 * the line is closed. NULL: children get no `--broker-fd N`. */
	int (*on_asked)(void *ctx, const struct supervise_child *what, int fd);
	/* In the forked child, before it executes a foreign program. Not 0: it must not run (errno). NULL: nothing. */
	int (*before_foreign)(void *ctx);
	int kept_fd; /* stays open in children that are not foreign; 0: none */
	/* The service manager; NULL: none. The watchdog is fed only while every child that beats is alive. */
	struct notify *notify;
	/* The first sockets of the replaceable child, taken; NULL: none. */
	struct fd_pass_set *sockets;
	/* The upgrade has ended; done: the new process has replaced the old one. */
	void (*on_upgraded)(void *ctx, bool done);
	void *ctx;
};

/* Blocks until SIGTERM or SIGINT (or SIGHUP from a closing terminal), or until a child that was never ready exits with
 * status 78: its configuration is wrong, and a restart can't help. Returns the exit status: 0, 78, or 1 after a failed
 * system call (logged). Call it while the process has one thread. */
int supervise(const struct supervise_config *cfg);

#endif
