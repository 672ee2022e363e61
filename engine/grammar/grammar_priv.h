/* SPDX-License-Identifier: Apache-2.0
 *
 * A grammar's inside, for grammar.c, mask.c and forced.c.
 */
#ifndef ENGINE_GRAMMAR_PRIV_H
#define ENGINE_GRAMMAR_PRIV_H

#include <pthread.h>

#include "engine/grammar/automaton.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocab.h"

struct walk_frame {
	uint32_t end, config;
};

struct grammar {
	struct grammar_vocab *vocab;
	_Atomic uint32_t refs;
	pthread_mutex_t lock; /* guards what follows */
	struct automaton a;
	struct grammar_limits limits;
	struct walk_frame *walk; /* one for each byte of the longest token, and one */
};

/* mask.c: the mask of a configuration by the grammar alone. 0, SL_ELIMIT, SL_ENOMEM. */
int mask_make(struct grammar *g, uint32_t config, uint32_t *mask);

#endif
