/* SPDX-License-Identifier: Apache-2.0
 *
 * What a summary must keep: names, numbers, quotations, addresses and identifiers of the text that it
 * replaces. Found by rules, without a model, so that a model's summary can be checked against them.
 * Pure.
 */
#ifndef GATEWAY_COMPRESS_FACTS_H
#define GATEWAY_COMPRESS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	FACTS_MOST = 16,  /* that are asked for */
	FACTS_SEEN = 256, /* that are kept while there may be better ones */
	FACT_MAX_BYTES = 96,
	FACT_MAX_SENTENCE = 160,
};

/* Texts are borrowed from what was read. */
struct compress_fact {
	const char *at, *sentence; /* sentence: the one it is in, or itself */
	size_t n, n_sentence;
	uint32_t hash;
	uint32_t weight; /* how many texts have it, and their roles */
	uint32_t last;   /* when it came last */
	uint32_t text;   /* in which text */
	bool found;      /* by compress_facts_check */
};

struct compress_facts {
	size_t n;
	uint32_t clock, n_texts;
	struct compress_fact at[FACTS_SEEN];
};

/* A text counts `weight` for each fact in it, once. */
void compress_facts_read(struct compress_facts *f, const char *text, size_t n, uint32_t weight);
/* Keeps the FACTS_MOST that matter: frequent ones, then late ones; those of a weight below `least` don't. */
void compress_facts_choose(struct compress_facts *f, uint32_t least);
/* Which of them are in the text: their number. 0, SL_ENOMEM. */
int compress_facts_check(struct compress_facts *f, const char *text, size_t n, size_t *n_found);

#endif
