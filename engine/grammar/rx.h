/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular languages over bytes, built from parts, hash-consed and canonical up to the usual identities, so that equal
 * ids mean equal languages (not always the other way round). Read by derivatives (Brzozowski 1964; Owens, Reppy, Turon,
 * "Regular-expression derivatives re-examined", 2009), so intersection and complement cost nothing extra to express.
 *
 * An rx belongs to its pool. A pool is used by one thread at a time. Construction never fails by itself: the first
 * shortage (memory, nodes beyond the pool's limit) is kept in the pool and reported once by rx_pool_fault; until then
 * constructors return RX_NONE.
 */
#ifndef ENGINE_GRAMMAR_RX_H
#define ENGINE_GRAMMAR_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t rx;

enum {
	RX_NONE = 0, /* no string */
	RX_EPS = 1,  /* the empty string only */
	RX_ALL = 2,  /* every string */
};
#define RX_UNBOUNDED UINT32_MAX

struct rx_pool;
int rx_pool_create(size_t max_nodes, struct rx_pool **out);
void rx_pool_destroy(struct rx_pool *p);
/* 0, SL_ELIMIT or SL_ENOMEM: the first shortage. */
int rx_pool_fault(const struct rx_pool *p);
/* From now on so much work (derivatives, and operands of what is made) is SL_ELIMIT; no limit before. */
void rx_pool_allow(struct rx_pool *p, uint64_t work);

/* One byte of a set of 256. */
struct rx_set {
	uint64_t bits[4];
};
rx rx_bytes(struct rx_pool *p, const struct rx_set *set);
rx rx_literal(struct rx_pool *p, const char *text, size_t n);

/* One character, in UTF-8, of a list of ranges of code points (surrogates are left out); n may be 0. */
struct rx_range {
	uint32_t from, to;
};
rx rx_chars(struct rx_pool *p, const struct rx_range *ranges, size_t n);
/* The same of every code point that is in none of the ranges. */
rx rx_chars_except(struct rx_pool *p, const struct rx_range *ranges, size_t n);

rx rx_cat(struct rx_pool *p, rx a, rx b);
rx rx_or(struct rx_pool *p, rx a, rx b);
/* Of a whole list at once: n log n, and literals become a trie. (n calls of rx_or are n^2.) */
rx rx_or_n(struct rx_pool *p, const rx *of, size_t n);
rx rx_and(struct rx_pool *p, rx a, rx b);
rx rx_not(struct rx_pool *p, rx a); /* of all byte strings */
/* least to most copies, most may be RX_UNBOUNDED. Kept as one node: a{1000000} is as small as a{2}. */
rx rx_repeat(struct rx_pool *p, rx a, uint32_t least, uint32_t most);

/* The inside of a JSON string (RFC 8259 section 7, without the quotes) whose decoded UTF-8 is in a: every permitted
 * spelling of each character (as it is where JSON permits, \" \\ \/ \b \f \n \r \t, \uXXXX in either case, surrogate
 * pairs; a lone surrogate is refused). */
rx rx_json(struct rx_pool *p, rx a);

bool rx_nullable(struct rx_pool *p, rx a);
rx rx_derive(struct rx_pool *p, rx a, uint8_t byte);
/* Whether a has no string at all. Exact, bounded by max_states derivatives: true only when proven. */
bool rx_is_none(struct rx_pool *p, rx a, size_t max_states);

#endif
