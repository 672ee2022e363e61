/* SPDX-License-Identifier: Apache-2.0
 *
 * The room shortens conversations that are too long for their model. This file decides what is removed and what
 * replaces it; it is pure: one prompt's JSON in, another out. compress_run.h, the only entry for handlers, counts
 * tokens and has summaries written; a run belongs to one exchange and its thread.
 *
 * A turn is a user's message with all messages up to the next one. Whole turns are removed, the oldest first, in
 * blocks: consecutive turns that together reach a size. Blocks begin at the conversation's first turn, so they stay the
 * same as it grows, and the stored summary of a block is found again.
 *
 * Never removed: system messages, turns with a pinned message, the last turn. Turns between a tool call and its result
 * count as one.
 */
#ifndef GATEWAY_COMPRESS_H
#define GATEWAY_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/compress/compress_facts.h"

enum compress_mode { COMPRESS_OFF, COMPRESS_TRIM, COMPRESS_SUMMARY };

enum { COMPRESS_DIGEST_BYTES = 32 };

struct compress_chat;

/* Reads {"messages":[…],…} as the engine takes it and cuts it into blocks of about block_tokens, by an
 * estimate. 0, SL_EINVAL, SL_ENOMEM. */
int compress_chat_read(const char *prompt, size_t n, uint32_t block_tokens, struct compress_chat **out);
void compress_chat_free(struct compress_chat *c); /* NULL is fine */

size_t compress_n_blocks(const struct compress_chat *c);
/* Tokens of a block, and of all messages, by the estimate. */
uint64_t compress_block_estimate(const struct compress_chat *c, size_t block);
uint64_t compress_estimate(const struct compress_chat *c);
/* Messages in the first n_blocks. */
size_t compress_n_messages(const struct compress_chat *c, size_t n_blocks);
/* Of the block's messages. 0, SL_ENOMEM. */
int compress_block_digest(const struct compress_chat *c, size_t block, uint8_t out[COMPRESS_DIGEST_BYTES]);
/* How a block is written out. */
struct compress_telling {
	size_t max_bytes;                  /* in all; the longest messages lose their middle */
	size_t of_others;                  /* of each message that is not the user's; 0: no bound */
	const struct compress_facts *only; /* only turns with one of these; NULL: all */
};
/* "role: text" lines, to be summarized. 0, SL_ELIMIT, SL_ENOMEM. */
int compress_block_transcript(const struct compress_chat *c, size_t block, const struct compress_telling *t,
			      struct sl_buf *out);
/* The facts that its summary must keep; borrows c's texts. */
void compress_block_facts(const struct compress_chat *c, size_t block, struct compress_facts *out);

/* The summary as a system message before the rest, or, for templates without such a message there, at the front of the
 * user's next message. */
enum compress_form { COMPRESS_MESSAGE, COMPRESS_FOLDED };

/* Appends the prompt without the first n_blocks, and with the summary unless n is 0. 0, SL_ELIMIT,
 * SL_ENOMEM. */
int compress_write(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
		   size_t n, struct sl_buf *out);

#endif
