/* SPDX-License-Identifier: Apache-2.0
 *
 * How many requests may be at an engine that fails: additive increase, multiplicative decrease (Chiu, Jain, "Analysis
 * of the increase and decrease algorithms for congestion avoidance", 1989; the rounds are TCP's, RFC 5681). One limit
 * for each engine and model.
 *
 *   OPEN ──error_limit_error: too many fail──► LIMITED ──error_limit_look: no error for a while──► OPEN
 *
 *  - OPEN, nothing is limited. The share of requests that fail decides, once most of the tenants see failures: one
 *    whose requests always fail limits nobody else. Fewer than ERROR_LIMIT_LEAST errors, none long after the one
 *    before, limit nothing: where there are so few requests a limit saves nothing.
 *  - LIMITED, it begins with half of what is there. An error takes a fifth of it, or half if tokens were made for
 *    nothing, at most once while the requests of the last time are there. A first token adds one; while errors are
 *    frequent a round of requests adds three.
 *  - It opens again once nothing has failed for ERROR_LIMIT_QUIET_MS and something has succeeded, or nothing is there.
 *
 * A request succeeds with its first token. One that fails later counts twice, because it has counted as a success.
 * Pure: the caller has the clock and the lock.
 */
#ifndef GATEWAY_ERROR_LIMIT_H
#define GATEWAY_ERROR_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { ERROR_LIMIT_TENANTS = 8 /* groups of tenants */, ERROR_LIMIT_QUIET_MS = 8000, ERROR_LIMIT_LEAST = 8 };

struct error_limit {
	bool limited;
	double limit;       /* requests, at least 1, while limited */
	uint32_t in_flight; /* requests there */
	uint32_t round;     /* that leave before it falls again */
	uint32_t n_errors;  /* without ERROR_LIMIT_QUIET_MS between two */
	bool proven;        /* a success since the last error */
	uint64_t failed_ns; /* the last error */
	uint64_t error_ns,
	    left_ns;    /* the last one that counted; when the last request left, or the first of those there came */
	double held_ns; /* how long one stays that does not fail, on the average; 0: unknown */
	struct error_share {
		double share;     /* of errors, a moving average */
		uint64_t seen_ns; /* 0: never */
	} all, of[ERROR_LIMIT_TENANTS];
};

/* The group of a tenant: below ERROR_LIMIT_TENANTS. */
uint8_t error_limit_group(uint64_t tenant);
/* Is there room for one more? */
bool error_limit_admits(const struct error_limit *l);
void error_limit_enter(struct error_limit *l, uint64_t now_ns);
/* Its first token has come, or it has ended well without one. */
void error_limit_success(struct error_limit *l, uint8_t group, uint64_t now_ns);
/* The engine failed it; begun: after its first token. True: LIMITED from now on. */
bool error_limit_error(struct error_limit *l, uint8_t group, bool begun, uint64_t now_ns);
/* It has ended, however it did; after success or error. held_ns: it was there for so long; 0: that tells nothing, it
 * failed or was cancelled. */
void error_limit_leave(struct error_limit *l, uint64_t held_ns, uint64_t now_ns);
/* True: OPEN again. */
bool error_limit_look(struct error_limit *l, uint64_t now_ns);
/* For one that is not admitted: when it would be if no other came, nine times out of ten. At most
 * ERROR_LIMIT_QUIET_MS. */
uint64_t error_limit_retry_ms(const struct error_limit *l, uint64_t now_ns);
/* The share of requests that fail, by which it decides; 0 while it is the trouble of a few tenants. */
double error_limit_share(const struct error_limit *l, uint64_t now_ns);

#endif
