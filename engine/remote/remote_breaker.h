/* SPDX-License-Identifier: Apache-2.0
 *
 * The circuit breaker. While it is open nothing is sent but one probe after each cool-down, so a dead upstream costs no
 * request its time.
 *
 *   UNKNOWN ──ok──► CLOSED ──`failures` in a row──► OPEN ──cool-down──► HALF_OPEN ──ok──► CLOSED
 *      └──`failures` in a row──► OPEN ◄──failed── HALF_OPEN
 *
 * breaker_set_state makes all transitions. Pure: the caller has the clock.
 */
#ifndef ENGINE_REMOTE_BREAKER_H
#define ENGINE_REMOTE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state {
	BREAKER_UNKNOWN, /* nothing was heard of the upstream yet */
	BREAKER_CLOSED,  /* requests are sent */
	BREAKER_OPEN,
	BREAKER_HALF_OPEN, /* one probe is on its way */
};

struct breaker {
	enum breaker_state state;
	uint32_t most;
	uint32_t failures, probes; /* of requests and of probes, each in a row */
	uint64_t cool_down_ns, opened_ns;
	uint64_t n_openings;
};

void breaker_init(struct breaker *b, uint32_t failures, uint64_t cool_down_ns);
/* A request or a probe succeeded, or failed. A probe's success does not make up for failed requests: an upstream may
 * list its models and run none. True: the state changed between one that sends requests and one that does not. */
bool breaker_ok(struct breaker *b, bool probe);
bool breaker_failed(struct breaker *b, bool probe, uint64_t now_ns);
/* OPEN, and its cool-down is over: HALF_OPEN from now on. */
bool breaker_may_probe(struct breaker *b, uint64_t now_ns);
/* May requests be sent? */
bool breaker_closed(const struct breaker *b);

#endif
