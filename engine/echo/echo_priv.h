/* SPDX-License-Identifier: Apache-2.0
 *
 * The echo engine's state (owner: echo.c) and the functions of echo_reply.c, which produce a sequence's next tokens.
 * I/O thread.
 */
#ifndef ENGINE_ECHO_PRIV_H
#define ENGINE_ECHO_PRIV_H

#include <event2/event.h>

#include "engine/echo/echo.h"
#include "engine/sched/run_slots.h"
#include "engine/echo/echo_text.h"
#include "engine/core/link.h"
#include "engine/sched/wait_limits.h"
#include "engine/core/server.h"

enum {
	ECHO_MODELS = 2,
	ECHO_MAX_SEQUENCES = 65536,
	ECHO_FRAME_TOKENS = 64,
	ECHO_FIRST_ID = 1000,
	ECHO_OWN_IDS = 1 << 24, /* of words that only the large one produces */
	ECHO_DIE_MS = 20,       /* words produced so far are sent before the process dies */
	ECHO_EXIT_DIED = 70,
	ECHO_TELL_MS = 100, /* their slots, waiting sequences */
	ECHO_TELL_MOST = 256,
};

_Static_assert((int)ECHO_FRAME_TOKENS <= (int)PROTO_MAX_TOKENS_PER_FRAME, "one frame a burst");

struct echo {
	struct eng_echo_config cfg;
	struct event_base *base;
	struct link_hub *hub;
	struct idmap seqs;
	struct proto_stats stats;
	struct proto_figures figures[ECHO_MODELS];
	uint64_t tokens_made; /* in all */
	bool dying;
	struct run_slots slots[ECHO_MODELS];
	struct wait_limits wait_limits; /* where there is a bound on what waits */
	struct event *tell;             /* NULL: none waits for a slot */
	/* In steps: the sequences that get a token in the next ones, first come first served. */
	struct list due; /* struct echo_seq */
	size_t n_due;
	struct event *step; /* NULL: every sequence for itself */
	uint64_t step_ns;   /* when the next step is due */
	bool stepping;
	char stamp[ECHO_CLOCK_BYTES + 1]; /* of this step */
};

struct echo_seq {
	struct idmap_node node; /* key: the engine-wide identifier */
	struct list in_due;
	struct run_slot slot;
	struct wait_entry wait_entry;
	uint16_t model;
	struct echo *e;
	struct event *timer;
	char *words; /* owned: the last user message */
	size_t n_words_bytes, at;
	bool round; /* the words go round */
	bool clock;
	bool prefill_only;
	bool wants_logprobs, wants_top;
	bool started; /* credit has come */
	uint32_t n_prompt, n_made, max_tokens, credit;
	uint32_t n_used;           /* of n_made: another one's tokens */
	uint8_t choice, n_choices; /* n_made is of this one */
	uint32_t n_before;         /* tokens of the choices before it */
	uint8_t first_finish;      /* how choice 0 ended; 0: it has not */
	struct echo_drives drives;
	bool given; /* VERIFIED is to be sent */
	struct proto_verified verified;
	double rate_tps;
	uint32_t burst;
	uint8_t length_why;
	uint64_t arrived_ns, started_ns, first_ns, deadline_ns;
	uint64_t made_ns; /* the engine's rate: when the next group is due */
	uint64_t pace_ns; /* the request's pace: when the next token is due, none being early */
};

/* Silence, for ever: only a cancellation or the deadline ends it. */
bool echo_hangs(const struct echo_seq *s);
/* It is to end with an error now. */
bool echo_fails(const struct echo_seq *s);
/* Its words have been produced. */
bool echo_ended(const struct echo_seq *s);
/* Another one's words (n_given): how far it agrees, and where it continues. Once, before the first token. */
void echo_take_given(struct echo_seq *s, const struct proto_submit *req, uint32_t n_begun);
/* VERIFIED, once, where tokens were given. */
void echo_tell_verified(struct echo_seq *s);
/* Says up to want tokens (ECHO_FRAME_TOKENS at most) as one event, against its credit. */
void echo_send_tokens(struct echo_seq *s, uint32_t want);

#endif
