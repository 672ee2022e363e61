/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache of recently tokenized prompts. The models of a cascade usually tokenize text alike, and a prompt that the
 * small model has started may come again for the large one. The memo avoids rendering and encoding it again while a
 * client waits. A tenant finds only its own entries.
 *
 * Any thread. Bounded: a few prompts of bounded length, each for a few seconds (a template may read the clock).
 */
#ifndef ENGINE_PROMPT_MEMO_H
#define ENGINE_PROMPT_MEMO_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "engine/token/tokenizer.h"

enum { PROMPT_MEMO_SLOTS = 16, PROMPT_MEMO_BYTES = 64 << 10, PROMPT_MEMO_MS = 5000 };

/* The tenant of a prompt, the prompt, and the tokenizer that reads it. */
struct prompt_memo_key {
	uint64_t tenant, salt; /* of SUBMIT */
	uint64_t text;         /* model_info.text: models of the same number make the same tokens; 0: never found */
	uint8_t kind;          /* PROTO_PROMPT_TEXT, PROTO_PROMPT_CHAT */
	struct proto_str prompt;
};

struct prompt_memo {
	pthread_mutex_t lock;
	struct prompt_memo_slot {
		struct prompt_memo_key key;
		char *prompt; /* owned: the key's */
		int32_t *ids; /* owned; NULL: the slot is free */
		size_t n_ids;
		uint64_t until_ns;
	} slots[PROMPT_MEMO_SLOTS];
	unsigned next; /* the oldest slot, reused next */
};

void prompt_memo_init(struct prompt_memo *m);
void prompt_memo_dispose(struct prompt_memo *m);
/* True: *ids, empty before, holds the key's tokens. False: unknown, or out of memory. */
bool prompt_memo_find(struct prompt_memo *m, const struct prompt_memo_key *key, struct tok_ids *ids, uint64_t now_ns);
/* Copies key and ids; keeps nothing if out of memory. */
void prompt_memo_put(struct prompt_memo *m, const struct prompt_memo_key *key, const struct tok_ids *ids,
		     uint64_t now_ns);

#endif
