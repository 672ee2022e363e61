/* SPDX-License-Identifier: Apache-2.0
 *
 * What a measurement wants to know of a chat completion: of one event of a stream, or of a whole
 * answer. Reads any OpenAI-compatible server's; unknown fields are passed over.
 */
#ifndef CMD_CHAT_CHUNK_H
#define CMD_CHAT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_chunk {
	bool done;     /* [DONE] */
	bool has_text; /* content, reasoning or text that is not empty */
	bool finished; /* a finish_reason */
	bool has_usage, is_error;
	uint64_t n_prompt, n_cached, n_completion;
	char code[64]; /* of an error: its code, else its type */
};

/* False when it is not JSON. */
bool chat_chunk_read(const char *data, size_t n, struct chat_chunk *out);

#endif
