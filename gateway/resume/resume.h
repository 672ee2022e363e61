/* SPDX-License-Identifier: Apache-2.0
 *
 * The room resume: answers whose gateway has died are continued by another, and streams of other gateways are read.
 *
 *   replay_follow  reads a stream from the store; claims it when its gateway has died
 *   resume         continues the claimed answer from its stored head (answer/answer_head.c)
 *   replay_sweep   looks for unread answers of dead gateways
 *
 * An answer does not know that it is continued, but for `struct answer_continued`. Thread: the application's.
 */
#ifndef GATEWAY_RESUME_H
#define GATEWAY_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answer;
struct gw_app;
struct json_t;
struct proto_submit;
struct replay_log;
struct submit_frame;

/* A stored head, decoded; texts are json's. */
struct resume_head {
	struct json_t *json; /* owned */
	const char *owner;
	struct submit_frame *frame; /* a reference; NULL: it can't be continued */
};
/* SL_ENOMEM, SL_EPROTO. */
int resume_head_read(struct resume_head *h, const uint8_t *bytes, size_t n);
void resume_head_dispose(struct resume_head *h);

enum resume_chance { RESUME_NOW, RESUME_LATER, RESUME_NEVER };
enum resume_chance resume_chance(const struct gw_app *app, const struct resume_head *h);
/* Takes the owner's reference to log, which holds all events of the answer that the store has. An answer that can't be
 * continued ends with an event that says so. stop: its end was requested. SL_ENOMEM, SL_EPROTO: nothing is taken. */
int resume_answer(struct gw_app *app, const struct resume_head *h, struct replay_log *log, bool stop);

/* ---- resume_cascade.c; saved: the head's "cascade" ---- */

enum resume_chance resume_cascade_chance(const struct gw_app *app, const struct json_t *saved);
/* As gen_start. */
int resume_cascade_start(struct answer *a, const struct json_t *saved, const struct proto_submit *s);

#endif
