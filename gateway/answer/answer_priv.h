/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of an answer's life have of each other: answer.c, answer_start.c, answer_out.c,
 * answer_log.c, answer_head.c; and gateway/resume.
 */
#ifndef GATEWAY_ANSWER_PRIV_H
#define GATEWAY_ANSWER_PRIV_H

#include "gateway/answer/answer.h"

enum {
	ANSWER_MAX_WHOLE = 64 << 20, /* also of one event: some repeat the whole answer */
	ANSWER_KEEP_CARRY = 64 << 10,
	ANSWER_RETRY_AFTER_S = 1,
	ANSWER_DRAW = 2, /* how tokens are drawn: a stored answer of another way can't be continued */
};

extern const struct api_error answer_too_large, answer_no_memory;
extern const char answer_too_large_text[], answer_no_memory_text[];

/* ---- answer.c ---- */

void answer_leave_runs(struct answer *a);
/* Its reader gets no more of them. */
void answer_drop_runs(struct answer *a);
/* whole: its reader has received everything, and its key gets the same again. */
void answer_end_key(struct answer *a, bool whole);
/* Ends it for its reader. */
void answer_finish(struct answer *a);
/* Ends it for all. */
void answer_finish_now(struct answer *a);
/* It has ended, and no exchange frees it. */
void answer_release(struct answer *a);
/* What came for its coalesced requests, which take it from their own log. */
void answer_run_alone(struct answer *a);
/* Instead of an answer. */
void answer_refuse(struct answer *a, const struct api_error *e, const char *message);
/* Only notes the failure: the caller reports it. */
void answer_set_failure(struct answer *a, const struct api_error *e, const char *message);
/* It fails, now or as its stream's last event. */
void answer_fail(struct answer *a, const struct api_error *e, const char *message);
/* There is something to send. */
void answer_notify(struct answer *a);
void answer_restart_timer(struct answer *a, uint64_t ms);
/* Submitted: bounds the wait for QUEUED. */
void answer_await_queued(struct answer *a);
void answer_on_exchange_close(struct exchange *x);
void answer_on_queued(struct subscriber *s);
void answer_on_progress(struct subscriber *s);
void answer_on_timer(struct gw_timer *timer);

/* Its limits are charged, or were: it may begin. */
void answer_admit(struct answer *a);
/* A run's prompt has so many tokens; when all are known the answer is charged. */
void answer_counted(struct answer *a, struct answer_run *run, uint32_t n_prompt);
/* What an error of the engine (enum proto_error) means as an HTTP answer. */
struct api_error answer_error_of(const struct answer *a, uint8_t error);

/* ---- answer_budget.c ---- */

/* Every prompt is counted: the most it may cost is known. */
void answer_charge(struct answer *a);
/* It has used so many tokens, and takes no more. */
void answer_budget_settle(struct answer *a, int64_t used);

/* ---- answer_start.c ---- */

/* 0, or as gen_start; SL_ENOTFOUND: none of a cascade's models can answer now. */
/* s: the frame's, with what has changed. */
int answer_submit_run(struct answer *a, struct answer_run *run, struct submit_frame *frame,
		      const struct proto_submit *s);

/* x: NULL for one that another gateway began. snapshot, key: references are taken. Takes spec->own unless it fails. */
struct answer *answer_create(struct gw_app *app, struct exchange *x, struct gw_snapshot *snapshot, struct auth_key *key,
			     const struct answer_spec *spec);
void answer_free(struct answer *a);
void answer_on_reap(struct gw_deferred *d);

/* ---- answer_out.c ---- */

/* run has been submitted: by which connection its tokens leave, and what each will touch. */
void answer_prefetch(struct answer *a, struct answer_run *run);
/* The way out is open from here on. */
void answer_open(struct answer *a);
/* Of one sent as a whole: collects what there is, and sends it when that is all. */
void answer_gather(struct answer *a);
/* It is sent as events; otherwise as a whole. */
static inline bool answer_sends_events(const struct answer *a) { return a->out.stream || a->out.log != NULL; }
/* There is more of it: send or gather. */
void answer_more(struct answer *a);

/* ---- answer_head.c ---- */

/* The head and the events from number `from` on go to the store, for another gateway to continue. */
void answer_open_spool(struct answer *a, uint64_t from);
/* Keeps what is submitted, if the answer can be continued elsewhere. */
void answer_keep_frame(struct answer *a, struct submit_frame *frame);
/* It is left for another gateway to continue, rather than ended. */
bool answer_can_be_left(const struct answer *a);
/* A run of the cascade: from here on its head is kept up to date. */
void answer_auto_watch(struct answer *a);

/* ---- answer_observe.c ---- */

/* Right after any start of run's generation. */
void answer_observe_run(struct answer *a, struct answer_run *run);
/* Its first token has come. */
void answer_observe_first(struct answer *a, const struct answer_run *run, uint64_t now_ns);
/* run's generation is about to go. */
void answer_observe_keep(struct answer_run *run);
/* Right after gen_start with s: it may be made again on another engine, later too if it can be resumed. */
void answer_remake(const struct answer *a, struct answer_run *run, struct submit_frame *frame,
		   const struct proto_submit *s);
/* Which engine its first prompt went to, and why. */
void answer_route(struct answer *a, struct observed_route *out);
/* A request is refused for load before there is an answer for it. */
void answer_observe_refused(const struct exchange *x);
/* Once, at its end for its reader. */
void answer_observe_end(struct answer *a);

/* ---- answer_log.c ---- */

/* The reply to a request without a stream. */
void answer_put_snapshot(struct answer *a);

/* 0: its exchange has become a reader of its log. */
int answer_open_log(struct answer *a);
void answer_on_pump(struct gw_deferred *d);
/* The end of a logged one was requested: what was produced so far is sent, then it ends well. */
void answer_on_stop(void *ctx);

static inline uint64_t answer_sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How often a log without readers is looked at. */
static inline uint64_t answer_glance_ms(const struct answer *a) { return a->app->t->cfg->resume.grace_ms / 4 + 1; }

#endif
