/* SPDX-License-Identifier: Apache-2.0
 *
 * A generation: one run of a model (or of a cascade of them: cascade_run.h) with an ordered log of what it
 * produced. HTTP streams do not own generations; they subscribe to them, each with
 * its own cursor. A generation whose last subscriber has left is cancelled in the engine.
 *
 * States, moved only by gen_set_state:
 *   SUBMITTED → QUEUED → RUNNING → FINISHED
 *        └─────────┴────────┴────→ FAILED      (a DONE with an error, a lost engine, a timeout)
 *        └─────────┴────────┴────→ CANCELLED   (the last subscriber left)
 * QUEUED is where admission decides: subscribers are told, and the first gen_admit gives credit.
 *
 * The log holds the text and one record a token. It is dropped behind the slowest subscriber when
 * nothing else needs it (replay will), and credit is given to the engine as the slowest subscriber
 * advances, so a slow reader costs `window_tokens` of memory and no batch slot.
 *
 * One that is shared (gen_share) tells a second log, which any thread reads (shared_log.h); generations
 * that read it (gen_join) are like others to their subscribers. So are those that a source feeds
 * (gen_start_fed).
 */
#ifndef GATEWAY_GENERATION_H
#define GATEWAY_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/proto/proto.h"
#include "gateway/loop/prefetch.h"
#include "gateway/transport/http.h"
#include "gateway/loop/thread.h"
#include "gateway/generation/shared_log.h"

enum gen_state { GEN_SUBMITTED, GEN_QUEUED, GEN_RUNNING, GEN_FINISHED, GEN_FAILED, GEN_CANCELLED };

struct generation;
struct link_listener;

/* A reader of a generation. Embedded in its owner (a chat response); on_* are called on the
 * generation's home thread and may unsubscribe. */
struct subscriber {
	struct list node;
	struct generation *gen; /* NULL when not subscribed */
	uint64_t next_token;    /* cursor: index of the next token it wants */
	/* Prompt counted, place known: admit or leave. Called once. */
	void (*on_queued)(struct subscriber *s);
	/* There is something new behind the cursor, or the state is final. */
	void (*on_progress)(struct subscriber *s);
};

/* What the log says of a run of tokens of one choice. Borrowed until the next call on the generation. */
struct gen_chunk {
	uint64_t first_token;
	uint32_t n_tokens;
	uint8_t choice;
	const char *text;
	size_t n_bytes;
};

/* One token, with what was asked for: its logarithm of probability (NaN: not asked), its bytes and
 * then those of its n_top likeliest rivals (proto_piece_next takes them). */
struct gen_token {
	uint32_t id;
	float logprob;
	size_t n_bytes; /* of the text released with it */
	struct proto_str pieces;
	const struct proto_id_f32 *tops;
	uint8_t n_top;
};

/* Submits to the thread's engine link and subscribes `first`. SL_ECLOSED: no engine; SL_ELIMIT. */
int gen_start(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens, struct subscriber *first,
	      struct generation **out);
/* Right after gen_start: what it says is told together with others of that lane (engine_link_lane). */
void gen_lane(struct generation *g, uint32_t lane);
/* What its subscribers will touch with each of its tokens, to add to. */
struct prefetch_hints *gen_prefetch(struct generation *g);
/* Right after gen_start: what comes of it is told to log, which it becomes the owner of; a reference is
 * taken. While others read it the engine is held to the pace of the fastest of all. */
void gen_share(struct generation *g, struct shared_log *log);
/* One without a sequence of its own: what is told to log, from its beginning. req: as that was
 * submitted. SL_ERANGE: log can't be joined any more; SL_ENOMEM. */
int gen_join(struct gw_thread *t, struct shared_log *log, const struct proto_submit *req, uint32_t window_tokens,
	     struct subscriber *first, struct generation **out);
/* What feeds a generation that has no sequence of its own, by gen_told. */
struct gen_source {
	void (*credit)(void *ctx, uint32_t n_tokens); /* it wants so many more tokens; feed nothing from here */
	/* Nobody wants anything more; feed nothing from here on. Takes hold (NULL: none): it is released when the
	 * engine is done. Not called after gen_told.on_done; may be called from within the others. */
	void (*leave)(void *ctx, struct http_hold *hold);
};
/* What the source tells: ctx is the generation. Not on_verified. */
extern const struct link_listener gen_told;
/* SL_ENOMEM. */
int gen_start_fed(struct gw_thread *t, const struct proto_submit *req, uint32_t window_tokens,
		  const struct gen_source *source, void *ctx, struct subscriber *first, struct generation **out);
/* Others read what it tells. */
bool gen_is_shared_by_others(const struct generation *g);
/* From now on its own subscribers don't set the pace. They are told when the last coalesced request has left. */
void gen_follow_twins(struct generation *g);
/* The last subscriber is about to leave one that goes on: its coalesced requests end in that way. */
void gen_end_shared(struct generation *g, enum proto_finish finish);
/* Takes hold (NULL allowed): released when the engine is done with the generation, however it ends. */
void gen_hold(struct generation *g, struct http_hold *hold);
/* Takes it back: NULL when there is none (any more). */
struct http_hold *gen_take_hold(struct generation *g);
void gen_subscribe(struct generation *g, struct subscriber *s, uint64_t from_token);
/* The last one to leave an unfinished generation cancels it. The generation frees itself at the end
 * of the turn in which it has no subscriber. */
void gen_unsubscribe(struct subscriber *s);
/* After on_queued: gives the engine its first credit. */
void gen_admit(struct generation *g);
/* Once in a process, before the first gen_start. */
void gen_metrics_register(void);

enum gen_state gen_state(const struct generation *g);
/* As it was told last: a place and a prediction may be told again while it waits. */
const struct proto_queued *gen_queued(const struct generation *g);
uint64_t gen_queued_ns(const struct generation *g); /* when */
/* Valid in FINISHED and FAILED. */
const struct proto_done *gen_done(const struct generation *g);
uint64_t gen_n_tokens(const struct generation *g); /* produced so far */
/* What its sequence draws by; of one that joined another once it is QUEUED. */
uint64_t gen_seed(const struct generation *g);

/* The next run of whole tokens at s->next_token, at most max_tokens, all of one choice. False: nothing
 * there. Does not move the cursor. */
bool gen_peek(const struct generation *g, const struct subscriber *s, uint32_t max_tokens, struct gen_chunk *out);
/* Token `index`, which a chunk has just told of. */
void gen_token_at(const struct generation *g, uint64_t index, struct gen_token *out);
/* Why choice i ended, once it has and s is past its last token; 0 before. */
enum proto_finish gen_choice_end(const struct generation *g, const struct subscriber *s, uint8_t i);
/* Of one that ended with PROTO_FINISH_LENGTH. */
enum proto_length_why gen_choice_why(const struct generation *g, uint8_t i);
/* Moves the cursor past n tokens: they have left (or are about to), credit may follow. */
void gen_advance(struct subscriber *s, uint32_t n_tokens);

#endif
