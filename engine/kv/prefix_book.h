/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginnings of prompts that the prefix trees of an engine have, by digest (base/proto/prefix_digest.h), for the
 * gateways that send it requests. A digest belongs to the node with the last whole page before its border: it enters
 * when a prompt was computed (prefix_mark) and leaves with that node.
 *
 * Bounded: PROTO_PREFIXES_KEPT digests; what finds no room is not published. Readers follow a log of the last changes.
 * One that was too slow for it reads all that is there.
 *
 * The step thread changes it, the I/O thread reads; a lock of its own.
 */
#ifndef ENGINE_PREFIX_BOOK_H
#define ENGINE_PREFIX_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/proto/prefix_digest.h"

struct prefix_book;
struct prefix_tree;
struct prefix_path;

/* A prompt's borders, salted. On the heap. */
struct prefix_text {
	size_t n_bytes;
	uint32_t n;
	uint64_t of[];
};

/* NULL: it has none, or no memory. The caller frees it with sl_free. */
struct prefix_text *prefix_text_create(const struct proto_submit *req, bool shared);

/* NULL: no memory. */
struct prefix_book *prefix_book_create(void);
/* Nothing may be in it. NULL allowed. */
void prefix_book_destroy(struct prefix_book *b);
/* False: it is there already, or there is no room. */
bool prefix_book_add(struct prefix_book *b, uint64_t digest);
void prefix_book_drop(struct prefix_book *b, uint64_t digest);
/* The changes since *cursor (0: from the beginning), as PREFIXES has them, and moves it. *anew: instead of them all
 * that is there. The caller frees *changes; NULL: none. 0, SL_ENOMEM. */
int prefix_book_read(struct prefix_book *b, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n);

/* Before any path begins; the book must outlive the tree. */
void prefix_set_book(struct prefix_tree *t, struct prefix_book *b);
/* The path's sequence has computed its prompt of n_prompt tokens, whose text this is. */
void prefix_mark(struct prefix_tree *t, const struct prefix_path *path, uint32_t n_prompt,
		 const struct prefix_text *text);

#endif
