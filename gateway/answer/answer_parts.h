/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer's text as items: content, reasoning and calls of tools, split from the tokens by gateway/parts. A pure
 * function of the tokens, as are the names of calls, so a logged answer stays the same byte for byte. Answers of models
 * that write neither are not split: their text goes to the format as it is.
 *
 * Thread: the answer's. Included by answer.h.
 */
#ifndef GATEWAY_ANSWER_PARTS_H
#define GATEWAY_ANSWER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/generation/engine_link.h"
#include "gateway/parts/parts.h"

struct answer;
struct answer_run;
struct gen_token;
struct json_t;

/* How answers are split. Of an answer, for all its choices. */
struct answer_split {
	struct link_parts model; /* how it writes */
	struct parts_tools *tools;
	struct json_t *declared; /* [{"name", "parameters"}]; NULL: no tools */
	bool one_call;           /* parallel calls were not wanted */
	bool functions;          /* chats report the one call as function_call, the deprecated form */
	unsigned n_calls_before; /* in the conversation; only formats with numbered calls need it */
	const char *literals[PARTS_MAX_LITERALS];
	struct parts_marker markers[PARTS_MAX_LITERALS];
	size_t n_markers;
};

/* declared: borrowed. NULL and *rc 0: there is nothing to split; else SL_EINVAL (a schema), SL_ELIMIT, SL_ENOMEM. */
struct answer_split *answer_split_create(const struct link_parts *model, struct json_t *declared, bool one_call,
					 bool functions, int *rc);
void answer_split_free(struct answer_split *s); /* NULL is allowed */
/* For another gateway: as JSON, a new reference, and back. NULL: no memory, or (restore) null or nonsense. */
struct json_t *answer_split_save(const struct answer_split *s);
struct answer_split *answer_split_restore(const struct json_t *saved);

enum answer_item_kind { ANSWER_CONTENT, ANSWER_REASONING, ANSWER_CALL };
enum { ANSWER_CALL_ID_BYTES = 32 + PARTS_MAX_NAME };

struct answer_item {
	enum answer_item_kind kind;
	unsigned number;               /* among the items of its choice */
	int call;                      /* of a call: among the calls */
	char *name;                    /* of a call: its tool; owned */
	char id[ANSWER_CALL_ID_BYTES]; /* of a call */
	bool closed, cut;              /* cut: the arguments are not complete */
	struct sl_buf text; /* content, reasoning, arguments; empty where the answer does not keep its text */
};

/* Of a choice. */
struct answer_parts {
	struct answer *a;
	unsigned index;
	struct parts *parser;
	struct answer_item *items; /* owned */
	size_t n_items, n_room;
	struct sl_buf pending; /* of the last item, not yet given to the format */
	struct sl_buf *out;    /* the events; NULL: the answer is sent as a whole */
	int n_calls;
	unsigned n_told;      /* events with text so far */
	uint32_t n_reasoning; /* tokens of reasoning so far */
};

enum answer_item_event { ANSWER_ITEM_OPEN, ANSWER_ITEM_TEXT, ANSWER_ITEM_CLOSE };

/* The next tokens of choice `index`, n of them from `first` on, with their text, which is n_text bytes. 0 or a negative
 * code. */
int answer_parts_feed(struct answer *a, struct answer_run *run, unsigned index, uint64_t first, uint32_t n,
		      const char *text, struct sl_buf *out);
/* The choice ends: what was held back becomes what it can be. */
int answer_parts_finish(struct answer *a, struct answer_run *run, unsigned index, struct sl_buf *out);
void answer_parts_free(struct answer_parts *p); /* NULL is allowed */
/* Its calls; NULL: none. */
int answer_parts_calls(const struct answer_parts *p);
/* All of its text of that kind, appended; several items follow one another. */
int answer_parts_text(const struct answer_parts *p, enum answer_item_kind kind, struct sl_buf *out);

#endif
