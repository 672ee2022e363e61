/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a file of rearranged weights (weight_cache.h) beside the model that uses them, without blocking it.
 */
#ifndef ENGINE_WEIGHT_WRITE_H
#define ENGINE_WEIGHT_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/model/weight_cache.h"

/* A matrix: `at` has entry.bytes, unchanged until the writer has ended; entry.at is the writer's to set. */
struct weight_piece {
	struct weight_cache_entry entry;
	const void *at;
};

struct weight_writer;

/* Starts a thread. Takes pieces[n] (sl_alloc'ed), n at least 1, also when it fails; copies cfg and what. What keeps it
 * from writing (no room, no right to) is one line in the log, beginning with `what`, and changes nothing else.
 * SL_ENOMEM, SL_EIO: no thread. */
int weight_write_start(const struct weight_cache_config *cfg, const struct weight_cache_key *key,
		       struct weight_piece *pieces, size_t n, const char *what, struct weight_writer **out);
/* Waits for it, or, with give_up, for the piece of a few MiB that it is at; then nothing of an unfinished file is left.
 * Frees w. Whether the file is there. */
bool weight_write_end(struct weight_writer *w, bool give_up);

#endif
