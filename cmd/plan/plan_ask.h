/* SPDX-License-Identifier: Apache-2.0
 *
 * What `sluice plan` and `sluice tune` are asked: a model, traffic described or recorded, and targets; and how much of
 * that traffic an arrangement carries within them.
 */
#ifndef CMD_PLAN_ASK_H
#define CMD_PLAN_ASK_H

#include "cmd/plan/plan_costs.h"
#include "cmd/plan/plan_sim.h"

struct plan_ask {
	const char *command; /* for messages: "sluice plan" */
	const char *usage;
	const char *model, *mix, *trace_path, *kv, *arrivals_text;
	const char *records; /* to be compared with the simulation; NULL: none */
	struct workload work;
	struct arrivals arrivals;
	struct load_trace trace;
	struct serve_slo slo;
	double good, threads, sequences, kv_memory, seed, shared, prefixes;
	int least_requests; /* simulated for a rate; 0: 300 */
	bool json;
};

/* An option of one command only. */
struct plan_option {
	const char *name;
	double *number; /* or */
	const char **text;
	double lo, hi; /* of the number */
};

/* The defaults of all but command and usage. */
void plan_ask_init(struct plan_ask *a);
/* The command line; more [n_more]. 0 or an exit status, after a message. */
int plan_ask_parse(struct plan_ask *a, int argc, char **argv, const struct plan_option *more, int n_more);
void plan_ask_dispose(struct plan_ask *a);
/* Requests at this rate, sorted by time. *out: owned by the caller; NULL: out of memory. */
struct plan_request *plan_traffic(const struct plan_ask *a, double rate, size_t *n);
/* Tokens of the longest request. */
int plan_longest(const struct plan_ask *a);
/* An engine with the default settings and this share of the memory for keys and values. */
struct plan_box plan_box_of(const struct plan_ask *a, const struct plan_costs *c, double share_of_memory);

struct plan_found {
	struct sweep sweep;
	struct sweep_point best; /* at sweep.passed */
	uint64_t prefilled;      /* prompt tokens computed there */
};

/* The highest rate at which the asked share of requests is within the targets: found->sweep.passed. SL_ENOMEM. */
int plan_find(const struct plan_ask *a, const struct plan_arrangement *to, struct plan_found *found);
/* Whether the asked share of requests is within the targets at this rate. SL_ENOMEM. */
int plan_carries(const struct plan_ask *a, const struct plan_arrangement *to, double rate, bool *out);
/* A line on a terminal that the next one replaces. */
void plan_progress(const char *what);

#endif
