/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches compiled constraints, and the vocabularies they are compiled for, for later requests. Any thread (text
 * workers, the compiler). Compilation runs outside the lock, so two requests may compile the same constraint at once.
 *
 * Bounded: the least recently used constraint is evicted, and a tenant at its share of the entries evicts one of its
 * own; likewise the least recently used vocabulary. Grammars and vocabularies in use outlive their entry.
 */
#ifndef ENGINE_GRAMMAR_CACHE_H
#define ENGINE_GRAMMAR_CACHE_H

#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "engine/constraint/constraint.h"
#include "engine/grammar/grammar.h"

struct grammar_cache;
struct tokenizer;

enum {
	GRAMMAR_CACHE_ENTRIES = 128,
	GRAMMAR_CACHE_OF_TENANT = 32,
	GRAMMAR_CACHE_VOCABS = 16, /* tokenizers */
};

struct grammar_cache_key {
	uint64_t tenant;
	uint64_t tokenizer; /* its digest (tokenizer.h) */
	enum constraint_kind kind;
	struct proto_str text;
};

int grammar_cache_create(struct grammar_cache **out);
void grammar_cache_destroy(struct grammar_cache *c); /* NULL allowed */
/* The caller's reference; NULL: it is not compiled. */
struct grammar *grammar_cache_find(struct grammar_cache *c, const struct grammar_cache_key *key);
/* *out: the caller's reference. t must outlive the cache. Errors: those of constraint_rules and grammar_create. */
int grammar_cache_get(struct grammar_cache *c, const struct tokenizer *t, const struct grammar_cache_key *key,
		      struct grammar **out, struct sl_err *err);

#endif
