/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a run have of each other: cascade_start.c, cascade_run.c, cascade_side.c, cascade_feed.c,
 * cascade_report.c.
 */
#ifndef GATEWAY_CASCADE_RUN_PRIV_H
#define GATEWAY_CASCADE_RUN_PRIV_H

#include "cascade/cascade.h"
#include "gateway/cascade/cascade_queue.h"
#include "gateway/cascade/cascade_run.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/submit_frame.h"

enum { CASCADE_MAX_TRACE = 4096, CASCADE_ID_BYTES = 64 };

/* One model's part. */
struct cascade_side {
	struct cascade_run *run;
	uint64_t id;       /* of its sequence on the link; 0: it has none, or it has ended */
	int model;         /* -1: there is no such model */
	bool queued;       /* its QUEUED has come */
	bool verifying;    /* its VERIFIED is still to come */
	uint32_t credited; /* tokens it may make, and has made */
	uint32_t made;
	uint32_t most;    /* tokens it may release; UINT32_MAX: as many as the engine allows */
	uint32_t n_ready; /* of the queue: ready for release */
	uint32_t n_told;
	uint32_t *told_by; /* [run->n_choices] owned: of each choice; NULL where there is one */
	uint32_t n_prompt, lost_prompt;
	struct cascade_queue queue;
	struct proto_done done; /* once it has ended; its message is in run->message */
	char name[PROTO_MAX_NAME + 1];
};

struct cascade_run {
	int refs;
	struct gw_thread *t;
	struct generation *gen;       /* NULL: it was left, or has its end */
	struct gw_snapshot *snapshot; /* the configuration it began with; counted */
	struct cascade_tier *tier;
	struct cascade_log *log; /* NULL: none */
	struct casc casc;
	struct cascade_side small, large;
	struct gw_timer timer;
	uint64_t due_ms; /* that the timer is set for; 0: it is not */
	bool busy;       /* in the middle of an event */
	bool over;       /* END was delivered, or there is no generation */
	bool booked, paused, verifiable;
	bool small_failed, large_failed; /* to be reported to the state machine */
	uint8_t n_choices;
	/* What others need to decide the same (cascade/again.c): stored by the caller (note). */
	struct casc_past past;
	uint8_t known;   /* facts that it began with: it is another one's run again */
	bool left_out;   /* the large one of a race that it is known to lose */
	bool saving;     /* nothing is released until the decision is stored */
	bool ends_later; /* with end_how, then */
	uint32_t end_how;
	bool (*note)(void *ctx);
	void *note_ctx;
	bool tells_degraded, tells_disagreement;
	uint32_t disagreed_at;
	uint32_t room; /* tokens that the generation wants in all */
	uint32_t max_tokens;
	uint32_t lane; /* as asked for */
	bool is_queued;
	struct proto_queued queued; /* as the generation got it first */
	struct proto_submit submit; /* what is asked; borrows from frame */
	struct submit_frame *frame; /* counted; while it may be submitted again */
	struct sl_buf ids;          /* the small model's tokens, u32, while they may be a draft */
	struct sl_buf kept;         /* their text that was shown, where tokens can't be given */
	char *message;              /* owned: of the last failure */
	/* For reports afterwards. */
	float score;
	uint64_t started_ns, submitted_ns, first_ns, shown_ns; /* first_ns: the first token of any model */
	uint64_t decided_ns;            /* the end of the small model's hold; 0: not held, or not yet at its end */
	struct casc_features *features; /* owned; NULL: not logged */
	float *trace;                   /* owned, [CASCADE_MAX_TRACE]; NULL: not logged */
	uint32_t n_trace;
	char id_text[CASCADE_ID_BYTES];
};

extern const char cascade_run_gone[];

/* ---- cascade_run.c ---- */

extern const struct link_listener cascade_side_listener; /* its ctx is the side */
extern const struct gen_source cascade_run_source;       /* its ctx is the run */

/* Around each event. */
void cascade_run_begin(struct cascade_run *r);
void cascade_run_end(struct cascade_run *r);
/* What the machine has decided. */
void cascade_run_carry_out(struct cascade_run *r, const struct casc_actions *out);
/* False: it can't come now. */
bool cascade_run_step(struct cascade_run *r, struct casc_event *e);
bool cascade_run_is_watched(const struct cascade_run *r);
void cascade_run_on_timer(struct gw_timer *timer);

/* ---- cascade_side.c ---- */

/* Its sequence is cancelled; nothing more is heard of it. */
void cascade_side_forget(struct cascade_side *s);
/* The same for both. hold: released when the first of them is done; NULL allowed. */
void cascade_sides_close(struct cascade_run *r, struct http_hold *hold);
/* It has failed: reported to the state machine at the end of the event. message: copied. */
void cascade_side_set_failed(struct cascade_side *s, uint8_t error, const char *message, size_t n);
void cascade_side_fail(struct cascade_side *s, uint8_t error, const char *message);
/* A sequence for it. Of the large one: n_given tokens of the small one to check, of which n_keep stay; where none are
 * given it continues behind the text of those. If it can't start, the reason becomes its failure. */
void cascade_side_submit(struct cascade_side *side, uint32_t n_given, uint32_t n_keep);
/* The credit that it should have now. */
void cascade_side_give(struct cascade_side *s);

/* ---- cascade_feed.c ---- */

/* What has been released goes to the generation. */
void cascade_feed_flush(struct cascade_run *r);
/* The end, by how the machine ended (enum casc_end); or the failure of s. */
void cascade_feed_end(struct cascade_run *r, uint32_t how);
void cascade_feed_failed(struct cascade_run *r, const struct cascade_side *s);

/* ---- cascade_report.c ---- */

/* It is at its end: counts it and logs its outcome. Once. */
void cascade_run_book(struct cascade_run *r);

#endif
