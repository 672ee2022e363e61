/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the engine on its real loop, against an engine that the test plays on a real socket:
 * greeting, frames in every cut, malformed frames, silence, reconnecting, many sequences, bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "gateway/engine_link.h"
#include "gateway/thread.h"

enum { PATIENCE_S = 10, MAX_SEQS = 3000, BIG_BYTES = 1 << 20 };

struct rig;

/* A listener that counts, and does what the test asked for when it is called. */
struct seq {
	unsigned choices; /* bits: those that have ended */
	struct rig *rig;
	uint64_t id;
	int queued, tokens, done, lost;
	char text[64];
	uint8_t finish;
	struct seq *forgets; /* when called */
	bool submits;        /* when lost */
	int submit_rc;
};

struct rig {
	char dir[64], path[96];
	int listener, fd;
	struct gw_config cfg;
	struct gw_thread t;
	struct engine_link *link;
	struct sl_buf in;
	struct seq seqs[MAX_SEQS];
	uint64_t fake_ns;
};

#define TURN_UNTIL(r, cond)                                                                                  \
	do {                                                                                                 \
		struct timespec start_, now_;                                                                \
		clock_gettime(CLOCK_MONOTONIC, &start_);                                                     \
		while (!(cond)) {                                                                            \
			assert_int_equal(gw_thread_turn(&(r)->t), 0);                                        \
			clock_gettime(CLOCK_MONOTONIC, &now_);                                               \
			if (now_.tv_sec - start_.tv_sec > PATIENCE_S)                                        \
				fail_msg("never: %s", #cond);                                                \
		}                                                                                            \
	} while (0)

/* ---- the listener ---- */

static void forget_another(struct seq *s)
{
	if (s->forgets != NULL)
		engine_link_forget(s->rig->link, s->forgets->id);
}

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct seq *s = ctx;
	(void)m;
	s->queued++;
	forget_another(s);
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct seq *s = ctx;
	size_t n = strlen(s->text);
	s->tokens += m->n;
	snprintf(s->text + n, sizeof s->text - n, "%.*s", (int)m->text.n, m->text.at);
	forget_another(s);
}

static void on_choice(void *ctx, const struct proto_choice *m)
{
	struct seq *s = ctx;
	s->choices |= 1u << m->choice;
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct seq *s = ctx;
	s->done++;
	s->finish = m->finish;
	forget_another(s);
}

static const struct link_listener listener;

static int submit(struct rig *r, struct seq *s, size_t prompt_bytes)
{
	static char prompt[BIG_BYTES];
	struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .temperature = 1, .top_p = 1, .max_tokens = 9,
				   .prompt = {prompt, prompt_bytes}};
	s->rig = r;
	return engine_link_submit(r->link, &req, &listener, s, &s->id);
}

static void on_lost(void *ctx)
{
	struct seq *s = ctx;
	s->lost++;
	forget_another(s);
	if (s->submits)
		s->submit_rc = submit(s->rig, s, 1);
}

static const struct link_listener listener = {.on_queued = on_queued, .on_tokens = on_tokens, .on_choice = on_choice, .on_done = on_done, .on_lost = on_lost};

/* ---- the engine's side ---- */

static void take_input(struct rig *r)
{
	uint8_t bytes[65536];
	ssize_t n;
	while ((n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
		assert_int_equal(buf_append(&r->in, bytes, (size_t)n), 0);
}

static bool have_frame(struct rig *r, struct proto_head *h)
{
	take_input(r);
	return r->in.len >= PROTO_HEAD_BYTES && proto_head_read(buf_data(&r->in), h, NULL) == 0 &&
	       r->in.len >= PROTO_HEAD_BYTES + h->length;
}

/* The next frame from the gateway, consumed. */
static struct proto_head expect(struct rig *r, uint8_t type)
{
	struct proto_head h;
	TURN_UNTIL(r, have_frame(r, &h));
	if (h.type != type)
		fail_msg("%s instead of %s", proto_type_name(h.type), proto_type_name(type));
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	return h;
}

static void say(struct rig *r, struct sl_buf *b)
{
	assert_int_equal(send(r->fd, buf_data(b), b->len, MSG_NOSIGNAL), (ssize_t)b->len);
	buf_dispose(b);
}

static bool try_accept(struct rig *r)
{
	if (r->fd >= 0)
		return true;
	r->fd = accept(r->listener, NULL, NULL);
	return r->fd >= 0;
}

static void await_connection(struct rig *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	buf_clear(&r->in, 0);
	TURN_UNTIL(r, try_accept(r));
}

static void put_hello(struct sl_buf *b, uint16_t version, uint16_t n_models)
{
	struct proto_hello m = {.version = version, .epoch = 1, .n_models = n_models, .name = {"test", 4}};
	assert_int_equal(proto_put_hello(b, &m), 0);
}

static void come_up(struct rig *r)
{
	struct sl_buf b;
	await_connection(r);
	expect(r, PROTO_HELLO);
	buf_init(&b, 4096);
	put_hello(&b, PROTO_VERSION, 0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_up(r->link));
}

static void put_tokens(struct sl_buf *b, uint64_t id, const char *text)
{
	struct proto_token t = {.n_bytes = (uint16_t)strlen(text)};
	struct proto_tokens m = {.n = 1, .tokens = &t, .text = {text, strlen(text)}};
	assert_int_equal(proto_put_tokens(b, id, &m), 0);
}

static void put_done(struct sl_buf *b, uint64_t id)
{
	struct proto_done m = {.finish = PROTO_FINISH_STOP, .message = {"", 0}};
	assert_int_equal(proto_put_done(b, id, &m), 0);
}

static void submitted(struct rig *r, struct seq *s)
{
	assert_int_equal(submit(r, s, 1), 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, s->id);
}

static int set_up(void **state)
{
	struct rig *r = calloc(1, sizeof *r);
	struct sl_err err = {0};
	const char *tmp = getenv("TMPDIR");
	snprintf(r->dir, sizeof r->dir, "%.32s/sluice-link-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(r->dir));
	snprintf(r->path, sizeof r->path, "%s/s", r->dir);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", r->path);
	r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(r->listener, 4), 0);
	r->fd = -1;
	buf_init(&r->in, 16 << 20);
	assert_int_equal(gw_thread_init(&r->t, 0, &r->cfg, &err), 0);
	assert_int_equal(engine_link_create(&r->t, r->path, &r->link, &err), 0);
	*state = r;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *r = *state;
	clock_fake(NULL);
	fault_disarm_all();
	engine_link_destroy(r->link);
	gw_thread_dispose(&r->t);
	buf_dispose(&r->in);
	if (r->fd >= 0)
		close(r->fd);
	close(r->listener);
	unlink(r->path);
	rmdir(r->dir);
	free(r);
	return 0;
}

/* ---- tests ---- */

static void both_sides_say_hello(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_model m = {.index = 1, .state = PROTO_MODEL_READY, .role = 2, .n_ctx = 77, .name = {"m", 1}};
	struct proto_stats st = {.running = 3, .steps = 1ull << 40};
	struct sl_buf b;
	await_connection(r);
	expect(r, PROTO_HELLO);
	assert_false(engine_link_up(r->link));
	assert_int_equal(submit(r, s, 1), SL_ECLOSED);
	buf_init(&b, 4096);
	put_hello(&b, PROTO_VERSION, 2);
	assert_int_equal(proto_put_model(&b, &m), 0);
	assert_int_equal(proto_put_stats(&b, &st), 0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_stats(r->link)->running == 3);
	assert_true(engine_link_up(r->link));
	assert_int_equal(engine_link_n_models(r->link), 2);
	assert_int_equal(engine_link_find_model(r->link, "m"), 1);
	assert_int_equal(engine_link_find_model(r->link, ""), -1); /* not that which has no name yet */
	assert_int_equal(engine_link_model(r->link, 1)->n_ctx, 77);
	assert_int_equal(engine_link_stats(r->link)->steps, 1ull << 40);
	/* Models stay known while the link is down, but none is ready. */
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	assert_int_equal(engine_link_find_model(r->link, "m"), 1);
	assert_int_equal(engine_link_model(r->link, 1)->state, PROTO_MODEL_LOADING);
	assert_int_equal(engine_link_stats(r->link)->running, 0);
}

static void another_version_is_refused(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	for (int in_head = 0; in_head <= 1; in_head++) {
		char byte;
		await_connection(r);
		expect(r, PROTO_HELLO);
		buf_init(&b, 4096);
		put_hello(&b, (uint16_t)(PROTO_VERSION + !in_head), 0);
		if (in_head)
			buf_data(&b)[5] = PROTO_VERSION + 1;
		say(r, &b);
		TURN_UNTIL(r, recv(r->fd, &byte, 1, MSG_DONTWAIT) == 0);
		assert_false(engine_link_up(r->link));
	}
	come_up(r);
}

static void bye_ends_it_and_it_comes_back(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_bye bye = {.reason = {"enough", 6}};
	struct sl_buf b;
	come_up(r);
	submitted(r, s);
	buf_init(&b, 4096);
	assert_int_equal(proto_put_bye(&b, &bye), 0);
	put_done(&b, s->id); /* after BYE nothing counts */
	say(r, &b);
	TURN_UNTIL(r, s->lost == 1);
	assert_int_equal(s->done, 0);
	assert_false(engine_link_up(r->link));
	assert_int_equal(submit(r, s + 1, 1), SL_ECLOSED);
	come_up(r);
	submitted(r, s + 1);
	assert_true(s[1].id > s[0].id);
	assert_int_equal(s->lost, 1);
}

/* Builds the i-th malformed piece; false after the last. */
static bool malformed(size_t i, uint64_t id, struct sl_buf *b)
{
	static const struct {
		uint8_t type;
		uint32_t length; /* as the head says, and of the payload sent, all 0xff */
	} plain[] = {
	    {0, 0}, {7, 0}, {255, 0}, {PROTO_SUBMIT, 0}, {PROTO_CREDIT, 4}, {PROTO_CANCEL, 0}, {PROTO_COUNT, 8},
	    {PROTO_PING, 0}, {PROTO_COUNTED, 9}, {PROTO_HELLO, 16}, {PROTO_MODEL, 0}, {PROTO_MODEL, 30},
	    {PROTO_QUEUED, 15}, {PROTO_QUEUED, 17}, {PROTO_TOKENS, 0}, {PROTO_TOKENS, 40}, {PROTO_DONE, 0},
	    {PROTO_DONE, 31}, {PROTO_DONE, 60}, {PROTO_STATS, 3}, {PROTO_BYE, 2}, {PROTO_STATS, 4097},
	    {PROTO_TOKENS, 1u << 21}, {PROTO_QUEUED, UINT32_MAX},
	    {PROTO_CHOICE, 11}, {PROTO_CHOICE, 0}, {PROTO_PROMPT_LOGPROBS, 7}, {PROTO_PROMPT_LOGPROBS, 40},
	};
	enum { N_PLAIN = sizeof plain / sizeof plain[0] };
	struct proto_token t = {.n_bytes = 2};
	struct proto_tokens m = {.n = 1, .tokens = &t, .text = {"ab", 2}};
	if (i < N_PLAIN) {
		uint8_t head[PROTO_HEAD_BYTES] = {0}, ff[64];
		memset(ff, 0xff, sizeof ff);
		for (int k = 0; k < 4; k++)
			head[k] = (uint8_t)(plain[i].length >> (8 * k));
		head[4] = plain[i].type;
		head[5] = PROTO_VERSION;
		head[8] = (uint8_t)id;
		assert_int_equal(buf_append(b, head, sizeof head), 0);
		return buf_append(b, ff, plain[i].length < sizeof ff ? plain[i].length : 0) == 0;
	}
	switch (i - N_PLAIN) {
	case 0: put_hello(b, PROTO_VERSION, 0); return true; /* a second one */
	case 1: /* reserved bits in the head */
		put_done(b, id);
		buf_data(b)[6] = 1;
		return true;
	case 2: /* a token's text beyond the frame's */
		assert_int_equal(proto_put_tokens(b, id, &m), 0);
		buf_data(b)[PROTO_HEAD_BYTES + 4 + 8] = 3;
		return true;
	case 3: /* text that no token releases */
		assert_int_equal(proto_put_tokens(b, id, &m), 0);
		buf_data(b)[PROTO_HEAD_BYTES + 4 + 8] = 1;
		return true;
	default: return false;
	}
}

static void each_malformed_frame_closes_it_and_tells_once(void **state)
{
	struct rig *r = *state;
	for (size_t i = 0;; i++) {
		struct seq *s = &r->seqs[2 * i];
		struct sl_buf b;
		char byte;
		buf_init(&b, 4096);
		if (!malformed(i, 1, &b))
			break;
		buf_dispose(&b);
		come_up(r);
		submitted(r, s);
		submitted(r, s + 1);
		buf_init(&b, 4096);
		malformed(i, s->id, &b);
		put_done(&b, s[1].id); /* not read any more */
		say(r, &b);
		TURN_UNTIL(r, !engine_link_up(r->link));
		for (int k = 0; k < 2; k++)
			if (s[k].lost != 1 || s[k].queued + s[k].tokens + s[k].done != 0)
				fail_msg("malformed frame %zu: lost %d, others %d", i, s[k].lost,
					 s[k].queued + s[k].tokens + s[k].done);
		TURN_UNTIL(r, recv(r->fd, &byte, 1, MSG_DONTWAIT) <= 0);
	}
	for (size_t i = 0; i < 100; i++)
		assert_true(r->seqs[i].lost <= 1);
}

static void frames_may_be_cut_anywhere(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_queued q = {.n_prompt = 3};
	struct sl_buf b;
	come_up(r);
	/* Byte by byte, each read for itself. */
	submitted(r, s);
	buf_init(&b, 4096);
	assert_int_equal(proto_put_queued(&b, s->id, &q), 0);
	put_tokens(&b, s->id, "one ");
	put_tokens(&b, s->id, "two");
	put_done(&b, s->id);
	for (size_t i = 0; i < b.len; i++) {
		assert_int_equal(s->done, 0);
		assert_int_equal(send(r->fd, buf_data(&b) + i, 1, MSG_NOSIGNAL), 1);
		assert_int_equal(gw_thread_turn(&r->t), 0);
	}
	TURN_UNTIL(r, s->done == 1);
	assert_int_equal(s->queued, 1);
	assert_string_equal(s->text, "one two");
	buf_dispose(&b);
	/* In two pieces, at every place. */
	for (size_t cut = 1, len = 2; cut < len; cut++) {
		s = &r->seqs[cut];
		submitted(r, s);
		buf_init(&b, 4096);
		put_tokens(&b, s->id, "x");
		put_done(&b, s->id);
		len = b.len;
		assert_int_equal(send(r->fd, buf_data(&b), cut, MSG_NOSIGNAL), (ssize_t)cut);
		assert_int_equal(gw_thread_turn(&r->t), 0);
		buf_consume(&b, cut);
		say(r, &b);
		TURN_UNTIL(r, s->done == 1);
		assert_string_equal(s->text, "x");
	}
}

static void frames_of_unknown_sequences_are_ignored(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_queued q = {.n_prompt = 3};
	struct sl_buf b;
	come_up(r);
	submitted(r, s);
	submitted(r, s + 1);
	engine_link_forget(r->link, s[1].id);
	engine_link_forget(r->link, s[1].id);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s[1].id);
	engine_link_credit(r->link, s[1].id, 5); /* says nothing */
	engine_link_credit(r->link, s[0].id, 5);
	assert_int_equal(expect(r, PROTO_CREDIT).id, s[0].id);
	buf_init(&b, 4096);
	uint64_t strange[] = {0, s[1].id, s[1].id + 1, UINT64_MAX};
	for (int i = 0; i < 4; i++) {
		assert_int_equal(proto_put_queued(&b, strange[i], &q), 0);
		put_tokens(&b, strange[i], "evil");
		put_done(&b, strange[i]);
	}
	put_tokens(&b, s->id, "good");
	put_done(&b, s->id);
	put_done(&b, s->id); /* the second one is unknown too */
	put_tokens(&b, s->id, "late");
	assert_int_equal(proto_put_pong(&b, 1), 0);
	say(r, &b);
	TURN_UNTIL(r, s->done == 1);
	assert_string_equal(s->text, "good");
	assert_int_equal(s[1].queued + s[1].tokens + s[1].done + s[1].lost, 0);
	assert_true(engine_link_up(r->link));
}

static void a_callback_may_forget(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_queued q = {.n_prompt = 3};
	struct sl_buf b;
	come_up(r);
	for (int i = 0; i < 4; i++)
		submitted(r, &s[i]);
	s[0].forgets = &s[0];
	s[1].forgets = &s[1];
	s[2].forgets = &s[3];
	buf_init(&b, 4096);
	assert_int_equal(proto_put_queued(&b, s[0].id, &q), 0);
	put_tokens(&b, s[0].id, "x");
	put_tokens(&b, s[1].id, "x");
	put_tokens(&b, s[1].id, "x");
	put_done(&b, s[2].id);
	put_done(&b, s[3].id);
	say(r, &b);
	TURN_UNTIL(r, s[2].done == 1);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s[0].id);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s[1].id);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s[3].id);
	assert_int_equal(s[0].tokens, 0);
	assert_int_equal(s[1].tokens, 1);
	assert_int_equal(s[3].done, 0);
}

static void on_stopped(void *ctx)
{
	struct seq *s = ctx;
	s->lost++;
}

/* Who abandons is told when the engine has confirmed, or has gone, and of nothing else. */
static void an_abandoned_sequence_ends_with_the_engines_word(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_queued q = {.n_prompt = 3};
	struct sl_buf b;
	come_up(r);
	for (int i = 0; i < 3; i++)
		submitted(r, &s[i]);
	for (int i = 0; i < 2; i++) {
		engine_link_abandon(r->link, s[i].id, on_stopped, &s[i]);
		assert_int_equal(expect(r, PROTO_CANCEL).id, s[i].id);
	}
	engine_link_forget(r->link, s[0].id); /* its id is nobody's any more */
	engine_link_credit(r->link, s[0].id, 5);
	buf_init(&b, 4096);
	assert_int_equal(proto_put_queued(&b, s[0].id, &q), 0);
	put_tokens(&b, s[0].id, "x");
	put_tokens(&b, s[2].id, "y");
	say(r, &b);
	TURN_UNTIL(r, s[2].tokens == 1);
	assert_int_equal(s[0].queued + s[0].tokens + s[0].lost, 0);
	put_done(&b, s[0].id);
	put_done(&b, s[2].id);
	say(r, &b);
	TURN_UNTIL(r, s[2].done == 1);
	assert_int_equal(s[0].lost, 1);
	assert_int_equal(s[0].done, 0);
	assert_int_equal(s[1].lost, 0);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	assert_int_equal(s[1].lost, 1);
	engine_link_abandon(r->link, s[1].id, on_stopped, &s[1]); /* gone already */
	assert_int_equal(s[1].lost, 2);
}

static int n_counted;
static uint32_t last_count;
static bool count_lost;

static void on_counted(void *ctx, const struct proto_counted *m)
{
	(void)ctx;
	n_counted++;
	count_lost = m == NULL;
	last_count = m != NULL ? m->n_tokens : 0;
}

static uint64_t ask_for_count(struct rig *r)
{
	const struct proto_count req = {.prompt_kind = PROTO_PROMPT_TEXT, .prompt = {"x", 1}};
	uint64_t id;
	assert_int_equal(engine_link_count(r->link, &req, on_counted, NULL, &id), 0);
	assert_int_equal(expect(r, PROTO_COUNT).id, id);
	return id;
}

/* A count is answered once: by the engine, by its end, or not at all when nobody waits any more. */
static void counts_are_answered_once(void **state)
{
	struct rig *r = *state;
	const struct proto_count req = {.prompt_kind = PROTO_PROMPT_TEXT, .prompt = {"x", 1}};
	struct proto_counted m = {.n_tokens = 7, .message = {"", 0}};
	struct proto_choice choice = {.finish = PROTO_FINISH_STOP};
	struct sl_buf b;
	uint64_t none;
	n_counted = 0;
	assert_int_equal(engine_link_count(r->link, &req, on_counted, NULL, &none), SL_ECLOSED);
	come_up(r);
	uint64_t left = ask_for_count(r), id = ask_for_count(r), third = ask_for_count(r);
	engine_link_uncount(r->link, left);
	engine_link_uncount(r->link, left);
	/* What is a sequence's is nothing for a count, and the other way round. */
	engine_link_forget(r->link, id);
	engine_link_credit(r->link, id, 1);
	submitted(r, &r->seqs[0]);
	engine_link_uncount(r->link, r->seqs[0].id);
	buf_init(&b, 4096);
	put_tokens(&b, id, "x");
	put_done(&b, id);
	assert_int_equal(proto_put_choice(&b, id, &choice), 0);
	assert_int_equal(proto_put_counted(&b, left, &m), 0);
	assert_int_equal(proto_put_counted(&b, r->seqs[0].id, &m), 0);
	assert_int_equal(proto_put_counted(&b, id, &m), 0);
	assert_int_equal(proto_put_counted(&b, id, &m), 0);
	say(r, &b);
	TURN_UNTIL(r, n_counted == 1);
	assert_false(count_lost);
	assert_int_equal(last_count, 7);
	put_done(&b, r->seqs[0].id);
	say(r, &b);
	TURN_UNTIL(r, r->seqs[0].done == 1);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, n_counted == 2);
	assert_true(count_lost);
	engine_link_uncount(r->link, third);
}

/* An abandoned sequence of several choices: nobody is told of them. */
static void choices_of_the_abandoned_are_told_to_nobody(void **state)
{
	struct rig *r = *state;
	struct proto_choice choice = {.finish = PROTO_FINISH_STOP};
	struct seq *s = &r->seqs[0];
	struct sl_buf b;
	come_up(r);
	submitted(r, s);
	engine_link_abandon(r->link, s->id, on_stopped, s);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s->id);
	buf_init(&b, 4096);
	assert_int_equal(proto_put_choice(&b, s->id, &choice), 0);
	put_done(&b, s->id);
	say(r, &b);
	TURN_UNTIL(r, s->lost == 1);
	assert_int_equal(s->choices, 0);
}

/* Each forgets its neighbour: of every two one is told, whatever the order. */
static void who_is_forgotten_when_it_is_lost_is_not_told(void **state)
{
	struct rig *r = *state;
	enum { N = 200 };
	come_up(r);
	for (int i = 0; i < N; i++) {
		submitted(r, &r->seqs[i]);
		r->seqs[i].forgets = &r->seqs[i ^ 1];
		r->seqs[i].submits = true;
	}
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = 0; i < N; i += 2)
		assert_int_equal(r->seqs[i].lost + r->seqs[i + 1].lost, 1);
	for (int i = 0; i < N; i++)
		if (r->seqs[i].lost)
			assert_int_equal(r->seqs[i].submit_rc, SL_ECLOSED);
	/* None of them is on the new link. */
	for (int i = 0; i < N; i++)
		r->seqs[i].lost = 0;
	come_up(r);
	submitted(r, &r->seqs[N]);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, r->seqs[N].lost == 1);
	for (int i = 0; i < N; i++)
		assert_int_equal(r->seqs[i].lost, 0);
}

static void the_end_of_the_link_tells_everybody(void **state)
{
	struct rig *r = *state;
	struct sl_err err = {0};
	come_up(r);
	for (int i = 0; i < 100; i++) {
		submitted(r, &r->seqs[i]);
		r->seqs[i].submits = true;
	}
	engine_link_destroy(r->link);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(r->seqs[i].lost, 1);
		assert_int_equal(r->seqs[i].submit_rc, SL_ECLOSED);
	}
	assert_int_equal(engine_link_create(&r->t, r->path, &r->link, &err), 0);
}

static void many_sequences_are_all_found(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	uint32_t random = 1;
	come_up(r);
	for (int i = 0; i < MAX_SEQS; i++)
		submitted(r, &r->seqs[i]);
	/* A third ends, a third is forgotten, in a mixed order; the rest is still there. */
	for (int k = 0; k < 2 * MAX_SEQS; k++) {
		random = random * 1664525u + 1013904223u;
		int i = (int)((random >> 8) % MAX_SEQS);
		struct seq *s = &r->seqs[i];
		if (i % 3 == 0 && s->done == 0) {
			buf_init(&b, 4096);
			put_done(&b, s->id);
			say(r, &b);
			TURN_UNTIL(r, s->done == 1);
		} else if (i % 3 == 1 && !s->submits) {
			s->submits = true; /* here: forgotten */
			engine_link_forget(r->link, s->id);
			assert_int_equal(expect(r, PROTO_CANCEL).id, s->id);
		}
	}
	for (int i = 0; i < MAX_SEQS; i++) {
		struct seq *s = &r->seqs[i];
		bool gone = s->submits || s->done;
		buf_init(&b, 4096);
		put_tokens(&b, s->id, "x");
		say(r, &b);
		if (!gone)
			TURN_UNTIL(r, s->tokens == 1);
		s->forgets = NULL;
	}
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = 0; i < MAX_SEQS; i++) {
		struct seq *s = &r->seqs[i];
		int gone = s->submits || s->done;
		assert_int_equal(s->tokens, !gone);
		assert_int_equal(s->lost, !gone);
	}
}

/* ---- time ---- */

static void fake_time(struct rig *r)
{
	r->fake_ns = clock_now_ns();
	clock_fake(&r->fake_ns);
}

static void silence_is_asked_then_ended(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct sl_buf b;
	fake_time(r);
	come_up(r);
	submitted(r, s);
	r->fake_ns += 1001 * NS_PER_MS;
	expect(r, PROTO_PING);
	/* An answer makes it young again. */
	buf_init(&b, 64);
	assert_int_equal(proto_put_pong(&b, 1), 0);
	put_tokens(&b, s->id, "x");
	say(r, &b);
	TURN_UNTIL(r, s->tokens == 1);
	r->fake_ns += 2999 * NS_PER_MS;
	expect(r, PROTO_PING);
	assert_true(engine_link_up(r->link));
	assert_int_equal(s->lost, 0);
	r->fake_ns += 2 * NS_PER_MS;
	TURN_UNTIL(r, s->lost == 1);
	assert_false(engine_link_up(r->link));
	come_up(r);
}

static void after_a_stop_of_its_own_it_asks_first(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	fake_time(r);
	come_up(r);
	submitted(r, s);
	r->fake_ns += 1001 * NS_PER_MS;
	expect(r, PROTO_PING); /* it has ticked */
	r->fake_ns += 60 * NS_PER_S;
	expect(r, PROTO_PING);
	assert_true(engine_link_up(r->link));
	assert_int_equal(s->lost, 0);
	/* Who does not answer now has gone. */
	r->fake_ns += 2001 * NS_PER_MS;
	TURN_UNTIL(r, s->lost == 1);
	assert_false(engine_link_up(r->link));
	come_up(r);
}

static void an_engine_that_does_not_greet_is_left(void **state)
{
	struct rig *r = *state;
	char byte;
	fake_time(r);
	await_connection(r);
	expect(r, PROTO_HELLO);
	r->fake_ns += 2001 * NS_PER_MS;
	TURN_UNTIL(r, recv(r->fd, &byte, 1, MSG_DONTWAIT) == 0);
	come_up(r);
}

/* Only lower bounds can be sure on a busy machine, and for the way back the shortest of some. */
static void it_waits_longer_each_time(void **state)
{
	struct rig *r = *state;
	uint64_t shortest = UINT64_MAX;
	await_connection(r);
	for (uint64_t wait_ms = 20; wait_ms <= 320; wait_ms *= 2) {
		uint64_t from = clock_now_ns();
		await_connection(r);
		assert_true(clock_now_ns() - from >= (wait_ms - 5) * NS_PER_MS);
	}
	come_up(r);
	for (int i = 0; i < 5; i++) {
		uint64_t from = clock_now_ns();
		come_up(r);
		uint64_t took = clock_now_ns() - from;
		shortest = took < shortest ? took : shortest;
	}
	assert_true(shortest < 320 * NS_PER_MS);
}

static void it_waits_for_an_engine_that_is_not_there(void **state)
{
	struct rig *r = *state;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	come_up(r);
	close(r->fd);
	r->fd = -1;
	close(r->listener);
	unlink(r->path);
	TURN_UNTIL(r, !engine_link_up(r->link));
	/* Some vain tries. */
	uint64_t from = clock_now_ns();
	TURN_UNTIL(r, clock_now_ns() - from > 100 * NS_PER_MS);
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", r->path);
	r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(r->listener, 4), 0);
	come_up(r);
}

/* ---- bounds ---- */

static void an_engine_that_does_not_read_bounds_what_waits(void **state)
{
	struct rig *r = *state;
	int n = 0, rc;
	struct proto_head h;
	come_up(r);
	while ((rc = submit(r, &r->seqs[n], BIG_BYTES)) == 0) {
		n++;
		assert_int_equal(gw_thread_turn(&r->t), 0);
		assert_true(n < 20);
	}
	assert_int_equal(rc, SL_ELIMIT);
	assert_true(n >= 7);
	assert_true(engine_link_up(r->link));
	/* Once it reads, everything comes, whole and in order, and there is room again. */
	for (int i = 0; i < n; i++) {
		TURN_UNTIL(r, have_frame(r, &h));
		assert_int_equal(h.type, PROTO_SUBMIT);
		assert_int_equal(h.id, r->seqs[i].id);
		buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	}
	submitted(r, &r->seqs[n]);
	/* A credit that finds no room ends the link: its sequence would wait for ever. */
	int first = n + 1;
	n = first;
	for (size_t bytes = BIG_BYTES; bytes > 0; bytes /= 8)
		while (submit(r, &r->seqs[n], bytes) == 0)
			assert_true(++n < MAX_SEQS);
	for (int i = 0; i < 10; i++)
		engine_link_credit(r->link, r->seqs[first].id, 1);
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = first; i < n; i++)
		assert_int_equal(r->seqs[i].lost, 1);
}

static void without_memory_a_submit_fails_and_nothing_else(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	come_up(r);
	for (int i = 0; i < 100; i++) {
		int rc = SL_ENOMEM;
		for (long nth = 1; rc != 0; nth++) {
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = submit(r, &s[i], 1000);
			fault_disarm_all();
			assert_true(rc == 0 || rc == SL_ENOMEM);
		}
		assert_int_equal(expect(r, PROTO_SUBMIT).id, s[i].id);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(both_sides_say_hello),
	    TEST(another_version_is_refused),
	    TEST(bye_ends_it_and_it_comes_back),
	    TEST(each_malformed_frame_closes_it_and_tells_once),
	    TEST(frames_may_be_cut_anywhere),
	    TEST(frames_of_unknown_sequences_are_ignored),
	    TEST(a_callback_may_forget),
	    TEST(an_abandoned_sequence_ends_with_the_engines_word),
	    TEST(counts_are_answered_once),
	    TEST(choices_of_the_abandoned_are_told_to_nobody),
	    TEST(who_is_forgotten_when_it_is_lost_is_not_told),
	    TEST(the_end_of_the_link_tells_everybody),
	    TEST(many_sequences_are_all_found),
	    TEST(silence_is_asked_then_ended),
	    TEST(after_a_stop_of_its_own_it_asks_first),
	    TEST(an_engine_that_does_not_greet_is_left),
	    TEST(it_waits_longer_each_time),
	    TEST(it_waits_for_an_engine_that_is_not_there),
	    TEST(an_engine_that_does_not_read_bounds_what_waits),
	    TEST(without_memory_a_submit_fails_and_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
