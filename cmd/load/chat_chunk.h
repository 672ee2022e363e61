/* SPDX-License-Identifier: Apache-2.0
 *
 * Extracts what a measurement needs from a chat completion: one event of a stream, or a complete response, of any
 * OpenAI-compatible server. Unknown fields are ignored.
 */
#ifndef CMD_CHAT_CHUNK_H
#define CMD_CHAT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

struct chat_chunk {
	bool done;     /* [DONE] */
	bool has_text; /* non-empty content, reasoning or text */
	bool finished; /* has a finish_reason */
	bool has_usage, is_error;
	uint64_t n_prompt, n_cached, n_completion;
	char code[64]; /* the error's code, otherwise its type */
	struct proto_str
	    content; /* as it is written in JSON, without quotes; of the last choice that has one. Borrowed */
};

/* False: data is not JSON. */
bool chat_chunk_read(const char *data, size_t n, struct chat_chunk *out);

#endif
