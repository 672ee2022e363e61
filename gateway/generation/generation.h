/* SPDX-License-Identifier: Apache-2.0
 *
 * A generation: one run of a model (or of a cascade of them: cascade_run.h). What it produces is in a token log
 * (token_log.h), which its subscriber reads by a cursor. HTTP streams do not own generations; they subscribe to them. A
 * generation whose subscriber has left is cancelled in the engine.
 *
 * States, moved only by gen_set_state:
 *   SUBMITTED → QUEUED → RUNNING → FINISHED
 *        └─────────┴────────┴────→ FAILED      (a DONE with an error, a lost engine, a timeout)
 *        └─────────┴────────┴────→ CANCELLED   (the subscriber left)
 * QUEUED is where admission decides: on_queued is called, and the first gen_admit gives credit. Credit follows as the
 * subscriber advances, so a slow reader costs `window_tokens` of memory and no batch slot.
 *
 * A generation comes from an engine's sequence (gen_start), from a source (gen_start_fed), or reads the shared log of
 * another (gen_share, gen_join). All are alike to their subscribers. A generation and its subscriber live on one
 * thread.
 */
#ifndef GATEWAY_GENERATION_H
#define GATEWAY_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/generation/hedge.h"
#include "gateway/generation/prefill_choice.h"
#include "gateway/generation/routing.h"
#include "gateway/generation/token_log.h"
#include "gateway/loop/prefetch.h"
#include "gateway/loop/thread.h"
#include "gateway/observe/observe.h"
#include "gateway/transport/http.h"

enum gen_state { GEN_SUBMITTED, GEN_QUEUED, GEN_RUNNING, GEN_FINISHED, GEN_FAILED, GEN_CANCELLED };

struct generation;
struct link_listener;

/* Embedded in its owner (a chat response); on_* are called on the generation's thread and may unsubscribe. */
struct subscriber {
	struct generation *gen; /* NULL when not subscribed */
	uint64_t next_token;    /* cursor: index of the next token it wants */
	/* The prompt is counted: admit or leave. Called once. */
	void (*on_queued)(struct subscriber *s);
	/* There is something new behind the cursor, or the state is final. */
	/* Log probabilities of the prompt, in order, before the first token. NULL: not wanted. */
	void (*on_prompt)(struct subscriber *s, const struct proto_prompt_logprobs *m);
	void (*on_progress)(struct subscriber *s);
};

/* Submits to the thread's engine link and subscribes `first`. SL_ECLOSED: no engine; SL_ELIMIT. */
int gen_start(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens, struct subscriber *first,
	      struct generation **out);
/* Right after gen_start with s, whose texts are the frame's: if its engine dies and another one has the model, it is
 * made again there, before its first token or, if `begun`, also later (remake.h). */
struct submit_frame;
void gen_remake(struct generation *g, struct submit_frame *frame, const struct proto_submit *s, bool begun);
/* Why it went to its engine; NULL: it has no sequence of its own. It may have been made again since: the latest. */
const struct route_choice *gen_route(const struct generation *g);
/* Where its prompt is computed, once it is admitted; made again: as it was first. */
const struct prefill_choice *gen_prefill(const struct generation *g);
unsigned gen_n_remade(const struct generation *g);
/* Right after gen_remake: it may be hedged (hedge.h), if it can be made again at any time. */
void gen_hedge(struct generation *g);
struct hedge_told gen_hedged(const struct generation *g);
/* Right after gen_start: its frames are handled together with others of that lane (engine_link_lane). */
void gen_lane(struct generation *g, uint32_t lane);
/* The caller adds the memory that its subscriber uses with each token. */
struct prefetch_hints *gen_prefetch(struct generation *g);
/* Right after any start: the gaps between its tokens count there; cells NULL: nowhere. */
void gen_observe(struct generation *g, struct latency_cells *cells);
/* Between arrivals of tokens so far, without waits for its reader. */
struct observed_gaps gen_gaps(const struct generation *g);
/* Right after gen_start: it writes log instead of one of its own; takes a reference. While log has readers, the fastest
 * of them and the subscriber paces the engine. */
void gen_share(struct generation *g, struct token_log *log);
/* Without a sequence of its own: reads log from its beginning. req: as log's writer submitted it. SL_ERANGE: log can't
 * be joined any more; SL_ENOMEM. */
int gen_join(struct gw_thread *t, struct token_log *log, const struct proto_submit *req, uint32_t window_tokens,
	     struct subscriber *first, struct generation **out);
/* Feeds a generation that has no sequence of its own, through gen_told. */
struct gen_source {
	void (*credit)(void *ctx, uint32_t n_tokens); /* n more tokens are wanted; feed nothing from here */
	/* Nothing more is wanted; feed nothing from here on. Takes hold (NULL: none): it is released when the
	 * engine is done. Not called after gen_told.on_done; may be called from within the others. */
	void (*leave)(void *ctx, struct http_hold *hold);
};
/* The source calls these, with the generation as ctx. Not on_verified. */
extern const struct link_listener gen_told;
/* SL_ENOMEM. */
int gen_start_fed(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens,
		  const struct gen_source *source, void *ctx, struct subscriber *first, struct generation **out);
/* Its log has readers. */
bool gen_is_shared_by_others(const struct generation *g);
/* From now on only readers of its log pace the engine. on_progress is called when the last of them has left. */
void gen_follow_readers(struct generation *g);
/* Before gen_unsubscribe: ends the log's readers with `finish`. */
void gen_end_shared(struct generation *g, enum proto_finish finish);
/* Takes hold (NULL allowed): released when the engine is done with the generation, however it ends. */
void gen_hold(struct generation *g, struct http_hold *hold);
/* Takes it back: NULL when there is none (any more). */
struct http_hold *gen_take_hold(struct generation *g);
/* Cancels an unfinished generation. The generation frees itself at the end of the turn. */
void gen_unsubscribe(struct subscriber *s);
/* After on_queued: gives the engine its first credit. */
void gen_admit(struct generation *g);
/* Once in a process, before the first gen_start. */
enum gen_state gen_state(const struct generation *g);
/* The latest: position and prediction may change while it waits. */
const struct proto_queued *gen_queued(const struct generation *g);
uint64_t gen_queued_ns(const struct generation *g); /* when */
/* Valid in FINISHED and FAILED. */
const struct proto_done *gen_done(const struct generation *g);
uint64_t gen_n_tokens(const struct generation *g); /* produced so far */
/* Of its sequence; known once it is QUEUED if it joined another. */
uint64_t gen_seed(const struct generation *g);

/* The next run of whole tokens at s->next_token, at most max_tokens, all of one choice. False: none.
 * Does not move the cursor. */
bool gen_peek(const struct generation *g, const struct subscriber *s, uint32_t max_tokens, struct gen_chunk *out);
/* Token `index` of the chunk that gen_peek returned last. */
void gen_token_at(const struct generation *g, uint64_t index, struct gen_token *out);
/* Why choice i ended, once it has and s is past its last token; 0 before. */
enum proto_finish gen_choice_end(const struct generation *g, const struct subscriber *s, uint8_t i);
/* Of one that ended with PROTO_FINISH_LENGTH. */
enum proto_length_why gen_choice_why(const struct generation *g, uint8_t i);
/* Of one that ended with PROTO_FINISH_STOP: what of the request ended it, and which. */
enum proto_stop gen_choice_stop(const struct generation *g, uint8_t i, uint32_t *at);
/* Moves the cursor past n tokens: they have left (or are about to), credit may follow. */
void gen_advance(struct subscriber *s, uint32_t n_tokens);

#endif
