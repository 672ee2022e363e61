/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of stacks, as interned trees read from the top: a set is a list of frames, each with the set of stacks below it.
 * The frames of a set are distinct, so equal sets have equal ids.
 */
#ifndef ENGINE_GRAMMAR_STACKS_H
#define ENGINE_GRAMMAR_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STACKS_NONE = 0,   /* no stack */
	STACKS_BOTTOM = 1, /* only the empty stack: one frame, with position 0 */
	STACKS_FAIL = UINT32_MAX,
};

/* The position of the call, and its copies as in gram_entry. */
struct stack_frame {
	uint32_t pos, count, below;
};

struct stack_set {
	uint32_t from, n;
	uint32_t seen; /* for its user */
};

struct stack_memo {
	uint32_t a, b, is;
};

struct stacks {
	struct stack_set *sets;
	struct stack_frame *frames;
	uint32_t *table;
	struct stack_memo *memo;
	uint32_t n_sets, cap_sets, table_mask;
	size_t n_frames, cap_frames;
	uint64_t *work; /* frames read and written, counted for the owner */
	int fault;
};

int stacks_init(struct stacks *s, uint64_t *work);
void stacks_dispose(struct stacks *s);
/* Pushes one frame on each stack of `below`. STACKS_FAIL on a shortage. */
uint32_t stacks_push(struct stacks *s, uint32_t pos, uint32_t count, uint32_t below);
uint32_t stacks_union(struct stacks *s, uint32_t a, uint32_t b);
/* Renumbers: ids[old] is the new id of a set; UINT32_MAX: dropped. */
void stacks_pack(struct stacks *s, const uint32_t *ids);
size_t stacks_bytes(const struct stacks *s);

#endif
