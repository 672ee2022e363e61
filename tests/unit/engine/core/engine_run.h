/* SPDX-License-Identifier: Apache-2.0
 *
 * Driving engine/engine.h in tests: a collector of events that a test can wait on. It checks the
 * order of events itself: one QUEUED at most, nothing after DONE, no token beyond the credit given.
 */
#ifndef TESTS_ENGINE_RUN_H
#define TESTS_ENGINE_RUN_H

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/engine.h"
#include "tests/support/short_spins.h"

enum { RUN_WAIT_S = 600 }; /* for what never comes; beside much other work what comes may take minutes */
enum { RUN_MAX = 256, RUN_TOKENS = 2048, RUN_WIDTH = 512 };

struct answer {
	bool queued, done;
	struct proto_queued queued_as;
	struct proto_done end;
	char message[PROTO_MAX_MESSAGE + 1];
	uint32_t n_tokens, credit;
	int32_t ids[RUN_TOKENS];
	float logprobs[RUN_TOKENS];
	struct proto_id_f32 tops[RUN_TOKENS]; /* the likeliest beside each; zero: not told */
	uint32_t n_prompt_told;
	struct proto_id_f32 prompt[RUN_TOKENS], prompt_tops[RUN_TOKENS];
	uint8_t choice[RUN_TOKENS];
	uint32_t n_choices_ended;
	struct proto_choice choices[PROTO_MAX_CHOICES];
	uint32_t text_end[RUN_TOKENS]; /* of each token in text */
	char text[8 * RUN_TOKENS];
	size_t n_text;
	bool counted, verified, handed;
	struct proto_handed handed_as;
	uint16_t n_embedding;
	float embedding[RUN_WIDTH];
	struct proto_verified verified_as;
	struct proto_counted count;
};

struct run {
	struct engine *e;
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct answer *answers;       /* [RUN_MAX], by identifier */
	int states[PROTO_MAX_MODELS]; /* -1: not announced */
	char reasons[PROTO_MAX_MODELS][PROTO_MAX_MESSAGE + 1];
	uint32_t n_ctx[PROTO_MAX_MODELS];
};

static inline void run_on_event(void *ctx, const struct eng_event *ev)
{
	struct run *r = ctx;
	pthread_mutex_lock(&r->lock);
	BUG_IF(ev->id >= RUN_MAX, "event for %llu", (unsigned long long)ev->id);
	struct answer *a = &r->answers[ev->id];
	BUG_IF(ev->kind != ENG_MODEL && a->done, "an event after DONE");
	switch (ev->kind) {
	case ENG_MODEL:
		r->states[ev->u.model.index] = ev->u.model.state;
		r->n_ctx[ev->u.model.index] = ev->u.model.n_ctx;
		memcpy(r->reasons[ev->u.model.index], ev->u.model.reason.at, ev->u.model.reason.n);
		break;
	case ENG_QUEUED:
		/* Again while it waits: a newer prediction of the same. */
		BUG_IF(a->queued && (a->n_tokens > 0 || ev->u.queued.n_prompt != a->queued_as.n_prompt),
		       "QUEUED of something else, or too late");
		a->queued_as = a->queued ? a->queued_as : ev->u.queued;
		a->queued = true;
		break;
	case ENG_VERIFIED:
		BUG_IF(!a->queued || a->n_tokens > 0 || a->verified, "VERIFIED twice or too late");
		a->verified = true;
		a->verified_as = ev->u.verified;
		break;
	case ENG_TOKENS: {
		const struct proto_tokens *t = &ev->u.tokens;
		BUG_IF(!a->queued, "TOKENS before QUEUED");
		BUG_IF(a->n_tokens + t->n > a->credit, "tokens beyond the credit");
		size_t n = 0;
		for (int i = 0; i < t->n; i++) {
			a->ids[a->n_tokens] = (int32_t)t->tokens[i].id;
			a->choice[a->n_tokens] = t->choice;
			if (t->n_top > 0)
				a->tops[a->n_tokens] = t->tops[i * t->n_top];
			n += t->tokens[i].n_bytes;
			a->text_end[a->n_tokens] = (uint32_t)(a->n_text + n);
			a->logprobs[a->n_tokens++] = t->tokens[i].logprob;
		}
		BUG_IF(n != t->text.n, "n_bytes do not add up");
		if (n > 0)
			memcpy(a->text + a->n_text, t->text.at, n);
		a->n_text += n;
		break;
	}
	case ENG_DONE:
		a->done = true;
		a->end = ev->u.done;
		memcpy(a->message, ev->u.done.message.at, ev->u.done.message.n);
		break;
	case ENG_PROMPT_LOGPROBS: {
		const struct proto_prompt_logprobs *p = &ev->u.prompt_logprobs;
		BUG_IF(!a->queued || a->n_tokens > 0, "PROMPT_LOGPROBS at the wrong time");
		BUG_IF(p->first != a->n_prompt_told, "PROMPT_LOGPROBS with a gap");
		for (int i = 0; i < p->n; i++) {
			const struct proto_id_f32 *at = p->entries + i * (1 + p->n_top);
			a->prompt[a->n_prompt_told] = at[0];
			if (p->n_top > 0)
				a->prompt_tops[a->n_prompt_told] = at[1];
			a->n_prompt_told++;
		}
		break;
	}
	case ENG_EMBEDDING:
		BUG_IF(!a->queued || a->n_embedding > 0 || ev->u.embedding.n > RUN_WIDTH,
		       "an EMBEDDING twice or too wide");
		a->n_embedding = ev->u.embedding.n;
		memcpy(a->embedding, ev->u.embedding.values, a->n_embedding * sizeof(float));
		break;
	case ENG_HANDED:
		BUG_IF(a->handed || a->n_tokens > 0, "HANDED twice or too late");
		a->handed = true;
		a->handed_as = ev->u.handed;
		break;
	case ENG_CHOICE:
		BUG_IF(a->n_choices_ended == PROTO_MAX_CHOICES, "too many CHOICEs");
		a->choices[a->n_choices_ended++] = ev->u.choice;
		break;
	case ENG_COUNTED:
		a->counted = true;
		a->count = ev->u.counted;
		snprintf(a->message, sizeof a->message, "%.*s", (int)ev->u.counted.message.n, ev->u.counted.message.at);
		break;
	}
	pthread_cond_broadcast(&r->news);
	pthread_mutex_unlock(&r->lock);
}

/* Waits under the lock until cond; fails the test when it does not come. */
#define RUN_UNTIL(r, cond)                                                                \
	do {                                                                              \
		struct timespec run_ts;                                                   \
		clock_gettime(CLOCK_REALTIME, &run_ts);                                   \
		run_ts.tv_sec += RUN_WAIT_S;                                              \
		int run_rc = 0;                                                           \
		pthread_mutex_lock(&(r)->lock);                                           \
		while (!(cond) && run_rc == 0)                                            \
			run_rc = pthread_cond_timedwait(&(r)->news, &(r)->lock, &run_ts); \
		bool run_met = (cond);                                                    \
		pthread_mutex_unlock(&(r)->lock);                                         \
		assert_true(run_met);                                                     \
	} while (0)

/* on_event, which gets ctx, calls run_on_event. */
static inline int run_start_rc_with(struct run *r, const struct eng_config *cfg, eng_on_event *on_event, void *ctx)
{
	struct sl_err err = {0};
	*r = (struct run){.answers = calloc(RUN_MAX, sizeof *r->answers)};
	short_spins();
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->news, NULL);
	memset(r->states, -1, sizeof r->states);
	return engine_create(cfg, on_event, ctx, &r->e, &err);
}

static inline int run_start_rc(struct run *r, const struct eng_config *cfg)
{
	return run_start_rc_with(r, cfg, run_on_event, r);
}

/* Starts and waits until every model is READY or FAILED. */
static inline void run_start_with(struct run *r, const struct eng_config *cfg, eng_on_event *on_event, void *ctx)
{
	assert_int_equal(run_start_rc_with(r, cfg, on_event, ctx), 0);
	for (int i = 0; i < cfg->n_models; i++)
		RUN_UNTIL(r, r->states[i] > PROTO_MODEL_LOADING);
}

static inline void run_start(struct run *r, const struct eng_config *cfg) { run_start_with(r, cfg, run_on_event, r); }

/* Time stands still, ahead of the real one so that no thread waits for a moment that comes by itself, until the test
 * moves it; the request is one that is not done. Goes on with run_stop. */
static uint64_t run_clock;

static inline void run_clock_hold(void)
{
	run_clock = clock_now_ns() + 3600 * NS_PER_S;
	clock_fake(&run_clock);
}

static inline void run_clock_move(struct run *r, uint64_t id, uint64_t ms)
{
	__atomic_fetch_add(&run_clock, ms * NS_PER_MS, __ATOMIC_RELAXED);
	engine_credit(r->e, id, 0); /* wakes the step thread */
}

static inline void run_free(struct run *r)
{
	free(r->answers);
	pthread_cond_destroy(&r->news);
	pthread_mutex_destroy(&r->lock);
}

/* engine_destroy asserts that every page, sequence and counter is back. */
static inline void run_stop(struct run *r)
{
	engine_destroy(r->e);
	clock_fake(NULL);
	run_free(r);
}

static inline struct proto_submit run_plain(const char *prompt, uint32_t max_tokens)
{
	return (struct proto_submit){PROTO_SUBMIT_OFF,
				     .prompt_kind = PROTO_PROMPT_TEXT,
				     .flags = PROTO_SUBMIT_WANT_LOGPROBS,
				     .n_top_logprobs = 1,
				     .top_p = 1,
				     .seed = 7,
				     .max_tokens = max_tokens,
				     .prompt = {.at = prompt, .n = strlen(prompt)}};
}

static inline void run_submit(struct run *r, uint64_t id, const struct proto_submit *req)
{
	pthread_mutex_lock(&r->lock);
	r->answers[id] = (struct answer){0};
	pthread_mutex_unlock(&r->lock);
	assert_int_equal(engine_submit(r->e, id, req), 0);
}

/* The same where others were cancelled just before: they keep their places until their text worker has let go. */
static inline void run_submit_again(struct run *r, uint64_t id, const struct proto_submit *req)
{
	uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	int rc;
	pthread_mutex_lock(&r->lock);
	r->answers[id] = (struct answer){0};
	pthread_mutex_unlock(&r->lock);
	while ((rc = engine_submit(r->e, id, req)) == SL_ELIMIT && clock_now_ns() < until) {
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
	}
	assert_int_equal(rc, 0);
}

static inline void run_credit(struct run *r, uint64_t id, uint32_t n)
{
	pthread_mutex_lock(&r->lock);
	r->answers[id].credit += n;
	pthread_mutex_unlock(&r->lock);
	engine_credit(r->e, id, n);
}

static inline const struct answer *run_until_done(struct run *r, uint64_t id)
{
	RUN_UNTIL(r, r->answers[id].done);
	return &r->answers[id];
}

static inline const struct answer *run_one(struct run *r, uint64_t id, const struct proto_submit *req)
{
	run_submit(r, id, req);
	run_credit(r, id, req->max_tokens);
	return run_until_done(r, id);
}

/* Nothing runs or waits, every page is free and none is on the host. Pages and counters are published at the end of the
 * turn that told DONE, so this polls. */
static inline void run_until_idle(struct run *r)
{
	uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	struct proto_stats s;
	do {
		engine_stats(r->e, &s);
		if (s.running == 0 && s.waiting == 0 && s.pages_free == s.pages_total && s.swap_used == 0)
			return;
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
	} while (clock_now_ns() < until);
	fail_msg("not idle: %u run, %u wait, %u of %u pages are free", s.running, s.waiting, s.pages_free,
		 s.pages_total);
}

/* The tokens of one choice; how many. */
static inline uint32_t run_choice(const struct answer *a, uint8_t choice, int32_t *ids, float *logprobs)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < a->n_tokens; i++) {
		if (a->choice[i] != choice)
			continue;
		logprobs[n] = a->logprobs[i];
		ids[n++] = a->ids[i];
	}
	return n;
}

static inline void run_assert_same(const struct answer *a, const struct answer *b)
{
	if (a->end.finish != b->end.finish)
		print_message("finish %u, error %u: %s\n", a->end.finish, a->end.error, a->message);
	assert_int_equal(a->end.finish, b->end.finish);
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
	assert_memory_equal(a->logprobs, b->logprobs, a->n_tokens * sizeof *a->logprobs);
	assert_memory_equal(a->tops, b->tops, a->n_tokens * sizeof *a->tops);
	assert_int_equal(a->n_text, b->n_text);
	assert_memory_equal(a->text, b->text, a->n_text);
}

/* The first n choices of a are those of b, in whatever order they came. Returns the tokens of the shortest. */
static inline uint32_t run_assert_same_choices(const struct answer *a, const struct answer *b, int n)
{
	static int32_t x[RUN_TOKENS], y[RUN_TOKENS];
	static float p[RUN_TOKENS], q[RUN_TOKENS];
	uint32_t shortest = RUN_TOKENS;
	for (int i = 0; i < n; i++) {
		uint32_t n_x = run_choice(a, (uint8_t)i, x, p), n_y = run_choice(b, (uint8_t)i, y, q);
		assert_int_equal(n_x, n_y);
		assert_memory_equal(x, y, n_x * sizeof *x);
		assert_memory_equal(p, q, n_x * sizeof *p);
		shortest = n_x < shortest ? n_x : shortest;
	}
	return shortest;
}

/* n requests, made by nth, one after the other on an engine of its own; none fails. out: [n]. */
static inline void run_each_alone(const struct eng_config *cfg, int n, struct proto_submit (*nth)(int i),
				  struct answer *out)
{
	struct run r;
	run_start(&r, cfg);
	for (int i = 0; i < n; i++) {
		struct proto_submit req = nth(i);
		out[i] = *run_one(&r, (uint64_t)i + 1, &req);
		assert_int_not_equal(out[i].end.finish, PROTO_FINISH_ERROR);
	}
	run_stop(&r);
}

/* n requests at once, made by nth and spread over n_models, with pauses on the way: each ends as expected. Nothing is
 * left. */
static inline void run_crowd(struct run *r, int n_models, int n, struct proto_submit (*nth)(int i),
			     const struct answer *expect)
{
	for (int i = 0; i < n; i++) {
		struct proto_submit req = nth(i);
		req.model = (uint16_t)(i % n_models);
		run_submit(r, (uint64_t)i + 1, &req);
		run_credit(r, (uint64_t)i + 1, 3);
	}
	for (int i = 0; i < n; i++)
		run_credit(r, (uint64_t)i + 1, 1000);
	for (int i = 0; i < n; i++)
		run_assert_same(run_until_done(r, (uint64_t)i + 1), &expect[i]);
	run_until_idle(r);
}

/* Extends the n characters at `at` by sentences until they are at least `length`: from `alike` on, texts of other
 * `which` have other ones. */
static inline void run_say(char *at, size_t size, size_t n, size_t length, size_t alike, size_t which)
{
	static const char *const said[] = {"the river runs to the sea, ",
					   "tell me of foxes and of hens: ", "one two three four five, "};
	while (n < length)
		n += (size_t)snprintf(at + n, size - n, "%s", said[(n < alike ? n : n + which) % 3]);
}

#endif
