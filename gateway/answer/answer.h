/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer: what one API request gets, from one or several generations (a list of prompts) with one or several choices
 * each. It admits, counts, renders and ends; its format (chat, completions, responses) makes the bytes. Three ways out:
 *
 *   streamed    pulled by the exchange: an event is rendered when the transport asks for bytes
 *   logged      events go into a replay log as they come; the exchange is one of its readers, and the
 *               answer continues when that leaves (resumable streams, background responses)
 *   whole       collected, one JSON text at the end
 *
 *   WAITING ──all QUEUED──► RUNNING (the 200 is out or the log open) ──► ENDED
 *      └── refused, engine lost, too slow ─────────────────────────────► ENDED (an HTTP status)
 *
 * Other requests may share its generation (answer_coalesce.c). While they do, it outlives its reader: it continues
 * alone, and is charged, until it ends or none shares it. A streamed or whole answer is freed with its exchange; a
 * logged one belongs to the application's list once its log is open, and is freed when it has ended. answer_set_state
 * owns the transitions. Thread: the exchange's. Callers: gateway/api.
 *
 *   answer_start.c   the SUBMITs; memory             answer_budget.c    quota: charged, extended, settled
 *   answer.c         admission, time limits, ends    answer_slots.c     the key's concurrency
 *   answer_out.c     streamed and whole              answer_load.c      refused, queued, displaced, cut under load
 *   answer_log.c     logged                          answer_coalesce.c  joining and superseding requests
 *   answer_render.c  tokens to events                answer_head.c      what another gateway needs to continue it
 *   answer_parts.c   reasoning, content, tool calls  answer_cascade.c   the model "auto"
 *   answer_observe.c its latencies and goodput
 *   formats          answer_chat.c, answer_completion.c, answer_response.c
 */
#ifndef GATEWAY_ANSWER_H
#define GATEWAY_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/answer/answer_load.h"
#include "gateway/answer/answer_parts.h"
#include "gateway/answer/answer_slots.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/generation/generation.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/sharing/idempotent.h"
#include "gateway/exchange/quota.h"
#include "gateway/replay/replay.h"
#include "gateway/answer/sse.h"
#include "gateway/sharing/supersede.h"
#include "gateway/sharing/coalesce.h"
#include "gateway/variant/shadow.h"

struct answer;
struct answer_choice;
struct variant;
struct json_t;
struct held_reply;
struct spool;

/* How answers of one API look. Functions append to out, streams' functions whole events; 0 or a
 * negative code. index: of the choice, over all prompts. */
struct answer_format {
	const char *id_prefix;
	const char *prompt_param; /* what the prompt's field is called */
	/* A stream's beginning, its text (with what logprob left in the choice), the end of a choice
	 * ("stop", "length"), and its last events. begin and close may be NULL. */
	int (*begin)(struct answer *a, struct sl_buf *out);
	int (*text)(struct answer *a, struct sl_buf *out, unsigned index, const char *text, size_t n);
	/* Instead of text, of an answer that is split: an item begins, gets text, ends. NULL: the format splits none.
	 */
	int (*item)(struct answer *a, struct sl_buf *out, unsigned index, const struct answer_item *item,
		    enum answer_item_event e, const char *text, size_t n);
	int (*close)(struct answer *a, struct sl_buf *out, unsigned index, const char *reason);
	int (*end)(struct answer *a, struct sl_buf *out);
	/* A stream that fails: its last event. */
	int (*error)(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message);
	/* What keeps a silent stream open; NULL: a comment of an event stream. */
	int (*ping)(struct answer *a, struct sl_buf *out);
	/* The answer that is not streamed. */
	int (*whole)(struct answer *a, struct sl_buf *out);
	/* One token's log probabilities, appended to c->logprobs in the format's own form. */
	int (*logprob)(struct answer *a, struct answer_choice *c, const struct gen_token *t);
	/* A logged answer's state as JSON, when its log opens and when it ends. May be NULL. */
	int (*snapshot)(struct answer *a, struct sl_buf *out);
	/* Everything is produced, and the end is about to be sent: what must happen before, such as storing it.
	 * True: nothing; otherwise answer_settled follows. May be NULL. */
	bool (*settle)(struct answer *a);
	/* A logged answer's log is open. May be NULL. */
	void (*opened)(struct answer *a);
	void (*dispose)(void *own); /* may be NULL when there is no own */
	/* For another gateway that continues a logged one: own as JSON, a new reference, and back; NULL: no
	 * memory. The number of the next event. May all be NULL where there is no own and nothing is numbered. */
	struct json_t *(*save)(const struct answer *a);
	void *(*restore)(const struct json_t *saved);
	void (*renumber)(struct answer *a, uint64_t next);
};

/* Log probabilities: lists not yet sent, and behind them, where text is kept, the first list of those that were. */
enum {
	ANSWER_LISTS = 4,
	ANSWER_SENT = ANSWER_LISTS,
	ANSWER_ALL_LISTS,
	ANSWER_MAX_RUNS = 128,
	ANSWER_MAX_CHOICES = 128,
	ANSWER_ID_BYTES = 64,
	ANSWER_MAX_EXTRAS = 1 << 20, /* token_ids and stop_reason of one event */
};

struct answer_choice {
	bool closed;
	uint32_t n_characters; /* of its text; counted for log probabilities only */
	uint32_t n_tokens;     /* sent */
	const char *reason;    /* once closed */
	uint8_t stop;          /* enum proto_stop: what of the request ended it */
	uint32_t stop_at;      /* which stop string, or the token's id */
	struct sl_buf ids;     /* of its tokens, JSON without brackets: as logprobs; empty unless they are wanted */
	const char *ended_by;  /* "deadline", "budget", "load", "superseded"; NULL: none of them */
	struct sl_buf text;    /* all of it, where that is kept and the answer is not split */
	struct answer_parts *parts; /* of an answer that is split, once it has begun; owned */
	struct sl_buf *logprobs;    /* [ANSWER_ALL_LISTS], not yet sent; of a whole answer all; not to
				     * be written to unless they are wanted */
};

enum answer_state { ANSWER_WAITING, ANSWER_RUNNING, ANSWER_ENDED };
enum answer_stage { ANSWER_BEGIN, ANSWER_CHOICES, ANSWER_SETTLE, ANSWER_END, ANSWER_OVER };
enum answer_end { ANSWER_UNDECIDED, ANSWER_DONE, ANSWER_STOPPED, ANSWER_FAILED };

/* What a run's generation has told once it is gone: answer_observe.c. */
struct answer_told {
	bool done; /* the engine's DONE, with its times */
	uint32_t queue_us, prefill_us, decode_us, n_drafted, n_accepted;
	struct observed_gaps gaps;
	struct route_choice route; /* n_candidates 0: unknown */
	struct prefill_choice prefill;
	struct hedge_told hedge;
	unsigned n_remade;
};

/* One prompt's generation. */
struct answer_run {
	struct subscriber sub;
	struct generation *gen; /* NULL: late, not submitted, or released */
	struct answer *answer;
	struct cascade_run *cascade; /* a reference; NULL: one model answers */
	bool queued, begun;          /* queued: its prompt is counted; begun: some of it was sent */
	bool placed, late;           /* it holds places of its key; late: it is yet to be submitted (answer_slots.h) */
	bool prompt_lost;            /* its prompt's log probabilities did not fit into memory */
	bool keeps_cached;           /* usage.n_cached is not the generation's: another gateway reported it first */
	uint32_t n_prompt;           /* tokens, once it is queued */
	uint64_t count_id;           /* of a late one while it is counted; 0: it is not */
	uint64_t held_ns;            /* since when a token waits for others; 0: none does */
	struct sl_buf prompt;        /* its log probabilities, JSON without brackets */
	struct sse_usage usage;      /* as far as it is known */
	struct answer_told told;
};

/* What is asked for. Borrowed for the call, but for own. */
struct answer_spec {
	const struct answer_format *format;
	void *own;      /* the format's, owned by the answer in any case */
	const char *id; /* NULL: it gets one; else shorter than ANSWER_ID_BYTES, with the format's prefix */
	int model;      /* from answer_choose_model; ANSWER_AUTO: the cascade */
	bool stream, include_usage, obfuscate;
	bool logged;     /* a replay log, if there is room for one */
	bool ids;        /* the first reader gets id lines */
	bool background; /* logged; continues without readers; not streamed: the snapshot is the answer */
	bool keep_text;  /* in the choices, also when streamed */
	bool has_max_tokens, has_seed;
	uint32_t max_tokens;
	bool token_ids, tokens_as_ids;     /* as in request_common */
	const char *constraint;            /* the field that constrains it, a literal; NULL: none */
	const struct proto_submit *submit; /* sampling */
	const struct answer_prompt {       /* [n_prompts], each a run */
		uint8_t kind;
		struct proto_str text;
	} * prompts;
	int n_prompts;
	/* Whose it is and what it belongs to, for coalesced requests and newer prompts: borrowed for the call. */
	const char *user;                          /* NULL: the key's only */
	const char *conversation;                  /* NULL: not named */
	const struct supersede_messages *messages; /* NULL: unknown */
	const char *members; /* more members of the answer's "sluice", as JSON; NULL: none. Borrowed for the call */
	struct answer_split *split; /* owned by the answer in any case; NULL: its text is not split */
};

/* Why it failed. */
struct answer_failure {
	struct api_error error; /* its strings are literals */
	char message[];
};

/* How it reaches its readers: answer_out.c, answer_log.c, answer_render.c. */
struct answer_out {
	bool stream, include_usage, obfuscate, ids, keep_text, wants_logprobs;
	bool token_ids, tokens_as_ids;
	bool logged, background;
	bool spooled;            /* its spool writes it, or was to */
	bool replaying;          /* continued, and not yet where the other gateway was */
	bool stop_later;         /* its end was requested while it was replaying */
	bool waits;              /* the timer is set for a token that is not due yet */
	uint64_t pace_ns;        /* when the next token is due, if its tier is paced */
	uint64_t moved_ns;       /* its reader took something last */
	struct replay_log *log;  /* while it is written */
	struct spool *spool;     /* writes it to the store, too; NULL: nothing does */
	struct held_reply *held; /* to the request that began it in the background; NULL: sent, or there is none */
	struct sse_stream sse;   /* chat and completions */
	struct sl_buf carry;     /* rendered, not yet pulled or logged */
};

/* Which requests get the same answer, and what ends it for a newer one: answer_coalesce.c. */
struct answer_sharing {
	bool coalesced;                /* it reads the generation of another answer, which pays for it */
	bool released;                 /* its run continues, but not for its reader */
	bool alone;                    /* its reader has got all there will be; it pays for the requests that joined */
	bool superseded;               /* ended by a newer prompt */
	struct idempotent *idempotent; /* NULL: it has no key, or that is settled */
	struct token_log *lead;        /* until its run writes it; a reference */
	struct supersede_prompt *prompt; /* NULL: nothing newer will end it */
};

/* Tokens of its key's quota: answer_budget.c. */
struct answer_budget {
	bool capped;         /* it has used all it may */
	bool extending;      /* more are being asked for */
	int64_t left;        /* it may still produce so many; INT64_MAX: no limit */
	int64_t short_by;    /* it would be granted so many more if there were any */
	uint64_t sent;       /* sent, of all choices */
	struct quota *quota; /* NULL: nothing is reserved */
};

/* What is observed at its end: answer_observe.c. */
struct answer_seen {
	char request_id[EXCHANGE_ID_BYTES]; /* "": it had no request */
	struct trace *trace;                /* owned; NULL: none */
	uint64_t submitted_ns;              /* its first run */
	int status;                         /* of an error's reply; 0: none was sent */
	bool elsewhere;                     /* another gateway continues and observes it */
	enum latency_cached cached;         /* of its prompt, when its first token came */
};

/* Of an answer that another gateway began (gateway/resume): what follows the events that its readers have already. */
struct answer_continued {
	void (*rendered)(struct answer *a); /* more is in out.carry: removes what readers have */
	void (*failing)(struct answer *a);  /* the events that follow are new */
	bool has_ticket;
	struct quota_ticket ticket; /* of what the other gateway reserved */
};

struct answer {
	/* Of each event. */
	struct gw_app *app;
	struct exchange *x; /* NULL: it has no request any more */
	const struct answer_format *format;
	enum answer_state state;
	enum answer_stage stage;
	enum answer_end end;
	bool settling, settled;
	bool unkept;       /* settled, but not stored: a repeated request can't get it */
	bool automatic;    /* of the model "auto": a cascade */
	bool wants_notice; /* of a degradation */
	uint8_t n;         /* choices of a run */
	uint8_t n_made;    /* the same, with those that are not sent */
	int n_runs, n_queued, turn;
	struct answer_run *runs;
	struct answer_choice *choices;      /* [n_runs · n] */
	struct answer_continued *continued; /* owned; another gateway began it; NULL: none did */
	uint64_t token_ns;                  /* its last token came; 0: none has */
	uint64_t first_token_ns;
	struct answer_budget budget;
	struct answer_sharing sharing;
	struct answer_out out;
	/* Now and then. */
	void *own;
	struct gw_timer timer;
	struct answer_load load;   /* what load does to it: answer_load.c */
	struct answer_slots slots; /* of its key's concurrency: answer_slots.c */
	struct answer_seen seen;
	struct gw_snapshot *snapshot; /* the configuration it began with; counted */
	struct auth_key *key;         /* of snapshot, or counted */
	struct submit_frame *frame;   /* counted; of one that others may continue, until its log is open; NULL */
	struct list in_app;           /* logged, or alone */
	struct list in_all;
	struct gw_deferred pump, reap;
	uint64_t started_ns, admitted_ns; /* the request was complete; it was admitted */
	int64_t created;
	uint32_t max_tokens, n_ctx;    /* n_ctx: the model's, prompt and answer */
	uint32_t asked_tokens;         /* the requested max_tokens; 0: none */
	char *model;                   /* its name, or that of its variants; owned */
	const struct variant *variant; /* of snapshot; NULL: the model has none, or load has put another in its place */
	uint64_t variant_user;         /* as its exchange has it */
	struct shadow_ask shadow;      /* a copy that begins at its end */
	struct answer_failure *failure; /* owned; NULL: it has not failed, or there was no memory for the reason */
	char *members;                  /* owned; as in its spec */
	struct answer_split *split;     /* owned; NULL: its text is not split */
	const char *constraint;         /* as in its spec */
	bool constrained;               /* the engine may compile a constraint before it replies */
	struct answer_stops *stops;     /* owned; NULL: none */
	struct sl_buf cascade_text;     /* what answer_auto_about returned last */
	char id[ANSWER_ID_BYTES];
};

/* FAILED: what it fails with, and in words. Never NULL. */
const struct api_error *answer_error(const struct answer *a);
const char *answer_error_text(const struct answer *a);
/* Makes and submits it, or answers x with an error. */
void answer_start(struct exchange *x, const struct answer_spec *spec);
/* All fail, with the streams' last event or an HTTP status: their time is over. */
void answers_break_off(struct gw_app *app);
/* An administrator ends one of this thread's answers, for all that read it. False: there is none of that id, or it has
 * ended. */
bool answers_cancel(struct gw_app *app, const char *id);
/* Ends all answers without a request: the application stops. */
void answers_stop(struct gw_app *app);

/* A token's time has not come: look again in so long. */
void answer_wait(struct answer *a, uint64_t ns);
/* It may send no more tokens: open choices end with "length". */
void answer_cap(struct answer *a);
/* Asks for more tokens of its key's daily quota; sending continues when they are granted. */
void answer_extend(struct answer *a);
/* It has sent all it may: it is capped, unless more may be granted. */
void answer_out_of_tokens(struct answer *a);
/* The format has done what must happen before the end is sent. */
void answer_settled(struct answer *a);
/* From opened: the reply to a request for the background waits for answer_begun, which sends it, or (well false)
 * refuses it and stops the answer. False: no request waits. */
bool answer_await(struct answer *a);
void answer_begun(struct answer *a, bool well);
struct sse_usage answer_usage(const struct answer *a);
/* Why its first choice that was cut short was: as choices have it. */
const char *answer_ended_by(const struct answer *a);
/* Its own metadata, sent with the end of choice `index` or for the whole (ANSWER_ALL). Borrowed until the next call. */
struct sse_about answer_about(struct answer *a, unsigned index);
unsigned answer_n_choices(const struct answer *a);

/* Does run still have something for the reader? */
static inline bool answer_live(const struct answer_run *run)
{
	return run->gen != NULL && !run->answer->sharing.released;
}

/* The connection on which its tokens are sent at once; 0: none. A logged answer writes its log first. */
static inline uint32_t answer_lane(const struct answer *a)
{
	return a->out.logged || a->x == NULL ? 0 : http_conn_number(a->x->stream);
}

/* ---- answer_coalesce.c ---- */

/* Could this request join another's generation? */
bool answer_may_join(const struct auth_key *key, const struct answer_spec *spec);
/* 1: it joins a generation in flight. 0: it is to be submitted, as frame, and others may join it (lead).
 * SL_ERANGE: it repeats a request whose answer is gone. Answers that it supersedes are asked to end. */
int answer_share(struct answer *a, const struct answer_spec *spec, const struct submit_frame *frame);
/* No request joins it and no newer prompt ends it any more. */
void answer_unshare(struct answer *a);
/* Does its run continue for others? */
bool answer_is_coalesced(const struct answer *a);
/* A newer prompt has come (answer.c). */
void answer_supersede(struct answer *a);

/* ---- answer_render.c ---- */

/* The next events into out: 1; none at the moment: 0 (stage OVER: never again); negative. */
int answer_render(struct answer *a, struct sl_buf *out);
/* Takes what there is into the choices. 1: all is there and settled; 0: not yet; negative. */
int answer_collect(struct answer *a);

/* ---- answer_logprobs.c ---- */

/* {"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]} with a comma before it unless list is empty;
 * chat's and responses' form. */
int answer_put_logprob(const struct answer *a, struct sl_buf *list, const struct gen_token *t);
/* How log probabilities name a token: its text (as answer_put_piece), or "token_id:N". */
int answer_put_name(const struct answer *a, struct sl_buf *out, uint32_t id, struct proto_str piece, bool hex);
/* A token's bytes as text: what is no character becomes U+FFFD, or \xNN as the old API has it. */
int answer_put_piece(struct sl_buf *out, struct proto_str piece, bool hex);
/* JSON knows no infinity. */
int answer_put_number(struct sl_buf *out, float logprob);

/* ---- answer_extras.c: beyond OpenAI's API, as vLLM has it ---- */

/* The request's stop strings, copied. False: no memory. */
bool answer_keep_stops(struct answer *a, const struct proto_submit *s);
/* What ended choice index, once it has. */
void answer_note_stop(struct answer *a, struct answer_run *run, unsigned index, uint8_t i);
/* Which stop string of the request ended the choice, borrowed. False: none. */
bool answer_stop_string(const struct answer *a, const struct answer_choice *c, struct proto_str *out);
/* A token of the choice, where ids are wanted. */
int answer_take_id(struct answer *a, struct answer_choice *c, uint32_t id);
/* Appends `,"token_ids":[…]` where they are wanted; with ended, `,"stop_reason":…` where something of the request ended
 * it. */
int answer_put_extras(const struct answer *a, const struct answer_choice *c, bool ended, struct sl_buf *out);
void answer_on_prompt(struct subscriber *s, const struct proto_prompt_logprobs *m);
/* Appends `,"prompt_logprobs":[…]` where they were asked for. SL_ELIMIT: they did not fit. */
int answer_put_prompt(const struct answer *a, const struct answer_run *run, struct sl_buf *out);

/* ---- answer_model.c ---- */

/* The model's index, or ANSWER_AUTO, or -1 with x answered. "default": as configured. A name that has variants: that of
 * the variant of this user (NULL: not given), which is then x's. */
int answer_choose_model(struct exchange *x, const char *name, const char *user);
/* Of those that do one of `does` (enum proto_does); "default": of embeddings and scores the first. */
int answer_choose_model_for(struct exchange *x, const char *name, unsigned does);

/* ---- answer_chunks.c: what chat and completions share, as an answer_format has it ---- */

/* logprobs_of: the choice's log probabilities as a JSON text. */
int answer_chunk_text(struct answer *a, struct sl_buf *out, unsigned index, const char *text, size_t n,
		      int (*logprobs_of)(const struct answer_choice *c, struct sl_buf *out));
int answer_chunk_close(struct answer *a, struct sl_buf *out, unsigned index, const char *reason);
int answer_chunk_end(struct answer *a, struct sl_buf *out);
int answer_chunk_error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message);
/* All of it as one object. put_choice: the choice's JSON, with a comma before all but the first. */
int answer_chunk_whole(struct answer *a, struct sl_buf *out, const char *object,
		       int (*put_choice)(struct answer *a, struct sl_buf *out, unsigned index));

/* ---- answer_*.c ---- */

extern const struct answer_format answer_chat, answer_completion;
/* What completions begin with when asked to echo. own of answer_completion; NULL: nothing. */
struct answer_echo {
	int n_prompts;
	struct sl_buf *prompts; /* [n_prompts], owned */
};

#endif
