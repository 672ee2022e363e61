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

#include "base/buf.h"
#include "base/proto/proto.h"

enum { REMOTE_CHUNK_ESCAPED = 512 /* bytes of a text with escapes; longer ones are left to the tree */ };

struct remote_chunk {
	uint64_t index;                    /* of the choice, as the chunk has it */
	struct proto_str content, thought; /* borrowed from the event, or from room; at most one is not empty */
	char room[REMOTE_CHUNK_ESCAPED];
};

/* An event of a chat. False: it is for the tree; *out is undefined. */
bool remote_chunk_read(const char *data, size_t n, struct remote_chunk *out);

/* What an answer's last plain chunk had before and behind its text. Those of one answer rarely differ in more than the
 * text: one that has the same around a text without quotes and escapes is valid like that one, and is not read again.
 */
struct remote_form {
	struct sl_buf text; /* what was before, and what was behind */
	uint32_t n_before;
	uint8_t n_changed; /* forms in a row that fitted no other chunk */
	bool is_thought;
	uint64_t index;
};

void remote_form_init(struct remote_form *f);
void remote_form_dispose(struct remote_form *f);
/* As remote_chunk_read; learns from what it reads. */
bool remote_form_read(struct remote_form *f, const char *data, size_t n, struct remote_chunk *out);

#endif
