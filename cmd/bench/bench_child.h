/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that a measurement starts, places on processors, looks at and ends.
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

/* The processors this process may use: how many. */
int bench_cpus(void);
/* Keeps the calling process to one of them; no effect with fewer than two. */
void bench_pin(int cpu);

/* argv[0] is found by PATH. Standard output and error go to the file log. */
int bench_child_start(struct bench_child *c, char *const argv[], int cpu, const char *log, struct sl_err *err);
/* The child runs run(arg) and ends. */
int bench_child_fork(struct bench_child *c, void (*run)(void *arg), void *arg, int cpu, struct sl_err *err);
/* SIGTERM, a moment, SIGKILL. */
void bench_child_stop(struct bench_child *c);
bool bench_child_alive(const struct bench_child *c);
/* Does a process listen at that address? */
bool bench_accepts(const struct sockaddr *at, socklen_t n);
/* SL_EIO: the child of that name does not start, with the last line of its log. */
int bench_child_no_start(const char *name, const char *log, struct sl_err *err);
/* User and system time of all its threads, in nanoseconds. */
uint64_t bench_child_cpu_ns(const struct bench_child *c);
/* Memory that is really there, in bytes. */
uint64_t bench_child_rss(const struct bench_child *c);

/* A TCP port of 127.0.0.1 that was free a moment ago; 0: none. */
uint16_t bench_free_port(void);
/* Listens on a free port of 127.0.0.1, not blocking; -1. */
int bench_listen(uint16_t *port);

#endif
