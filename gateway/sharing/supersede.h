/* SPDX-License-Identifier: Apache-2.0
 *
 * A newer prompt of a conversation ends the older ones of the same user that are still in flight. Two prompts belong to
 * one conversation if they are
 *
 *   named      both have the same x-sluice-conversation
 *   continued  the newer one begins with all messages of the older one
 *   edited     the newer one begins with all messages of the older one but the last, and one of those is an answer
 *   typing     both arrived within `burst`, differ only in the last message, and there only a little
 *
 * The last three are guesses, which a tier must enable. Two identical requests are coalesced if that is enabled, and
 * never end each other.
 */
#ifndef GATEWAY_SUPERSEDE_H
#define GATEWAY_SUPERSEDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/thread.h"
#include "gateway/sharing/inflight.h"

enum { SUPERSEDE_LAST_BYTES = 1024 };

struct supersede_prompt; /* in flight */

/* Digest of messages 0 … i of a conversation: XXH3 with the process's secret. For guesses only. */
struct message_digest {
	uint8_t bytes[16];
};

/* The messages of a prompt. */
struct supersede_messages {
	size_t n;                        /* 0: unknown, no guesses */
	const struct message_digest *at; /* [n] at[i]: of messages 0 … i */
	bool answered;                   /* one of the earlier messages is an answer */
	const char *last;                /* text of the last message; NULL: not plain text */
	size_t n_last;
};

struct supersede_request {
	struct request_digest user; /* with the tenant */
	bool named, guess;
	struct request_digest name; /* of the conversation, if named */
	bool may_join;
	struct request_digest request;      /* of the whole request, if may_join */
	struct supersede_messages messages; /* if guess */
	uint64_t burst_ns;
};

/* Digest of a message and those before it. before: NULL allowed. */
void supersede_digest(const struct inflight *f, const struct message_digest *before, const void *bytes, size_t n,
		      struct message_digest *out);

/* Ends each older prompt of r's conversation (calls its superseded(ctx) on its thread) and lists r's prompt, on thread
 * t. Returns how many it ended. *out NULL: no room or memory; then nothing supersedes this prompt. */
size_t supersede_begin(struct inflight *f, const struct supersede_request *r, struct gw_thread *t,
		       void (*superseded)(void *ctx), void *ctx, struct supersede_prompt **out);
void supersede_end(struct supersede_prompt *p); /* NULL allowed */

#endif
