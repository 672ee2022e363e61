/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes of a measurement: starting, pinning to a processor, reading their cost, ending.
 */
#ifndef CMD_BENCH_CHILD_H
#define CMD_BENCH_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"

struct bench_child {
	pid_t pid; /* 0: none */
	clockid_t cpu;
};

/* How many processors this process may use. */
int bench_cpus(void);
/* Pins the calling process to one of them. No effect with fewer than two. */
void bench_pin(int cpu);

/* Finds argv[0] in PATH. Standard output and error go to the file log. */
int bench_child_start(struct bench_child *c, char *const argv[], int cpu, const char *log, struct sl_err *err);
/* The child runs run(arg) and ends. */
int bench_child_fork(struct bench_child *c, void (*run)(void *arg), void *arg, int cpu, struct sl_err *err);
/* SIGTERM; SIGKILL if the child does not end soon. */
void bench_child_stop(struct bench_child *c);
bool bench_child_alive(const struct bench_child *c);
/* Whether a process listens at that address. */
bool bench_accepts(const struct sockaddr *at, socklen_t n);
/* Waits until the child listens at that address. SL_EIO: it ended, or does not listen in time (bench_child_no_start).
 */
int bench_child_await(const struct bench_child *c, const struct sockaddr *at, socklen_t n, const char *name,
		      const char *log, struct sl_err *err);
/* Returns SL_EIO; *err names the child that failed to start and quotes the last line of its log. */
int bench_child_no_start(const char *name, const char *log, struct sl_err *err);
/* User and system time of all its threads. */
uint64_t bench_child_cpu_ns(const struct bench_child *c);
/* Resident memory in bytes. */
uint64_t bench_child_rss(const struct bench_child *c);

/* A TCP port of 127.0.0.1 that was just free; 0: none. */
uint16_t bench_free_port(void);
/* A non-blocking socket that listens on a free port of 127.0.0.1; -1: failed. */
int bench_listen(uint16_t *port);

#endif
