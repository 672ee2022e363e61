/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the engine: greeting, frames in every cut, malformed ones, those of sequences that are abandoned
 * or unknown, counts. How it ends and what bounds it: test_engine_link_ends.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/gateway/generation/link_rig.h"

static void both_sides_say_hello(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct proto_model m = {.index = 1,
				.state = PROTO_MODEL_READY,
				.role = 2,
				.does = PROTO_DOES_GENERATE,
				.n_ctx = 77,
				.name = {"m", 1}};
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

/* An adapter is found by its own name, unless two have it or it is a model's. */
static void adapters_have_two_names(void **state)
{
	struct rig *r = *state;
	static const struct {
		const char *name;
		uint16_t parent;
	} models[] = {{"base", 0}, {"other", 0}, {"b", 0}, {"base:a", 1}, {"other:a", 2}, {"base:b", 1}, {"base:c", 1}};
	enum { N_MODELS = sizeof models / sizeof *models };
	struct sl_buf b;
	await_connection(r);
	expect(r, PROTO_HELLO);
	buf_init(&b, 4096);
	put_hello(&b, PROTO_VERSION, N_MODELS);
	for (uint16_t i = 0; i < N_MODELS; i++) {
		struct proto_model m = {.index = i,
					.state = PROTO_MODEL_READY,
					.parent = models[i].parent,
					.name = {models[i].name, strlen(models[i].name)}};
		assert_int_equal(proto_put_model(&b, &m), 0);
	}
	say(r, &b);
	TURN_UNTIL(r, engine_link_find_model(r->link, "base:c") == 6);
	assert_int_equal(engine_link_find_model(r->link, "other:a"), 4);
	assert_int_equal(engine_link_find_model(r->link, "c"), 6);
	assert_int_equal(engine_link_find_model(r->link, "a"), -1);
	assert_int_equal(engine_link_find_model(r->link, "b"), 2);
	assert_int_equal(engine_link_find_model(r->link, ":c"), -1);
	assert_int_equal(engine_link_find_model(r->link, ""), -1);
	assert_ptr_equal(engine_link_parent(r->link, engine_link_model(r->link, 4)), engine_link_model(r->link, 1));
	assert_null(engine_link_parent(r->link, engine_link_model(r->link, 0)));
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

/* Of what was logged since, the lines that have these words. */
static int lines_with(FILE *log, const char *words)
{
	char line[1024];
	int n = 0;
	rewind(log);
	while (fgets(line, sizeof line, log) != NULL)
		n += strstr(line, words) != NULL;
	return n;
}

/* An engine is replaced by one of the version before: it says so with BYE, each time that it is asked. */
static void another_version_is_named_once(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	char words[64];
	const struct proto_bye bye = {.reason = {"no", 2}};
	snprintf(words, sizeof words, "speaks protocol version %d, this is %d", PROTO_VERSION - 1, PROTO_VERSION);
	come_up(r);
	FILE *log = tmpfile();
	const int before = dup(STDERR_FILENO);
	assert_true(log != NULL && before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
	for (int i = 0; i < 3; i++) {
		char byte;
		await_connection(r);
		expect(r, PROTO_HELLO);
		buf_init(&b, 4096);
		assert_int_equal(proto_put_bye(&b, &bye), 0);
		buf_data(&b)[5] = PROTO_VERSION - 1;
		say(r, &b);
		TURN_UNTIL(r, recv(r->fd, &byte, 1, MSG_DONTWAIT) == 0);
	}
	come_up(r);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	close(before);
	assert_int_equal(lines_with(log, words), 1);
	fclose(log);
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
	    {0, 0},
	    {7, 0},
	    {255, 0},
	    {PROTO_SUBMIT, 0},
	    {PROTO_CREDIT, 4},
	    {PROTO_CANCEL, 0},
	    {PROTO_COUNT, 8},
	    {PROTO_PING, 0},
	    {PROTO_COUNTED, 9},
	    {PROTO_HELLO, 16},
	    {PROTO_MODEL, 0},
	    {PROTO_MODEL, 30},
	    {PROTO_QUEUED, 15},
	    {PROTO_QUEUED, 17},
	    {PROTO_TOKENS, 0},
	    {PROTO_TOKENS, 40},
	    {PROTO_DONE, 0},
	    {PROTO_DONE, 31},
	    {PROTO_DONE, 60},
	    {PROTO_STATS, 3},
	    {PROTO_BYE, 2},
	    {PROTO_STATS, 4097},
	    {PROTO_TOKENS, 1u << 21},
	    {PROTO_QUEUED, UINT32_MAX},
	    {PROTO_CHOICE, 11},
	    {PROTO_CHOICE, 0},
	    {PROTO_PROMPT_LOGPROBS, 7},
	    {PROTO_PROMPT_LOGPROBS, 40},
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
	case 1:                                              /* reserved bits in the head */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(both_sides_say_hello),          TEST(adapters_have_two_names),
	    TEST(another_version_is_refused),    TEST(another_version_is_named_once),
	    TEST(bye_ends_it_and_it_comes_back), TEST(each_malformed_frame_closes_it_and_tells_once),
	    TEST(frames_may_be_cut_anywhere),    TEST(frames_of_unknown_sequences_are_ignored),
	    TEST(a_callback_may_forget),         TEST(an_abandoned_sequence_ends_with_the_engines_word),
	    TEST(counts_are_answered_once),      TEST(choices_of_the_abandoned_are_told_to_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
