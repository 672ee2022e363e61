/* SPDX-License-Identifier: Apache-2.0
 *
 * The room shortens conversations that are too long for their model. compress_run.h is the entry for handlers: it
 * counts tokens and has summaries written. This file decides what is removed and what replaces it; it is pure: one
 * prompt's JSON in, another out.
 *
 *   turn    a user message and all messages up to the next one
 *   block   consecutive turns that together reach a size; removed as a whole, the oldest first
 *   fact    a name, number, quotation, address or identifier that a summary must keep (compress_facts.h)
 *
 * Blocks begin at the conversation's first turn. So they stay the same as it grows, and the stored summary of a block
 * is found again. Never removed: system messages, turns with a pinned message, the last turn. All turns from a tool
 * call to its result count as one.
 *
 * Thread: any; a run belongs to one exchange and its thread. Callers: gateway/api.
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

/* Parses {"messages":[…],…} in the form the engine takes and divides it into blocks of about block_tokens (estimated).
 * 0, SL_EINVAL, SL_ENOMEM. */
int compress_chat_read(const char *prompt, size_t n, uint32_t block_tokens, struct compress_chat **out);
void compress_chat_free(struct compress_chat *c); /* NULL allowed */

size_t compress_n_blocks(const struct compress_chat *c);
/* Estimated tokens of a block, and of all messages. */
uint64_t compress_block_estimate(const struct compress_chat *c, size_t block);
uint64_t compress_estimate(const struct compress_chat *c);
/* Messages in the first n_blocks. */
size_t compress_n_messages(const struct compress_chat *c, size_t n_blocks);
/* SHA-256 of the block's messages. 0, SL_ENOMEM. */
int compress_block_digest(const struct compress_chat *c, size_t block, uint8_t out[COMPRESS_DIGEST_BYTES]);
/* Bounds of a transcript. */
struct compress_excerpt {
	size_t max_bytes;                  /* in total; the longest messages lose their middle */
	size_t of_others;                  /* for each message that is not the user's; 0: no bound */
	const struct compress_facts *only; /* only turns with one of these facts; NULL: all turns */
};
/* "role: text" lines, to be summarized. 0, SL_ELIMIT, SL_ENOMEM. */
int compress_block_transcript(const struct compress_chat *c, size_t block, const struct compress_excerpt *t,
			      struct sl_buf *out);
/* The facts that the block's summary must keep; borrows c's texts. */
void compress_block_facts(const struct compress_chat *c, size_t block, struct compress_facts *out);

/* The text of the last message, if that is the user's, and its estimate; NULL: it is not, or has no text. */
const char *compress_last_text(const struct compress_chat *c, size_t *n, uint64_t *estimate);
/* Gives it another text. 0, SL_ENOMEM, SL_EINVAL: it is no UTF-8. */
int compress_set_last_text(struct compress_chat *c, const char *text, size_t n);

/* The summary becomes a system message or, for templates that don't allow one there, the beginning of the next user
 * message. */
enum compress_form { COMPRESS_MESSAGE, COMPRESS_FOLDED };

/* Appends the prompt without the first n_blocks and, unless n is 0, with the summary. 0, SL_ELIMIT, SL_ENOMEM. */
int compress_write(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
		   size_t n, struct sl_buf *out);

#endif
