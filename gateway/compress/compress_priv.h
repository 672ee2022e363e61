/* SPDX-License-Identifier: Apache-2.0
 *
 * A run, shared by compress_run.c (how much is removed, the new prompt) and compress_summary.c (a block's summary).
 */
#ifndef GATEWAY_COMPRESS_PRIV_H
#define GATEWAY_COMPRESS_PRIV_H

#include "cache/cache.h"
#include "gateway/exchange/app_state.h"
#include "gateway/compress/compress.h"
#include "gateway/compress/compress_run.h"
#include "gateway/generation/generation.h"

enum {
	COMPRESS_TOLD_BYTES = 256,
	COMPRESS_MOST_TEXT = 16 << 10, /* bytes of a summary with its facts */
};

enum compress_state {
	COMPRESS_IDLE,
	COMPRESS_COUNTING,
	COMPRESS_TRIMMING,
	COMPRESS_READING,
	COMPRESS_SUBMITTED,
	COMPRESS_CHARGING,
	COMPRESS_RUNNING,
	COMPRESS_WRITING,
	COMPRESS_FITTING,
	COMPRESS_OVER,
};

struct compress_summary {
	char *text; /* owned; NULL: none */
	size_t n;
	bool stored; /* read from the store */
};

struct compress_run {
	struct exchange *x;
	enum compress_state state;
	struct compress_ask ask;
	struct auth_key *key;
	struct compress_chat *chat;
	enum compress_mode mode;
	enum compress_form form;
	int writer;            /* the model that writes summaries */
	uint32_t limit, n_ctx; /* tokens of the answering model */
	uint32_t n_before, n_trimmed, n_after;
	uint32_t n_left;    /* of n_before, about, once the last message is extracted */
	uint32_t extracted; /* paragraphs that it lost; 0: it is whole */
	uint64_t count_id;  /* of the count in progress; 0: none */
	bool counted;       /* it counts as one of its key's running requests */
	bool late;          /* the time limit has passed: no more summaries */
	size_t n_out;       /* blocks to remove */
	int n_trims;
	struct compress_summary *summaries; /* [n_out] */
	size_t block;                       /* being summarized; counts down */
	int n_blocks;                       /* handled so far */
	uint32_t room;                      /* tokens left for summaries */
	/* Of this block. */
	int tries;
	uint32_t max_tokens;
	struct cache_key name;
	struct cache_op op;
	struct subscriber sub;
	struct generation *gen;
	struct quota *quota;
	struct sl_buf text;                /* what the model wrote */
	struct compress_facts facts, said; /* of the block; of its summary */
	struct gw_timer timer;
	struct sl_buf out; /* the new prompt */
	char told[COMPRESS_TOLD_BYTES];
	compress_done *done;
	void *ctx;
};

static inline struct gw_thread *compress_thread(const struct compress_run *r) { return r->x->app->t; }

/* ---- compress_run.c ---- */

void compress_set_state(struct compress_run *r, enum compress_state to);
/* Ends the summaries: writes the prompt and counts it. */
void compress_fit(struct compress_run *r);

/* ---- compress_summary.c ---- */

/* Summarizes the first n_out blocks, the newest first, while there is room; then calls compress_fit, directly or from
 * the loop. */
void compress_summarize(struct compress_run *r);
/* Cancels the summary in progress, if any, and charges its tokens. */
void compress_summary_leave(struct compress_run *r);
/* The same after the time limit; ends with compress_fit. */
void compress_summary_late(struct compress_run *r);
/* max_tokens of a block's summary. */
uint32_t compress_summary_tokens(const struct compress_run *r, size_t block);

#endif
