/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular languages over bytes, hash-consed and canonical up to the usual identities: equal ids mean equal languages,
 * but not always the reverse. Read by derivatives (Brzozowski 1964; Owens, Reppy, Turon, "Regular-expression
 * derivatives re-examined", 2009), so intersection and complement are as cheap to express as union.
 *
 * An rx belongs to its pool; one thread at a time uses a pool. Constructors never fail: the pool keeps the first
 * shortage (memory, or nodes beyond its limit), rx_pool_fault reports it, and from then on constructors return RX_NONE.
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
/* Limits further work (derivatives, and operands of new nodes) to this amount; beyond it, SL_ELIMIT. No limit before
 * the first call. */
void rx_pool_allow(struct rx_pool *p, uint64_t work);

/* One byte of a set of 256. */
struct rx_set {
	uint64_t bits[4];
};
rx rx_bytes(struct rx_pool *p, const struct rx_set *set);
rx rx_literal(struct rx_pool *p, const char *text, size_t n);

/* One character in UTF-8 from a list of ranges of code points, without surrogates; n may be 0. */
struct rx_range {
	uint32_t from, to;
};
rx rx_chars(struct rx_pool *p, const struct rx_range *ranges, size_t n);
/* One character outside these ranges. */
rx rx_chars_except(struct rx_pool *p, const struct rx_range *ranges, size_t n);

rx rx_cat(struct rx_pool *p, rx a, rx b);
rx rx_or(struct rx_pool *p, rx a, rx b);
/* The union of a list: n log n, and literals become a trie. (n calls of rx_or take n^2.) */
rx rx_or_n(struct rx_pool *p, const rx *of, size_t n);
/* The union of n words, which it sorts. */
struct proto_str;
rx rx_words(struct rx_pool *p, struct proto_str *words, size_t n);
rx rx_and(struct rx_pool *p, rx a, rx b);
rx rx_not(struct rx_pool *p, rx a); /* all other byte strings */
/* least to most copies, most may be RX_UNBOUNDED. Kept as one node: a{1000000} is as small as a{2}. */
rx rx_repeat(struct rx_pool *p, rx a, uint32_t least, uint32_t most);

/* The content of a JSON string (RFC 8259 section 7, without the quotes) whose decoded UTF-8 is in a, in every permitted
 * spelling: literally where JSON permits it, \" \\ \/ \b \f \n \r \t, \uXXXX in either case, surrogate pairs. Lone
 * surrogates are excluded. */
rx rx_json(struct rx_pool *p, rx a);

bool rx_nullable(struct rx_pool *p, rx a);
rx rx_derive(struct rx_pool *p, rx a, uint8_t byte);
/* Is a proven to have no string? Also false if the proof needs more than max_states derivatives. */
bool rx_is_none(struct rx_pool *p, rx a, size_t max_states);

#endif
