/* SPDX-License-Identifier: Apache-2.0
 *
 * The load of `sluice bench gateway`: endless streams whose tokens are stamped with the time of their generation, or
 * small JSON responses one after another.
 */
#ifndef CMD_BENCH_LOAD_H
#define CMD_BENCH_LOAD_H

#include <stdbool.h>

#include "base/err.h"
#include "cmd/load/histogram.h"
#include "cmd/load/load_client.h"

struct bench_load;

struct bench_load_shape {
	int n_conns, n_streams; /* n_streams: per connection */
	bool whole;             /* responses that are not streamed, back to back */
};

/* Connects. With n_streams > 0 it also sends the requests and returns once every response has begun. key: a bearer
 * key, or NULL. */
int bench_load_open(const struct load_target *target, const struct bench_load_shape *shape, const char *key,
		    struct bench_load **out, struct sl_err *err);
/* Runs for that many seconds and counts. A response that fails ends it with an error. */
int bench_load_run(struct bench_load *l, double seconds, struct sl_err *err);
/* Resets the counter and the histogram. */
void bench_load_clear(struct bench_load *l);
uint64_t bench_load_n(const struct bench_load *l);                    /* events, or complete responses */
const struct histogram *bench_load_times(const struct bench_load *l); /* from generation (request) to arrival */
void bench_load_close(struct bench_load *l);

#endif
