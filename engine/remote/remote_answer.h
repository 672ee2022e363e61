/* SPDX-License-Identifier: Apache-2.0
 *
 * The upstream's events become tokens. Each delta is one token, unless it has its tokens' ids or log probabilities:
 * what the upstream sends together is divided only into words, for paced readers. So the numbers of tokens that clients
 * are charged come from its `usage`, and from the deltas where it sends none. With log probabilities each token has the
 * text that it spells, whatever came together: an answer that is repeated has the same tokens (PROTO_SUBMIT_WANT_IDS).
 * The arguments of its calls, which no list tells apart, are divided at equal distances then.
 *
 * The gateway finds reasoning and calls of tools in the tokens themselves (gateway/parts), in the form that the model
 * announces. The announced form is Hermes', with markers that are tokens of their own, which no text can spell: a call
 * is <tool_call>, {"name": NAME, "arguments": TEXT} with the arguments as one JSON string, which the gateway passes on
 * byte for byte, </tool_call>; reasoning stands between <think> and </think>.
 *
 * Tokens wait in a queue until they have credit. Pure; any thread.
 */
#ifndef ENGINE_REMOTE_ANSWER_H
#define ENGINE_REMOTE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "engine/remote/remote_chunk.h"

enum {
	REMOTE_QUEUE_PAUSE = 64 << 10, /* bytes that wait: above it nothing is read */
	REMOTE_QUEUE_MAX = 32 << 20,   /* one read of RECEIVE_BYTES and one event never exceed it */
	REMOTE_EVENT_MAX = 1 << 20,    /* bytes of an event */
	REMOTE_FRAME_TOKENS = 64,
	REMOTE_TOKEN_TEXT = 512, /* a longer delta is several tokens */
	REMOTE_CALL_GROUP = 8,   /* bytes of arguments that are a token, if tokens are to be repeated */
	REMOTE_FIRST_ID = PROTO_NO_ID + (1 << 10), /* tokens whose id the upstream does not give are numbered */
	REMOTE_TOP_ID = 1 << 30,                   /* ids of tokens beside the chosen ones, in one frame */
};

struct remote_choice {
	bool reasoning; /* <think> is open */
	bool calling;   /* a call is open */
	int64_t call;   /* its index; before the first: -1 */
	uint8_t finish; /* enum proto_finish; 0: it goes on */
	uint8_t stop;   /* enum proto_stop */
	uint32_t stop_at;
	uint32_t n_deltas; /* tokens without markers */
	uint32_t n_sent;   /* numbers those without an id */
	uint8_t n_part;    /* of a character whose last bytes are the next token's */
	char part[3];
	uint8_t n_group; /* bytes of a call's arguments that wait for the rest of their group */
	char group[REMOTE_CALL_GROUP];
};

struct remote_usage {
	bool known;
	bool is_false; /* a number was out of bounds: it is not used */
	uint32_t n_prompt, n_cached, n_completion;
};

/* What each event touches comes first. */
struct remote_answer {
	const struct proto_submit *asked; /* borrowed: scalars and stops */
	struct sl_buf queue;
	struct remote_form form; /* of its plain chunks */
	bool complete;           /* [DONE], or every choice has ended and the usage has come */
	bool done;               /* [DONE] */
	struct remote_choice choices[PROTO_MAX_CHOICES];
	struct remote_usage usage;
	uint32_t prompt_most; /* tokens that the prompt can have */
	/* Of a failed event. */
	enum proto_fault fault;
	char why[128];
};

void remote_answer_init(struct remote_answer *a, const struct proto_submit *asked, uint32_t prompt_most);
void remote_answer_dispose(struct remote_answer *a);
/* The data of one event. False: it is no good; fault and why say so. */
bool remote_answer_event(struct remote_answer *a, const char *data, size_t n);
/* Every choice has ended. */
bool remote_answer_ended(const struct remote_answer *a);
/* Tokens of all choices that the client is charged for. */
uint32_t remote_answer_tokens(const struct remote_answer *a);

/* What the queue's front is. */
enum remote_next { REMOTE_NEXT_NONE, REMOTE_NEXT_TOKENS, REMOTE_NEXT_END };

/* A frame of tokens; large, so that an engine has one. */
struct remote_frame {
	struct proto_tokens tokens;
	struct sl_buf text;
	size_t n_bytes; /* of the queue */
	struct proto_token list[REMOTE_FRAME_TOKENS];
	struct proto_id_f32 tops[REMOTE_FRAME_TOKENS * PROTO_MAX_TOP_LOGPROBS];
	struct proto_str pieces[REMOTE_FRAME_TOKENS], top_pieces[REMOTE_FRAME_TOKENS * PROTO_MAX_TOP_LOGPROBS];
	uint32_t first_id;
};

void remote_frame_init(struct remote_frame *f);
void remote_frame_dispose(struct remote_frame *f);

enum remote_next remote_answer_next(const struct remote_answer *a);
/* NEXT_TOKENS: up to `most` (at least 1) of one choice into *f, which borrows from the queue. 0 or SL_ENOMEM. */
int remote_answer_look(struct remote_answer *a, uint32_t most, struct remote_frame *f);
/* Removes what remote_answer_look found. */
void remote_answer_drop(struct remote_answer *a, const struct remote_frame *f);
/* NEXT_END: removes it; the choice that has ended. */
uint8_t remote_answer_take_end(struct remote_answer *a);

/* Format, reasoning and markers of the model that is announced. */
void remote_model_parts(struct proto_model *m);

#endif
