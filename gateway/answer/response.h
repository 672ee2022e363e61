/* SPDX-License-Identifier: Apache-2.0
 *
 * A response of OpenAI's Responses API: the object that clients see (response_object.c), the record
 * it is stored as (response_store.c) and its events (answer_response.c). The request's side is in
 * response_request.h, the handlers in api_responses.c.
 */
#ifndef GATEWAY_RESPONSE_H
#define GATEWAY_RESPONSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "gateway/answer/answer.h"
#include "gateway/conversation/conversation_hold.h"
#include "gateway/request/response_request.h"

/* What an answer that is a response has of its own (answer.own). */
struct response {
	struct answer *answer; /* once it is asked to settle, or its log is open */
	json_t *about;         /* fields of the request that are echoed */
	json_t *items;         /* the conversation before the answer: normal items, each with an id */
	uint32_t n_events;     /* sent; the next one's sequence_number */
	bool store;            /* it is to be stored */
	bool lost;             /* storing failed: the final object has "store": false and the reason */
	bool first;            /* what is being stored is its beginning, which its client waits for */
	bool corrected;        /* the object being stored has "conversation": null */
	int why;    /* lost: the store's code; SL_ENOTFOUND: its conversation was deleted, and it with that */
	bool last;  /* what is being stored is its final state */
	bool waits; /* for the store, to put the final state there */
	struct cache_op op;
	/* Of one that is made in a conversation. */
	struct conversation_turn *turn; /* until it is added; owned; NULL: none */
	bool not_added; /* adding the turn failed: the final object has "conversation": null and the reason */
	/* For the prefix registry. */
	uint64_t digest; /* of the messages; 0: unknown */
	uint8_t cleanse; /* how they were made */
};

/* items: taken in any case. NULL: no memory. */
struct response *response_create(const struct response_request *r, json_t *items);

extern const struct answer_format answer_response;

/* ---- response_object.c: each gives a new reference, or NULL without memory ---- */

json_t *response_about(const struct response_request *r);
json_t *response_object(struct answer *a);
/* The message of an answer that is not split. open: without its content, as it begins. */
json_t *response_message(const struct answer *a, bool open);
/* An item of one that is split. open: without its content, as it begins. */
json_t *response_item(const struct answer *a, const struct answer_item *item, bool open);
enum { RESPONSE_ITEM_ID_BYTES = ANSWER_ID_BYTES + 16 };
/* "msg_…", "rs_…" or "fc_…", from the answer's id; the first message has the answer's number alone. */
void response_item_id(const struct answer *a, const struct answer_item *item, char out[RESPONSE_ITEM_ID_BYTES]);
/* It is made, and not kept as its client asked: it ends as failed, with all of its output. */
bool response_is_unkept(const struct response *r);
/* A list of log probabilities without brackets as a JSON array. NULL: no memory. */
json_t *response_logprobs(const struct sl_buf *from);
/* The one part of its content. */
json_t *response_part(const struct answer *a, bool open);
/* "msg_…", from the answer's id. */
void response_message_id(const struct answer *a, char out[ANSWER_ID_BYTES]);

/* ---- response_store.c ---- */

enum { RESPONSE_VERSION = 1 };

void response_key(struct cache_key *key, const struct auth_key *who, const char *id);
/* {"response", "items"} as stored; ends_s: when it will have ended for certain (seconds since 1970; 0:
 * it has), for what never ended because the server did. 0, SL_ELIMIT, SL_ENOMEM. */
int response_record(struct sl_buf *out, const json_t *object, const json_t *items, int64_t ends_s);
/* The same read; what should have ended by now has failed. NULL: no memory, or nonsense. */
json_t *response_record_read(const uint8_t *bytes, size_t n);
/* Stores the answer's state as it is, or once what is being stored is. last: answer_settled follows.
 * 0 or a negative code, and then nothing follows. */
int response_save(struct response *r, bool last);
/* The end is about to be sent: what is stored and added before. True: answer_settled follows. */
bool response_settle(struct response *r);

#endif
