/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of an answer's life have of each other: answer.c, answer_start.c, answer_out.c,
 * answer_log.c.
 */
#ifndef GATEWAY_ANSWER_PRIV_H
#define GATEWAY_ANSWER_PRIV_H

#include "gateway/answer.h"

enum {
	ANSWER_MAX_WHOLE = 64 << 20, /* also of one event: there are those that tell all again */
	ANSWER_KEEP_CARRY = 64 << 10,
	ANSWER_RETRY_AFTER_S = 1,
};

extern const struct api_error answer_too_large, answer_no_memory;
extern const char answer_too_large_text[], answer_no_memory_text[];

/* ---- answer.c ---- */

void answer_leave_runs(struct answer *a);
/* Its reader gets no more of them. */
void answer_drop_runs(struct answer *a);
/* Its reader has got all: it can be had again by its key. Or not all, and then not. */
void answer_end_key(struct answer *a, bool whole);
/* Nothing more will come of it for its reader, and nobody need be told. */
void answer_finish(struct answer *a);
/* The same, for anybody. */
void answer_finish_now(struct answer *a);
/* It has ended, and no exchange frees it. */
void answer_let_go(struct answer *a);
/* What came for its twins, which take it from their own log. */
void answer_go_on_alone(struct answer *a);
/* Instead of an answer. */
void answer_refuse(struct answer *a, const struct api_error *e, const char *message);
/* It fails, now or as its stream's last event. */
void answer_fail(struct answer *a, const struct api_error *e, const char *message);
/* There is something to tell. */
void answer_tell(struct answer *a);
void answer_restart_timer(struct answer *a, uint64_t ms);
void answer_on_exchange_close(struct exchange *x);
void answer_on_queued(struct subscriber *s);
void answer_on_progress(struct subscriber *s);
void answer_on_timer(struct gw_timer *timer);

/* ---- answer_start.c ---- */

void answer_free(struct answer *a);
void answer_on_reap(struct gw_deferred *d);

/* ---- answer_out.c ---- */

/* The way out is open from here on. */
void answer_open(struct answer *a);
/* Of one that is told as a whole: what there is, and all of it if that is all. */
void answer_gather(struct answer *a);

/* ---- answer_log.c ---- */

/* 0: it goes on by itself, and its exchange reads the log. */
int answer_open_log(struct answer *a);
void answer_on_pump(struct gw_deferred *d);
/* Somebody asks for the end of one that is logged: what was made up to now is told, then it ends well. */
void answer_on_stop(void *ctx);

static inline uint64_t answer_sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How often a log without readers is looked at. */
static inline uint64_t answer_glance_ms(const struct answer *a) { return a->app->t->cfg->resume.grace_ms / 4 + 1; }

#endif
