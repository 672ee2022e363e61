/* SPDX-License-Identifier: Apache-2.0
 *
 * A server under load. C connections with S streams each give C × S slots; a slot carries one conversation at a time,
 * of one or more requests. Closed loop: a slot begins its next conversation as soon as the last one ends. Open loop:
 * conversations are due at given times, whether or not the server keeps up, and their latency counts from the due time.
 * Otherwise a slow server would receive less load and look better than it is.
 *
 * Prompts are random words of about one token each; the exact counts come from the server's usage.
 */
#ifndef CMD_LOAD_RUN_H
#define CMD_LOAD_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/load/arrivals.h"
#include "cmd/load/load_client.h"
#include "cmd/load/serve_stats.h"
#include "cmd/load/workload.h"

enum { LOAD_MAX_KEYS = 16, LOAD_MAX_SLOTS = 65536, LOAD_MAX_TURNS = 1000 };

struct load_key {
	char text[256];
	double weight;
};

struct load_plan {
	const char *model;
	struct load_key keys[LOAD_MAX_KEYS]; /* of conversations, by weight */
	int n_keys;
	struct arrivals arrivals;       /* rate 0: closed loop */
	const struct load_trace *trace; /* NULL: drawn from `work` by `arrivals`; else each of its requests once */
	double speed;                   /* of the trace; 1: as recorded */
	struct workload work;
	int turns;      /* of each conversation; 1: single requests */
	double think_s; /* between an answer and the next turn */
	double temperature;
	bool whole; /* responses are not streamed */
	struct serve_slo slo;
	uint64_t seed;
};

struct load_run;

/* Over HTTP/1.1 a connection carries one request at a time, so there are conns × streams connections. plan is borrowed.
 * SL_ENOMEM, SL_EIO with *err. */
int load_run_create(const struct load_plan *plan, const struct load_target *target, int conns, int streams,
		    struct load_run **out, struct sl_err *err);
void load_run_destroy(struct load_run *r); /* NULL allowed */
/* Opens all connections; waits so long at most. */
void load_run_connect(struct load_run *r, double seconds);
/* A short request on every slot, which is not counted. */
void load_run_warm(struct load_run *r, double seconds);
/* Runs until `most` requests have ended, the trace is over, or the time is. drain_s (open loop): what was due by then
 * may end for so long; no more is due. */
void load_run_measure(struct load_run *r, uint64_t most, double seconds, double drain_s);
/* key -1: of all requests. NULL: there is one key only. */
const struct serve_stats *load_run_stats(const struct load_run *r, int key);

/* SIGINT and SIGTERM end the runs of this process early; a second one ends the process. */
void load_run_catch_signals(void);
bool load_run_interrupted(void);

#endif
