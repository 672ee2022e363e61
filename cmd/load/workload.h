/* SPDX-License-Identifier: Apache-2.0
 *
 * What the requests of a load are: lengths, shared beginnings, how many turns a conversation has. Drawn at random from
 * a description, or taken from recorded traffic, which may be a server's records of requests (log.requests).
 */
#ifndef CMD_LOAD_WORKLOAD_H
#define CMD_LOAD_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cmd/load/arrivals.h"

enum { WORKLOAD_MAX_KINDS = 16, WORKLOAD_MAX_TOKENS = 1000000, TRACE_MAX_ITEMS = 1 << 20 };

/* One request; tokens are words. */
struct work {
	uint32_t n_prompt, n_answer;
	uint32_t n_shared; /* of the prompt: its beginning, the same for all that have this prefix */
	uint32_t n_left;   /* tokens that it leaves for later ones with this prefix; 0: n_shared */
	uint64_t prefix;
};

struct work_kind {
	double weight;
	uint32_t n_prompt, n_answer;
};

struct workload {
	struct work_kind kinds[WORKLOAD_MAX_KINDS];
	int n_kinds;
	uint32_t n_shared, n_prefixes; /* of each request; one of so many beginnings */
};

/* "WEIGHT:PROMPT:ANSWER,…": kinds of requests. SL_EINVAL. */
int workload_parse_mix(const char *text, struct workload *w);
struct work workload_draw(const struct workload *w, struct load_random *r);
/* Appends the prompt's words, which need no escapes in JSON: the shared beginning, then others at random. */
int work_write(const struct work *w, struct load_random *r, struct sl_buf *out);

struct trace_item {
	double at; /* seconds since the first */
	struct work work;
	double ttft_ms, itl_ms, itl_max_ms; /* of a record; 0: it has none */
};

/* Recorded traffic, sorted by time. */
struct load_trace {
	struct trace_item *items; /* [n], owned */
	size_t n;
};

/* Reads JSON objects, one a line. Of each: `at` (seconds), `prompt_tokens`, `answer_tokens` and, optionally, `prefix`
 * (any text or number) and `prefix_tokens`. Or a record of log.requests: it was due at `time` less `e2e_ms`; requests
 * of one tenant share what was cached. Records of requests that were refused have no tokens and are left out. *err
 * names file, line and member. SL_EINVAL, SL_ELIMIT, SL_EIO, SL_ENOMEM. */
int load_trace_read(const char *path, struct load_trace *out, struct sl_err *err);
void load_trace_free(struct load_trace *t);

#endif
