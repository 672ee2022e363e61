/* SPDX-License-Identifier: Apache-2.0
 *
 * One answer of a chat completion, read from its stream: text, thoughts and calls of tools, delta by delta, and the
 * message that the conversation keeps.
 */
#ifndef CMD_CHAT_TURN_H
#define CMD_CHAT_TURN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/http/http_client.h"
#include "base/http/sse_read.h"

enum { CHAT_MAX_CALLS = 128 };

/* What the answer goes to while it streams. */
struct chat_sink {
	void (*text)(void *ctx, const char *s, size_t n);
	void (*thought)(void *ctx, const char *s, size_t n);
	void (*call_name)(void *ctx, const char *name);
	void (*call_arguments)(void *ctx, const char *s, size_t n);
	void *ctx;
};

struct chat_turn {
	json_t *message; /* owned: role, content, tool_calls; NULL: nothing came */
	char finish[32]; /* finish_reason; "": the stream did not come to one */
	char model[128]; /* that answered */
	uint64_t n_prompt, n_completion;
	uint64_t us_first, us_all;
	enum http_end end;
	char why[512]; /* of a failure: one line; "": none */
};

/* Sends `request` (borrowed; its stream fields are set here) and reports the answer. stop ends it early; what came is
 * kept. 0, or an error with turn->why. Dispose of the turn in either case. */
int chat_turn_run(struct http_client *client, json_t *request, const struct chat_sink *sink, const volatile int *stop,
		  struct chat_turn *turn);
void chat_turn_dispose(struct chat_turn *turn);

#endif
