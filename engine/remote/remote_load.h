/* SPDX-License-Identifier: Apache-2.0
 *
 * The upstream's own metrics, requested again and again, beside the requests: how much it has to do, also for others
 * than this engine. Without them, while they can't be read, and once they are old, only this engine's requests count.
 * Metrics that can't be read say nothing of the upstream's models: they open no circuit.
 *
 * A look has a deadline and its body a bound. After failures the looks become rarer. The log has one line when they
 * begin to fail and one when they work again, at most one pair a minute; each failure is counted.
 */
#ifndef ENGINE_REMOTE_LOAD_H
#define ENGINE_REMOTE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "engine/remote/remote_gauges.h"
#include "engine/remote/remote_http.h"

struct event;
struct remote;

struct remote_load {
	struct remote_call call;
	struct event *timer;
	struct remote_gauges gauges; /* the last ones */
	uint32_t others;             /* requests of them that are not of this engine */
	uint32_t n_own;              /* requests of this engine when the look began */
	uint64_t at_ns;              /* when they came; 0: never */
	unsigned n_failed;           /* in a row */
	bool noted;                  /* that they fail is in the log */
	uint64_t noted_ns;
	uint64_t n_reads, n_failures;
};

/* SL_ENOMEM. Nothing happens where the configuration names no metrics. */
int remote_load_init(struct remote *r);
void remote_load_dispose(struct remote *r);
/* What STATS has of it. */
void remote_load_stats(const struct remote *r, struct proto_upstream *out);
/* Adds what others wait for there to a LOAD. */
void remote_load_add(const struct remote *r, struct proto_load *out);
/* How long a request that came now would wait there at least; 0 where nothing is known. */
uint64_t remote_load_wait_us(const struct remote *r);
/* Nothing is known of other requests there. */
bool remote_load_is_free(const struct remote *r);

#endif
