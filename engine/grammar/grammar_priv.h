/* SPDX-License-Identifier: Apache-2.0
 *
 * A grammar's fields. grammar.c owns its life and states, mask.c computes token masks, forced.c finds forced tokens.
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

/* A mask under construction, which is continued where SL_EAGAIN has interrupted it: the walk's position, its frames (in
 * grammar.walk) and the tokens so far (in masks.ids). */
struct unfinished {
	uint32_t config;      /* 0: none */
	const struct trie *t; /* NULL: the walk has not begun */
	const uint32_t *slice;
	uint32_t at, depth;
	unsigned class;
};

/* A configuration's mask: a mask of the vocabulary or none, plus a list of ids; or a complete mask. */
struct mask {
	uint32_t *words; /* or NULL: */
	int32_t *ids;
	uint32_t n;
	const uint32_t *slice; /* NULL: none */
};

struct masks {
	struct mask *at; /* from 1 */
	uint32_t n, cap;
	size_t bytes;
	int32_t *ids; /* the mask under construction; room for all tokens of the vocabulary */
	uint32_t n_ids;
};

/* The most recently computed forced tokens of a state. */
enum { FORCED_MEMO = 64, FORCED_KEPT = 4, FORCED_BYTES = 256 };
struct forced_memo {
	uint32_t at;
	uint8_t n_tail;
	bool cut;
	char tail[GRAMMAR_TAIL];
	size_t n; /* FORCED_KEPT: or more */
	int32_t ids[FORCED_KEPT];
};

struct grammar {
	struct grammar_vocab *vocab;
	_Atomic uint32_t refs;
	pthread_mutex_t lock; /* for the following fields */
	struct automaton a;
	struct grammar_limits limits;
	struct walk_frame *walk; /* [bytes of the longest token + 1] */
	struct masks masks;
	struct unfinished unfinished;
	struct forced_memo forced[FORCED_MEMO];
	uint64_t forced_work;           /* of this call, on texts that were encoded */
	size_t next_states, next_bytes; /* caches are dropped at these sizes */
};

/* mask.c: a configuration's mask by the grammar alone. 0, SL_ELIMIT, SL_ENOMEM. */
int mask_write(struct grammar *g, uint32_t config, uint32_t *mask);
/* closed.c: does c accept every text of at most n bytes of any one class in `of`? Inside a character (phase.h), the
 * text begins with its remaining bytes. n is at most 255, which means any length. Also false on a shortage
 * (auto_fault). */
bool closed_under(struct grammar *g, uint32_t c, unsigned of, uint8_t phase, uint32_t n);
/* Is the answer known without a search? */
bool closed_known(const struct auto_config *c, unsigned of, uint8_t phase, uint32_t n);
/* forced.c: as grammar_forced; also 0 on a shortage, which is the automaton's fault then. */
size_t forced_find(struct grammar_state *s, int32_t *ids, size_t max);
/* Text was accepted; a control token was accepted. */
void forced_note(struct grammar_state *s, const char *text, size_t n);
void forced_note_mark(struct grammar_state *s);
void masks_dispose(struct masks *m);
/* Drops all masks. */
void masks_clear(struct masks *m);
/* grammar.c: the configuration after n bytes; AUTO_DEAD, AUTO_FAIL. */
uint32_t grammar_follow(struct grammar *g, uint32_t at, const char *text, size_t n);
/* The same after a token. */
uint32_t grammar_follow_token(struct grammar *g, uint32_t at, int32_t id);

#endif
