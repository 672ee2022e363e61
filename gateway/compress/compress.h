/* SPDX-License-Identifier: Apache-2.0
 *
 * What is removed from a conversation that has grown too long for its model, and what stands there
 * instead. Pure: the prompt's JSON in, another one out; who counts tokens and writes summaries is
 * compress_run.h.
 *
 * A turn is a user's message with all that follows until the next one. Removed are whole turns, the oldest
 * first, in blocks: consecutive turns that together reach a size. Blocks begin at the conversation's
 * first turn, so they stay the same while it goes on, and what was made of one can be found again.
 *
 * Never removed: messages of the system, turns in which a message is pinned, the last turn; and turns
 * between a call of a tool and its result count as one.
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
/* Of all that a block says. 0, SL_ENOMEM. */
int compress_block_digest(const struct compress_chat *c, size_t block, uint8_t out[COMPRESS_DIGEST_BYTES]);
/* How a block is told. */
struct compress_telling {
	size_t max_bytes; /* in all; what doesn't fit is left out of the middle of the longest messages */
	size_t of_others; /* the same for each message that isn't the user's; 0: no bound */
	const struct compress_facts *only; /* the turns in which one of them stands; NULL: all */
};
/* Who said what, a line each, for somebody to summarize. 0, SL_ELIMIT, SL_ENOMEM. */
int compress_block_transcript(const struct compress_chat *c, size_t block, const struct compress_telling *t,
			      struct sl_buf *out);
/* What a summary of it must say; borrows c's texts. */
void compress_block_facts(const struct compress_chat *c, size_t block, struct compress_facts *out);

/* The summary as a message of the system, before what is left; or, for templates that have room for no such
 * message, at the front of the user's next one. */
enum compress_form { COMPRESS_MESSAGE, COMPRESS_FOLDED };

/* Appends the prompt without the first n_blocks, and with the summary unless n is 0. 0, SL_ELIMIT,
 * SL_ENOMEM. */
int compress_write(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
		   size_t n, struct sl_buf *out);

#endif
