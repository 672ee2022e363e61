/* SPDX-License-Identifier: Apache-2.0
 *
 * The chunk that an answer has thousands of: one choice's next characters and nothing else. It is read without building
 * a tree, which takes most of an event's time. Whatever is not certainly such a chunk, valid JSON and without anything
 * that matters is left to the tree (remote_event.c), which then also says what is wrong. Pure; any thread.
 */
#ifndef ENGINE_REMOTE_CHUNK_H
#define ENGINE_REMOTE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

enum { REMOTE_CHUNK_ESCAPED = 512 /* bytes of a text with escapes; longer ones are left to the tree */ };

struct remote_chunk {
	uint64_t index;                    /* of the choice, as the chunk has it */
	struct proto_str content, thought; /* borrowed from the event, or from room; at most one is not empty */
	char room[REMOTE_CHUNK_ESCAPED];
};

/* An event of a chat. False: it is for the tree; *out is undefined. */
bool remote_chunk_read(const char *data, size_t n, struct remote_chunk *out);

#endif
