/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared logs and the directory that finds them: what a reader gets, wherever it begins and however slow it
 * is; what a log may cost; who finds what, and for how long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "gateway/sharing/coalesce.h"

enum { FRAME_TEXT = 100, MANY = 64 };

struct reader {
	struct token_reader *rd;
	struct token_log view;
	uint64_t at;
	int n_ready;
	struct sl_buf text;
	unsigned n_tokens, n_choices;
	bool queued, lost, done;
	struct proto_done how;
};

struct rig {
	struct gw_config cfg;
	struct gw_thread t;
	struct inflight *ts;
	int n_moved;
};

static uint64_t fake_ns;

static int set_up(void **state)
{
	struct rig *r = calloc(1, sizeof *r);
	struct sl_err err = {0};
	assert_non_null(r);
	assert_int_equal(gw_thread_init(&r->t, 0, &r->cfg, &err), 0);
	assert_int_equal(inflight_create(&r->ts), 0);
	*state = r;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *r = *state;
	clock_fake(NULL);
	fault_disarm_all();
	gw_thread_dispose(&r->t);
	coalesce_drop_ended(r->ts);
	inflight_destroy(r->ts);
	free(r);
	return 0;
}

static void on_moved(void *ctx) { ((struct rig *)ctx)->n_moved++; }
static void on_ready(void *ctx) { ((struct reader *)ctx)->n_ready++; }

/* What is in the box, and no waiting for more. */
static void deliver(struct rig *r)
{
	static const struct timeval none = {0};
	event_base_loopexit(r->t.base, &none);
	assert_int_equal(gw_thread_turn(&r->t), 0);
}

static bool no_memory; /* for the next tokens */

/* As the engine's link has it: decoded from a frame. The writer's own subscriber takes it at once. */
static void put_tokens(struct token_log *log, uint16_t n, const char *text, size_t n_text)
{
	struct proto_token tokens[8] = {0};
	struct proto_id_f32 tops[8];
	struct sl_buf b;
	struct proto_head h;
	struct proto_tokens out;
	for (uint16_t i = 0; i < n; i++) {
		tokens[i] = (struct proto_token){.id = i, .logprob = -1.0F * i, .n_bytes = (uint16_t)(n_text / n)};
		tops[i] = (struct proto_id_f32){7U + i, -0.5F};
	}
	tokens[n - 1].n_bytes = (uint16_t)(tokens[n - 1].n_bytes + n_text % n);
	buf_init(&b, 1 << 20);
	struct proto_tokens m = {.n = n, .n_top = 1, .tokens = tokens, .tops = tops, .text = {text, n_text}};
	assert_int_equal(proto_put_tokens(&b, 1, &m), 0);
	assert_int_equal(proto_head_read(buf_data(&b), &h, NULL), 0);
	assert_int_equal(proto_get_tokens(buf_data(&b) + PROTO_HEAD_BYTES, h.length, &out, NULL), 0);
	if (no_memory)
		fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(token_log_append(log, &out), 0);
	fault_disarm_all();
	token_log_take(log, log->end);
	no_memory = false;
	buf_dispose(&b);
}

static struct reader *read_from(struct rig *r, struct token_log *log)
{
	struct reader *rd = calloc(1, sizeof *rd);
	assert_non_null(rd);
	buf_init(&rd->text, 8 << 20);
	assert_int_equal(token_log_init(&rd->view, 1, 1, 0), 0);
	assert_int_equal(token_log_read(log, &r->t, on_ready, rd, &rd->rd), 0);
	return rd;
}

static void take_run(struct reader *rd)
{
	struct gen_chunk c;
	if (!token_log_run(&rd->view, rd->at, 8, &c))
		return;
	assert_int_equal(c.first_token, rd->at);
	for (uint64_t i = rd->at; i < rd->at + c.n_tokens; i++) {
		struct gen_token t;
		token_log_token(&rd->view, i, &t);
		assert_true(t.logprob == -1.0F * (float)t.id);
		assert_int_equal(t.n_top, 1);
		assert_int_equal(t.tops[0].id, 7 + t.id);
	}
	assert_int_equal(buf_append(&rd->text, c.text, c.n_bytes), 0);
	rd->n_tokens += c.n_tokens;
	rd->at += c.n_tokens;
}

/* Takes at most three tokens at a time, and so many times. */
static void take(struct reader *rd, int most)
{
	enum token_news news = TOKEN_MORE;
	for (int i = 0; i < most && news != TOKEN_NOTHING && !rd->done && !rd->lost; i++) {
		unsigned ended = rd->view.choices[0].finish != 0;
		news = token_reader_sync(rd->rd, rd->at, 3, &rd->view);
		rd->n_choices += (rd->view.choices[0].finish != 0) - ended;
		rd->lost = news == TOKEN_LOST;
		rd->done = news == TOKEN_ALL;
		rd->queued = rd->view.is_queued;
		rd->how = rd->view.done;
		if (!rd->lost)
			take_run(rd);
	}
}

static void leave(struct rig *r, struct reader *rd)
{
	token_reader_close(rd->rd);
	deliver(r);
	token_log_dispose(&rd->view);
	buf_dispose(&rd->text);
	free(rd);
}

static const struct proto_done well = {
    .finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = 4, .message = {"", 0}};

static struct request_digest digest_of(const struct rig *r, const char *text)
{
	struct request_digest d;
	inflight_digest(r->ts, &(struct iovec){(void *)text, strlen(text)}, 1, &d);
	return d;
}

static struct token_log *lead(struct rig *r, const char *what)
{
	struct request_digest d = digest_of(r, what);
	struct token_log *log;
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &log), 0);
	assert_non_null(log);
	struct token_log own;
	assert_int_equal(token_log_init(&own, 1, 1, 1), 0);
	token_log_own(log, &own, &r->t, on_moved, r);
	return log;
}

static void early_and_late_readers_get_the_same(void **state)
{
	struct rig *r = *state;
	struct token_log *log = lead(r, "a");
	struct reader *early = read_from(r, log);
	take(early, MANY);
	assert_false(early->queued);
	token_log_queued(log, &(struct proto_queued){.n_prompt = 3});
	put_tokens(log, 2, "ab", 2);
	deliver(r);
	assert_true(early->n_ready > 0);
	take(early, MANY);
	token_log_choice(log, &(struct proto_choice){.choice = 0, .finish = PROTO_FINISH_STOP});
	put_tokens(log, 2, "cde", 3);
	struct reader *late = read_from(r, log);
	token_log_end(log, &well);
	deliver(r);
	take(early, MANY);
	take(late, MANY);
	struct reader *after = read_from(r, log);
	take(after, MANY);
	struct reader *all[] = {early, late, after};
	for (int i = 0; i < 3; i++) {
		assert_true(all[i]->queued && all[i]->done && !all[i]->lost);
		assert_int_equal(all[i]->n_tokens, 4);
		assert_int_equal(all[i]->n_choices, 1);
		assert_int_equal(all[i]->how.n_completion, 4);
		assert_string_equal(buf_cstr(&all[i]->text), "abcde");
		take(all[i], MANY); /* nothing twice */
		leave(r, all[i]);
	}
	token_log_unref(log);
}

static void the_owner_hears_of_the_fastest_and_of_the_last(void **state)
{
	struct rig *r = *state;
	uint64_t most;
	struct token_log *log = lead(r, "a");
	struct reader *a = read_from(r, log), *b = read_from(r, log);
	deliver(r);
	assert_int_equal(r->n_moved, 1);
	assert_int_equal(token_log_readers(log, &most), 2);
	token_reader_moved(a->rd, 10);
	token_reader_moved(b->rd, 5);
	deliver(r);
	assert_int_equal(r->n_moved, 2);
	assert_int_equal(token_log_readers(log, &most), 2);
	assert_int_equal(most, 10);
	leave(r, a);
	assert_int_equal(r->n_moved, 2);
	leave(r, b);
	assert_int_equal(r->n_moved, 3);
	assert_int_equal(token_log_readers(log, &most), 0);
	token_log_end(log, &well);
	token_log_unref(log);
}

/* Messages are on their way when everybody has gone. */
static void who_goes_at_once_leaves_nothing(void **state)
{
	struct rig *r = *state;
	struct token_log *log = lead(r, "a");
	for (int i = 0; i < 3; i++) {
		struct reader *rd = read_from(r, log);
		put_tokens(log, 1, "x", 1);
		token_reader_close(rd->rd);
		token_log_dispose(&rd->view);
		buf_dispose(&rd->text);
		free(rd);
	}
	token_log_end(log, &well);
	token_log_unref(log);
	deliver(r);
	assert_int_equal(r->n_moved, 0);
}

static void a_log_is_bounded_and_loses_the_slowest(void **state)
{
	struct rig *r = *state;
	char text[FRAME_TEXT];
	memset(text, 'x', sizeof text);
	struct token_log *log = lead(r, "a");
	struct reader *fast = read_from(r, log), *slow = read_from(r, log);
	struct token_reader *none;
	size_t n = 3 * TOKEN_LOG_BYTES / FRAME_TEXT;
	take(slow, 1);
	for (size_t i = 0; i < n; i++) {
		put_tokens(log, 4, text, sizeof text);
		take(fast, MANY);
	}
	deliver(r);
	take(slow, 1);
	assert_true(slow->lost);
	assert_int_equal(fast->text.len, n * FRAME_TEXT);
	assert_int_equal(log->end - log->first, 4); /* the last frame: nobody has taken it before the next */
	assert_int_equal(token_log_read(log, &r->t, on_ready, r, &none), SL_ERANGE);
	/* A new one leads: what is half gone can't be joined. */
	struct request_digest d = digest_of(r, "a");
	struct token_log *next;
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &next), 0);
	assert_int_equal(coalesce_count(r->ts), 1);
	token_log_end(next, &well);
	token_log_unref(next);
	token_log_end(log, &well);
	take(fast, MANY);
	assert_true(fast->done);
	leave(r, fast);
	leave(r, slow);
	token_log_unref(log);
}

static void nobody_reads_so_nothing_is_kept_beyond_its_bound(void **state)
{
	struct rig *r = *state;
	char text[FRAME_TEXT];
	struct token_reader *none;
	memset(text, 'x', sizeof text);
	struct token_log *log = lead(r, "a");
	for (size_t i = 0; i < 2 * TOKEN_LOG_BYTES / FRAME_TEXT; i++)
		put_tokens(log, 4, text, sizeof text);
	assert_false(token_log_joinable(log));
	assert_int_equal(log->first, log->end);
	assert_int_equal(token_log_read(log, &r->t, on_ready, r, &none), SL_ERANGE);
	token_log_end(log, &well);
	token_log_unref(log);
}

static void without_memory_a_reader_is_lost_and_the_owner_is_not(void **state)
{
	struct rig *r = *state;
	struct token_log *log = lead(r, "a");
	struct reader *rd = read_from(r, log);
	no_memory = true;
	put_tokens(log, 1, "x", 1);
	put_tokens(log, 1, "y", 1);
	take(rd, MANY);
	assert_true(rd->lost);
	assert_int_equal(rd->n_tokens, 0);
	assert_false(token_log_joinable(log));
	token_log_end(log, &well);
	leave(r, rd);
	token_log_unref(log);
}

static void a_window_ends(void **state)
{
	struct rig *r = *state;
	fake_ns = 5 * NS_PER_S;
	clock_fake(&fake_ns);
	struct token_log *log = lead(r, "a"), *other;
	struct request_digest d = digest_of(r, "a");
	token_log_end(log, &well);
	fake_ns += NS_PER_S;
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &other), 1);
	assert_ptr_equal(other, log);
	token_log_unref(other);
	fake_ns += 1;
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &other), 0);
	assert_ptr_not_equal(other, log);
	token_log_unref(log);
	token_log_end(other, &well);
	token_log_unref(other);
}

static void what_failed_is_nobodys(void **state)
{
	struct rig *r = *state;
	struct proto_done badly = {.finish = PROTO_FINISH_ERROR, .error = PROTO_ERR_INTERNAL, .message = {"broken", 6}};
	struct token_log *log = lead(r, "a"), *other;
	struct request_digest d = digest_of(r, "a");
	struct reader *rd = read_from(r, log);
	token_log_end(log, &badly);
	take(rd, MANY);
	assert_true(rd->done);
	assert_memory_equal(rd->how.message.at, "broken", 6);
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &other), 0);
	token_log_end(other, &badly);
	token_log_unref(other);
	leave(r, rd);
	token_log_unref(log);
}

static void digests_differ_where_anything_does(void **state)
{
	struct rig *r = *state;
	struct inflight *elsewhere;
	struct request_digest a = digest_of(r, "a"), b = digest_of(r, "b"), again = digest_of(r, "a"), c;
	assert_int_equal(inflight_create(&elsewhere), 0);
	inflight_digest(elsewhere, &(struct iovec){"a", 1}, 1, &c);
	assert_memory_equal(&a, &again, sizeof a);
	assert_memory_not_equal(&a, &b, sizeof a);
	assert_memory_not_equal(&a, &c, sizeof a); /* another secret */
	coalesce_drop_ended(elsewhere);
	inflight_destroy(elsewhere);
}

static void the_directory_is_bounded(void **state)
{
	struct rig *r = *state;
	struct token_log **all = calloc(INFLIGHT_MAX_NAMES, sizeof *all), *none;
	char what[16];
	assert_non_null(all);
	for (int i = 0; i < INFLIGHT_MAX_NAMES; i++) {
		snprintf(what, sizeof what, "%d", i);
		all[i] = lead(r, what);
	}
	struct request_digest d = digest_of(r, "one more");
	assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &none), 0);
	assert_null(none);
	token_log_end(all[0], &well); /* with its window it still stands there */
	assert_int_equal(coalesce_count(r->ts), INFLIGHT_MAX_NAMES);
	for (int i = 0; i < INFLIGHT_MAX_NAMES; i++) {
		if (i > 0)
			token_log_end(all[i], &well);
		token_log_unref(all[i]);
	}
	free(all);
}

static void a_retry_finds_its_answer_until_it_is_forgotten(void **state)
{
	struct rig *r = *state;
	struct request_digest key = digest_of(r, "key");
	struct coalesce_claim claim = {.body = digest_of(r, "body"),
				       .id = "chatcmpl-1",
				       .created = 7,
				       .log = lead(r, "a")},
			      found;
	struct coalesce_name *name = coalesce_name(r->ts, &key, &claim);
	assert_non_null(name);
	assert_null(coalesce_name(r->ts, &key, &claim));
	assert_true(coalesce_find(r->ts, &key, &found));
	assert_string_equal(found.id, "chatcmpl-1");
	assert_int_equal(found.created, 7);
	assert_ptr_equal(found.log, claim.log);
	assert_memory_equal(&found.body, &claim.body, sizeof found.body);
	token_log_unref(found.log);
	coalesce_forget(r->ts, name);
	assert_false(coalesce_find(r->ts, &key, &found));
	token_log_end(claim.log, &well);
	token_log_unref(claim.log);
}

static void without_memory_nobody_leads_nor_joins(void **state)
{
	struct rig *r = *state;
	struct request_digest d = digest_of(r, "a");
	struct token_log *log;
	for (long n = 1; n < 3; n++) {
		fault_arm(FAULT_ALLOC, n, 1);
		assert_int_equal(coalesce_enter(r->ts, &d, NS_PER_S, &log), 0);
		fault_disarm_all();
		assert_null(log);
		assert_int_equal(coalesce_count(r->ts), 0);
	}
	log = lead(r, "a");
	struct token_reader *rd;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(token_log_read(log, &r->t, on_ready, r, &rd), SL_ENOMEM);
	fault_disarm_all();
	token_log_end(log, &well);
	token_log_unref(log);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(early_and_late_readers_get_the_same),
	    T(the_owner_hears_of_the_fastest_and_of_the_last),
	    T(who_goes_at_once_leaves_nothing),
	    T(a_log_is_bounded_and_loses_the_slowest),
	    T(nobody_reads_so_nothing_is_kept_beyond_its_bound),
	    T(without_memory_a_reader_is_lost_and_the_owner_is_not),
	    T(a_window_ends),
	    T(what_failed_is_nobodys),
	    T(digests_differ_where_anything_does),
	    T(the_directory_is_bounded),
	    T(a_retry_finds_its_answer_until_it_is_forgotten),
	    T(without_memory_nobody_leads_nor_joins),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
