/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts: what a summary must keep of the text that it replaces. Rules find them, not a model, so that a model's summary
 * can be checked against them. Pure.
 */
#ifndef GATEWAY_COMPRESS_FACTS_H
#define GATEWAY_COMPRESS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	FACTS_MOST = 16,  /* chosen at the end */
	FACTS_SEEN = 256, /* candidates */
	FACT_MAX_BYTES = 96,
	FACT_MAX_SENTENCE = 160,
};

/* Texts are borrowed from what was read. */
struct compress_fact {
	const char *at, *sentence; /* sentence: the sentence that contains it, or the fact itself */
	size_t n, n_sentence;
	uint32_t hash;
	uint32_t weight; /* sum of the weights of the texts that contain it */
	uint32_t last;   /* clock of the last occurrence */
	uint32_t text;   /* number of the last text that contains it */
	bool found;      /* set by compress_facts_check */
};

struct compress_facts {
	size_t n;
	uint32_t clock, n_texts;
	struct compress_fact at[FACTS_SEEN];
};

/* Adds the facts of a text. Each gains `weight`, once per text. */
void compress_facts_read(struct compress_facts *f, const char *text, size_t n, uint32_t weight);
/* Keeps the best FACTS_MOST facts: by weight, then the latest; drops those with a weight below `least`. */
void compress_facts_choose(struct compress_facts *f, uint32_t least);
/* Sets `found` of the facts that the text contains, and counts them. 0, SL_ENOMEM. */
int compress_facts_check(struct compress_facts *f, const char *text, size_t n, size_t *n_found);

#endif
