/* SPDX-License-Identifier: Apache-2.0
 *
 * Latencies and lengths of answers, by tier and model: histograms that mean the same to an operator and to a dashboard
 * made for vLLM (names `vllm:…`, label model_name; the figures of all tiers together).
 *
 *   row     a tier, a model and a variant of it, if it has some; its metrics appear with its first answer. Names come from
 *           the configuration only, and there are at most LATENCY_ROWS rows: what is beyond shares the row `other`
 *   cells   a row's figures of one thread, which alone writes them, without a lock or an atomic addition; printing adds
 *           the threads' cells up
 *
 * Times are ns. Any thread.
 */
#ifndef GATEWAY_LATENCY_H
#define GATEWAY_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

struct latency_cells;

enum { LATENCY_ROWS = 256 };

/* How much of a prompt came from the prefix tree: nothing, a part, all that can be reused. */
enum latency_cached { LATENCY_CACHED_NONE, LATENCY_CACHED_PART, LATENCY_CACHED_FULL, LATENCY_CACHED };

/* As vLLM calls it. */
enum latency_finish {
	LATENCY_STOP,
	LATENCY_LENGTH,
	LATENCY_ABORT, /* its reader left, or a newer request replaced it */
	LATENCY_ERROR,
	LATENCY_FINISHES,
};

/* The calling thread's cells of a row; NULL: no memory, and nothing is counted. variant: of the model; "": it has none,
 * and its figures have no such label. */
struct latency_cells *latency_of(const char *tier, const char *model, const char *variant);

/* Each ignores c NULL. */
void latency_first_token(struct latency_cells *c, enum latency_cached cached, uint64_t ns);
/* n tokens of a choice came ns after the ones before. Returns ns if they came below reading speed
 * (LATENCY_READING_NS for each), else 0. */
enum { LATENCY_READING_NS = 250000000 };
uint64_t latency_gap(struct latency_cells *c, bool paced, uint64_t ns, uint32_t n);

/* An answer at its end. A time of 0 is unknown and not counted. */
struct latency_answer {
	enum latency_finish finish;
	enum latency_cached cached;
	uint64_t e2e_ns, queue_ns, prefill_ns, decode_ns;
	uint64_t tpot_ns;        /* the mean time between its tokens */
	uint32_t prompt, answer; /* tokens; prompt 0: it was not counted */
	uint32_t longest;        /* of its longest choice */
	bool stopped;            /* its reader left behind `answer` tokens */
};
void latency_end(struct latency_cells *c, const struct latency_answer *a);

#endif
