/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompts in flight of each user, so that a newer prompt
 * of the same conversation ends the older one. Two prompts are of one conversation when
 *
 *   named    both say so, by the same x-sluice-conversation;
 *   goes on  the newer one begins with all messages of the older one;
 *   edited   the newer one begins with the older one's messages but its last, among which is an answer;
 *   burst    both came within `burst`, have the same messages but the last, and the last is nearly the
 *            same: a user is typing.
 *
 * The last three are guesses, which a tier must want. Two that ask exactly the same are coalesced requests, if those
 * are allowed, and never end one another.
 */
#ifndef GATEWAY_SUPERSEDE_H
#define GATEWAY_SUPERSEDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/thread.h"

enum { TALK_DIGEST_BYTES = 16, TALK_LAST_BYTES = 1024, TALKS_MAX = 65536 };

struct superseding;
struct talk; /* a prompt in flight */

struct supersede_digest_of {
	uint8_t bytes[TALK_DIGEST_BYTES];
};

/* The messages of a prompt. */
struct supersede_messages_of {
	size_t n;                             /* 0: unknown; then no guesses */
	const struct supersede_digest_of *at; /* [n] at[i]: of messages 0 … i */
	bool answered;                        /* among all but the last is an answer */
	const char *last;                     /* what the last one says; NULL: no plain text */
	size_t n_last;
};

struct supersede_turn_of {
	struct supersede_digest_of who; /* tenant and user */
	bool named, guess;
	struct supersede_digest_of name; /* of the conversation, when named */
	bool may_join;
	struct supersede_digest_of request;    /* of all it asks, when may_join */
	struct supersede_messages_of messages; /* when guess */
	uint64_t burst_ns;
};

int supersede_create(struct superseding **out);
void supersede_destroy(struct superseding *ts); /* NULL is allowed; nothing is in flight */
/* With the secret of the process and one of what goes before; before may be NULL. */
void supersede_digest(const struct superseding *ts, const struct supersede_digest_of *before, const void *bytes,
		      size_t n, struct supersede_digest_of *out);

/* One begins: asks older ones of its conversation to end; superseded(ctx) will be called on t, from its
 * loop, when a newer one comes. How many older ones there were; *out NULL: without room or memory for it
 * nothing will end this one. */
size_t supersede_begin(struct superseding *ts, const struct supersede_turn_of *turn, struct gw_thread *t,
		       void (*superseded)(void *ctx), void *ctx, struct talk **out);
void supersede_end(struct talk *talk); /* NULL is allowed */

#endif
