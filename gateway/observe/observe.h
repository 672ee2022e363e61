/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header: what an operator sees of each answer. Latencies by tier and model (latency.h), counts by
 * tier (tier_counts.h), requests' records and traces.
 *
 * An answer is observed once, at its end (observe_end). The room knows neither requests nor generations: its callers
 * (gateway/answer, gateway/exchange) describe them in a struct observed. It holds no text of prompts or answers, and no
 * key.
 *
 * Goodput (Zhong et al., "DistServe", 2024): an answer is good if its first token came within its tier's ttft_target
 * and its tokens came, on the average, within the tier's itl_target; a target of 0 is always met. An answer that failed
 * on the server's side (status 5xx, or an error event) is not good. One is not judged if its request was wrong or over
 * a limit of its key (4xx), if another's answer was repeated, or if its reader left before the first token was late.
 *
 * Any thread.
 */
#ifndef GATEWAY_OBSERVE_H
#define GATEWAY_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/observe/latency.h"

struct sinks;
struct trace;

enum observed_verdict { OBSERVED_NOT_JUDGED, OBSERVED_GOOD, OBSERVED_BAD };

/* Gaps between the tokens of a choice, added up over choices. */
struct observed_gaps {
	uint64_t sum_ns, max_ns, slow_ns; /* slow_ns: of those below reading speed */
	uint32_t n, n_tokens;             /* n_tokens: that they brought */
};

/* Which engine answered and why (gateway/generation/routing.h). */
struct observed_route {
	const char *engine; /* NULL: there is one engine, or none answered; the others are then 0 */
	const char *policy;
	unsigned n_engines, n_remade; /* that could serve it; times that it was made again on another */
	double cost, occupancy, active, cache, queue, recent, affinity; /* the cost is the sum of the others */
	bool spilled;  /* the engines that get requests first were saturated */
	double cached; /* share of the prompt known to be there */
	/* Where the prompt was computed and why (gateway/generation/prefill_choice.h). NULL: all engines do all. */
	const char *prefill;
	const char *prefill_engine, *handed; /* NULL: none; how the hand-over ended, NULL: it has not */
	/* A second engine for a late first token (gateway/generation/hedge.h). NULL: there was none. */
	const char *hedge, *hedge_from, *hedge_to; /* how it ended; the engines */
	unsigned hedge_ms;                         /* after its admission */
	unsigned n_missing, n_pages, waited_us;    /* tokens; pages that were handed over; the wait for them */
};

/* An answer at its end, or a request for one that got none. Borrowed for the call. */
struct observed {
	const char *request_id, *model, *tier; /* model "": none was chosen; tier NULL: the key has none */
	const char *variant;                   /* of the model; NULL or "": it has none */
	const char *ended_by;                  /* "stop", "length", "client", "error", "refused", … */
	const char *cascade;                   /* the cascade's decision; NULL or "": none */
	const struct trace *trace;             /* that it belongs to; NULL: none */
	uint64_t tenant;                       /* a keyed digest */
	int status;                            /* HTTP; 0: none was sent */
	enum latency_finish finish;
	enum latency_cached cached;
	bool has_answer; /* an answer was made for it; else it was refused or repeated */
	bool failed;     /* on the server's side */
	bool left;       /* its reader left, or a newer request replaced it */
	bool shared;     /* the generation of another request */
	bool continued;  /* another gateway began it: has_answer is false */
	bool vectors;    /* a request for vectors or scores: recorded, not judged, has_answer is false */
	uint64_t started_ns, submitted_ns, first_ns, ended_ns; /* by clock_now_ns; 0: not. started: its body had come */
	uint64_t switched_ns;                                  /* when the cascade decided for its large model */
	uint64_t ttft_target_ns, itl_target_ns;                /* 0: none */
	bool has_engine;                                       /* the next three are known */
	uint32_t queue_us, prefill_us, decode_us;              /* queue_us: since submitted_ns */
	struct observed_gaps gaps;
	struct observed_route route;
	uint32_t n_prompt, n_cached, n_answer, n_drafted, n_accepted;
	uint32_t n_longest; /* tokens that were sent of its longest choice */
};

/* Counts and records o. cells: of its tier and model, or NULL. sinks: of its configuration, or NULL. */
void observe_end(const struct observed *o, struct latency_cells *cells, const struct sinks *sinks);

/* What was judged since the process began, of answers whose tier has a target. Any thread. */
struct observed_targets {
	uint64_t n_first, n_late, ttft_us; /* for the first token: answers, those that missed it; the targets' sum */
	uint64_t n_paced, n_slow, tpot_us; /* per token, likewise */
};
void observed_targets(struct observed_targets *out);

/* ---- what follows from o; pure ---- */
enum observed_verdict observed_judge(const struct observed *o);
uint64_t observed_ttft_ns(const struct observed *o);  /* 0: no token came */
uint64_t observed_tpot_ns(const struct observed *o);  /* 0: at most one came */
uint64_t observed_queue_ns(const struct observed *o); /* 0: unknown, as are those of less than a nanosecond */

#endif
