/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by cascade_start.c, cascade_run.c, cascade_side.c, cascade_feed.c and cascade_report.c.
 */
#ifndef GATEWAY_CASCADE_RUN_PRIV_H
#define GATEWAY_CASCADE_RUN_PRIV_H

#include "cascade/cascade.h"
#include "gateway/cascade/cascade_queue.h"
#include "gateway/cascade/cascade_run.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/submit_frame.h"

enum { CASCADE_MAX_TRACE = 4096, CASCADE_ID_BYTES = 64 };

/* One model of a run. */
struct cascade_side {
	struct cascade_run *run;
	uint64_t id;       /* of its sequence on the link; 0: none, or ended */
	int model;         /* -1: none */
	bool queued;       /* QUEUED has arrived */
	bool verifying;    /* VERIFIED has not arrived yet */
	uint32_t credited; /* tokens it may make, and has made: `made` */
	uint32_t made;
	uint32_t most;     /* tokens until the answer's max_tokens; UINT32_MAX: the engine counts */
	uint32_t n_ready;  /* queued tokens that are released, but not yet delivered */
	uint32_t n_sent;   /* delivered to the generation */
	uint32_t *sent_by; /* [run->n_choices], owned: the same for each choice; NULL: one choice */
	uint32_t n_prompt, lost_prompt;
	bool estimates;    /* an upstream's: n_prompt is an estimate until DONE */
	uint32_t n_behind; /* of n_prompt: the small model's tokens after whose text it continues */
	struct cascade_queue queue;
	struct proto_done done; /* once it has ended; the message is in run->message */
	char name[PROTO_MAX_NAME + 1];
};

struct cascade_run {
	int refs;
	struct gw_thread *t;
	struct generation *gen;       /* NULL: all subscribers left, or it has ended */
	struct gw_snapshot *snapshot; /* the configuration it began with; counted */
	struct cascade_tier *tier;
	struct line_file *log; /* NULL: none */
	struct casc casc;
	struct cascade_side small, large;
	struct gw_timer timer;
	uint64_t due_ms; /* when the timer fires; 0: stopped */
	bool busy;       /* an event is being handled */
	bool over;       /* END was delivered, or there is no generation */
	bool booked, paused, verifiable;
	bool small_failed, large_failed; /* the state machine learns of it at the end of the event */
	uint8_t n_choices;
	/* What another gateway needs to repeat the decisions (cascade/again.c); note stores it. */
	struct casc_past past;
	uint8_t known;   /* facts of the run that this one repeats; 0: it repeats none */
	bool left_out;   /* the large model was not started in a race that it is known to lose */
	bool saving;     /* no output until the decision is stored */
	bool ends_later; /* it ends with end_how once the decision is stored */
	uint32_t end_how;
	bool (*note)(void *ctx);
	void *note_ctx;
	bool tells_degraded, tells_disagreement;
	uint32_t disagreed_at;
	uint32_t room; /* the generation's credit in all, in tokens */
	uint32_t max_tokens;
	uint32_t lane; /* as in cascade_ask */
	bool is_queued;
	struct proto_queued queued; /* the first sequence's */
	struct proto_submit submit; /* the request; borrows from frame */
	struct submit_frame *frame; /* counted; NULL: nothing more is submitted */
	struct sl_buf ids;          /* the small model's token ids, u32, while they may become a draft */
	struct sl_buf kept;         /* their shown text, if the tokenizers differ */
	char *message;              /* the last failure's; owned */
	/* For metrics and logs. */
	float score;
	uint64_t started_ns, submitted_ns, first_ns, shown_ns; /* first_ns: the first token of any model */
	uint64_t switched_ns;                                  /* the large model takes over; 0: it has not */
	uint64_t decided_ns;            /* the end of the small model's hold; 0: not held, or still held */
	struct casc_features *features; /* owned; NULL: no outcome log */
	float *trace;                   /* owned, [CASCADE_MAX_TRACE]; NULL: no outcome log */
	uint32_t n_trace;
	char id_text[CASCADE_ID_BYTES];
};

extern const char cascade_run_gone[], cascade_run_failed_before[];

/* ---- cascade_run.c ---- */

extern const struct link_listener cascade_side_listener; /* its ctx is the side */
extern const struct gen_source cascade_run_source;       /* its ctx is the run */

/* Enclose the handling of each event. */
void cascade_run_begin(struct cascade_run *r);
void cascade_run_end(struct cascade_run *r);
/* Carries out casc_step's actions. */
void cascade_run_carry_out(struct cascade_run *r, const struct casc_actions *out);
/* False: the event is impossible in this state. */
bool cascade_run_step(struct cascade_run *r, struct casc_event *e);
/* Is the small model held or watched? */
bool cascade_run_is_watched(const struct cascade_run *r);
void cascade_run_on_timer(struct gw_timer *timer);

/* ---- cascade_side.c ---- */

/* Cancels its sequence; no callback follows. */
void cascade_side_forget(struct cascade_side *s);
/* The same for both sides. hold: released when one of the sequences has ended; NULL allowed. */
void cascade_sides_close(struct cascade_run *r, struct http_hold *hold);
/* It has failed; the state machine learns of it at the end of the event. message: copied. */
void cascade_side_set_failed(struct cascade_side *s, uint8_t error, const char *message, size_t n);
/* The same, and cancels its sequence. */
void cascade_side_fail(struct cascade_side *s, uint8_t error, const char *message);
/* Submits a sequence. For the large model: n_given of the small model's tokens are verified, and the first n_keep of
 * them stay; with n_given 0, it continues after the text of n_keep tokens. If submitting fails, the side fails. */
void cascade_side_submit(struct cascade_side *side, uint32_t n_given, uint32_t n_keep);
/* Raises its credit to what it may have now. */
void cascade_side_give(struct cascade_side *s);

/* ---- cascade_feed.c ---- */

/* Delivers released tokens to the generation. */
void cascade_feed_flush(struct cascade_run *r);
/* Ends the generation: as the state machine ended (how: enum casc_end), or with the failure of s. */
void cascade_feed_end(struct cascade_run *r, uint32_t how);
void cascade_feed_failed(struct cascade_run *r, const struct cascade_side *s);

/* ---- cascade_report.c ---- */

/* It has ended: counts it and logs its outcome. Later calls do nothing. */
void cascade_run_book(struct cascade_run *r);

#endif
