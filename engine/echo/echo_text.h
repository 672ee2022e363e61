/* SPDX-License-Identifier: Apache-2.0
 *
 * What the echo engine reads and answers: words for tokens, the last user message of a prompt, the clock's words, and
 * the words in a message that make its two models differ.
 */
#ifndef ENGINE_ECHO_TEXT_H
#define ENGINE_ECHO_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"

enum {
	ECHO_MAX_WORD = 64, /* bytes of one token */
	ECHO_CLOCK_BYTES = 22,
};

bool echo_is_space(char c);
uint32_t echo_count_words(const char *text, size_t n);
/* Bytes of the token that begins at text: a word with the space after it, cut at a character when
 * it is long. */
size_t echo_token_bytes(const char *text, size_t n);

struct echo_prompt {
	uint32_t n_tokens;
	char *last; /* owned by the caller (sl_free): the last user message, else the last one */
	size_t last_bytes;
	uint32_t n_begun; /* tokens of it that a final message to be continued has already */
	uint8_t refused;  /* as struct prompt_chat has it */
};

/* kind: PROTO_PROMPT_*. SL_EINVAL for a chat that is none, SL_ENOMEM; out->last is then NULL. */
int echo_read_prompt(uint8_t kind, struct proto_str prompt, struct echo_prompt *out, struct sl_err *err);

/* Words anywhere in a message, N being a token's index, the first is 0:
 *   unsure@N       from N on the small model's tokens have a low probability
 *   differ@N       from N on the large one's words begin with a tilde and have ids of their own
 *   fail-small@N, fail-large@N    that model fails after N tokens of its own
 *   hang-small@N, hang-large@N    that model falls silent after N tokens of its own
 *   slow-small@MS, slow-large@MS  that model's first token takes so long
 * UINT32_MAX: not given (slow_ms: 0). */
struct echo_drives {
	uint32_t unsure_at, differ_at, fail_at, hang_at, slow_ms;
};

/* Those of one of the two models. */
struct echo_drives echo_drives_of(const char *message, bool large);

/* `t`, the 20 digits of now_ns, a space; ends with a NUL. */
void echo_write_stamp(char out[ECHO_CLOCK_BYTES + 1], uint64_t now_ns);

#endif
