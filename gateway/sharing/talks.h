/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is talking to the models at the moment: the prompts in flight of each user, so that a newer prompt
 * of the same conversation ends the older one. Two prompts are of one conversation when
 *
 *   named    both say so, by the same x-sluice-conversation;
 *   goes on  the newer one begins with all messages of the older one;
 *   edited   the newer one begins with the older one's messages but its last, among which is an answer;
 *   burst    both came within `burst`, have the same messages but the last, and the last is nearly the
 *            same: somebody types.
 *
 * The last three are guesses, which a tier must want. Two that ask exactly the same are twins, if those
 * are allowed, and never end one another.
 */
#ifndef GATEWAY_TALKS_H
#define GATEWAY_TALKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/thread.h"

enum { TALK_DIGEST_BYTES = 16, TALK_LAST_BYTES = 1024, TALKS_MAX = 65536 };

struct talks;
struct talk; /* a prompt in flight */

struct talk_digest {
	uint8_t bytes[TALK_DIGEST_BYTES];
};

/* The messages of a prompt. */
struct talk_messages {
	size_t n;                     /* 0: unknown; then no guesses */
	const struct talk_digest *at; /* [n] at[i]: of messages 0 … i */
	bool answered;                /* among all but the last is an answer */
	const char *last;             /* what the last one says; NULL: no plain text */
	size_t n_last;
};

struct talk_turn {
	struct talk_digest who; /* tenant and user */
	bool named, guess;
	struct talk_digest name; /* of the conversation, when named */
	bool may_join;
	struct talk_digest request;    /* of all it asks, when may_join */
	struct talk_messages messages; /* when guess */
	uint64_t burst_ns;
};

int talks_create(struct talks **out);
void talks_destroy(struct talks *ts); /* NULL is allowed; nothing is in flight */
/* With the secret of the process and one of what goes before; before may be NULL. */
void talks_digest(const struct talks *ts, const struct talk_digest *before, const void *bytes, size_t n,
		  struct talk_digest *out);

/* One begins: asks older ones of its conversation to end; superseded(ctx) will be called on t, from its
 * loop, when a newer one comes. How many older ones there were; *out NULL: without room or memory for it
 * nothing will end this one. */
size_t talks_begin(struct talks *ts, const struct talk_turn *turn, struct gw_thread *t, void (*superseded)(void *ctx),
		   void *ctx, struct talk **out);
void talks_end(struct talk *talk); /* NULL is allowed */

#endif
