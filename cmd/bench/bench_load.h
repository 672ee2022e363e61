/* SPDX-License-Identifier: Apache-2.0
 *
 * The load that `sluice bench gateway` puts on a server: answers streamed without end, whose tokens
 * carry the time of their making, or small whole answers one after the other.
 */
#ifndef CMD_BENCH_LOAD_H
#define CMD_BENCH_LOAD_H

#include <stdbool.h>

#include "base/err.h"
#include "cmd/load/histogram.h"
#include "cmd/load/load_client.h"

struct bench_load;

struct bench_load_shape {
	int n_conns, n_streams; /* streams of each connection */
	bool whole;             /* answers that are not streamed, each followed by the next */
};

/* Connects; with no streams that is all. Else every answer is asked for and has begun when this
 * returns. key: NULL or a bearer key. */
int bench_load_open(const struct load_target *target, const struct bench_load_shape *shape, const char *key,
		    struct bench_load **out, struct sl_err *err);
/* Goes on for that long; adds up what comes. An answer that ends wrongly ends it. */
int bench_load_run(struct bench_load *l, double seconds, struct sl_err *err);
/* From now on: nothing counted, an empty histogram. */
void bench_load_clear(struct bench_load *l);
uint64_t bench_load_n(const struct bench_load *l);                    /* events, or whole answers */
const struct histogram *bench_load_times(const struct bench_load *l); /* making (asking) to arrival */
void bench_load_close(struct bench_load *l);

#endif
