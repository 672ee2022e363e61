/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/echo/echo_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/core/prompt.h"

bool echo_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

uint32_t echo_count_words(const char *text, size_t n)
{
	uint32_t words = 0;
	for (size_t i = 0; i < n; i++) {
		if (!echo_is_space(text[i]) && (i == 0 || echo_is_space(text[i - 1])))
			words++;
	}
	return words;
}

size_t echo_token_bytes(const char *text, size_t n)
{
	size_t i = 0;
	while (i < n && echo_is_space(text[i]))
		i++;
	while (i < n && !echo_is_space(text[i]))
		i++;
	while (i < n && echo_is_space(text[i]))
		i++;
	if (i > ECHO_MAX_WORD) {
		i = ECHO_MAX_WORD;
		while (i > 1 && ((uint8_t)text[i] & 0xc0) == 0x80)
			i--;
	}
	return i;
}

/* How many tokens of the words an answer that has begun has; 0: it is none of theirs. */
static uint32_t count_begun(const char *words, size_t n_words, const char *begun, size_t n_begun)
{
	uint32_t n = 0;
	for (size_t at = 0; at < n_words && n_begun > 0; n++) {
		size_t bytes = echo_token_bytes(words + at, n_words - at), tilde = begun[0] == '~';
		size_t k = bytes < n_begun - tilde ? bytes : n_begun - tilde;
		if (memcmp(words + at, begun + tilde, k) != 0)
			return 0;
		at += bytes;
		begun += tilde + k;
		n_begun -= tilde + k;
	}
	return n_begun == 0 ? n : 0;
}

/* The text of a message; of a list of parts the last one's. */
static struct proto_str text_of(const json_t *message)
{
	const json_t *content = json_object_get(message, "content");
	if (json_is_array(content))
		content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
	return (struct proto_str){json_is_string(content) ? json_string_value(content) : "",
				  json_string_length(content)};
}

int echo_read_prompt(uint8_t kind, struct proto_str prompt, struct echo_prompt *out, struct sl_err *err)
{
	const char *last = prompt.at;
	size_t n = prompt.n;
	struct prompt_chat chat = {0};
	*out = (struct echo_prompt){0};
	if (kind == PROTO_PROMPT_TOKENS) {
		out->n_tokens = (uint32_t)(prompt.n / 4);
		last = "tokens";
		n = strlen(last);
	} else if (kind == PROTO_PROMPT_TEXT) {
		out->n_tokens = echo_count_words(prompt.at, prompt.n);
	} else {
		int rc = prompt_parse_chat(prompt.at, prompt.n, &chat, err);
		out->refused = chat.refused;
		if (rc != 0)
			return rc;
		bool user = false;
		for (size_t i = 0; i < json_array_size(chat.messages); i++) {
			const json_t *m = json_array_get(chat.messages, i);
			struct proto_str text = text_of(m);
			out->n_tokens += echo_count_words(text.at, text.n);
			bool by_user = strcmp(json_string_value(json_object_get(m, "role")), "user") == 0;
			if (by_user || !user) {
				last = text.at;
				n = text.n;
				user = by_user;
			}
		}
		struct proto_str begun = text_of(json_array_get(chat.messages, json_array_size(chat.messages) - 1));
		if (chat.continue_final_message && user)
			out->n_begun = count_begun(last, n, begun.at, begun.n);
	}
	out->last = sl_strndup(last, n);
	out->last_bytes = out->last != NULL ? n : 0;
	prompt_chat_dispose(&chat);
	return out->last != NULL ? 0 : sl_errf(err, SL_ENOMEM, "out of memory");
}

/* The number behind word@ in the message; UINT32_MAX: there is none. */
static uint32_t driven_by(const char *message, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = message; (p = strstr(p, word)) != NULL; p += n)
		if ((p == message || echo_is_space(p[-1])) && p[n] == '@' && p[n + 1] >= '0' && p[n + 1] <= '9')
			return (uint32_t)strtoul(p + n + 1, NULL, 10);
	return UINT32_MAX;
}

struct echo_drives echo_drives_of(const char *message, bool large)
{
	uint32_t slow = driven_by(message, large ? "slow-large" : "slow-small");
	return (struct echo_drives){
	    .unsure_at = large ? UINT32_MAX : driven_by(message, "unsure"),
	    .differ_at = large ? driven_by(message, "differ") : UINT32_MAX,
	    .fail_at = driven_by(message, large ? "fail-large" : "fail-small"),
	    .hang_at = driven_by(message, large ? "hang-large" : "hang-small"),
	    .slow_ms = slow != UINT32_MAX ? slow : 0,
	};
}

void echo_write_stamp(char out[ECHO_CLOCK_BYTES + 1], uint64_t now_ns)
{
	snprintf(out, ECHO_CLOCK_BYTES + 1, "t%020llu ", (unsigned long long)now_ns);
}
