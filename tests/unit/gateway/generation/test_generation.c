/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine link and the generations on it, against an engine that the test plays itself on a real
 * socket. The loop turns until what the test waits for is there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/generation/chat_metrics.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/generation.h"

enum { PATIENCE_S = 10, WINDOW = 4 };

struct rig {
	char dir[64], path[96];
	int listener, fd;
	struct gw_config cfg;
	struct gw_thread t;
	struct sl_buf in;
	struct subscriber sub;
	struct generation *gen;
	int n_queued, n_progress;
};

static void on_queued(struct subscriber *s) { list_entry(s, struct rig, sub)->n_queued++; }
static void on_progress(struct subscriber *s) { list_entry(s, struct rig, sub)->n_progress++; }

/* Turns the loop until the condition holds. */
#define TURN_UNTIL(r, cond)                                                  \
	do {                                                                 \
		uint64_t start_ = clock_now_ns();                            \
		while (!(cond)) {                                            \
			assert_int_equal(gw_thread_turn(&(r)->t), 0);        \
			if (clock_now_ns() - start_ > PATIENCE_S * NS_PER_S) \
				fail_msg("never: %s", #cond);                \
		}                                                            \
	} while (0)

/* The next frame from the gateway, or false when there is none yet. Consumed by drop_frame. */
static bool have_frame(struct rig *r, struct proto_head *h)
{
	uint8_t bytes[4096];
	ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);
	if (n > 0)
		assert_int_equal(buf_append(&r->in, bytes, (size_t)n), 0);
	return r->in.len >= PROTO_HEAD_BYTES && proto_head_read(buf_data(&r->in), h, NULL) == 0 &&
	       r->in.len >= PROTO_HEAD_BYTES + h->length;
}

static struct proto_head expect(struct rig *r, uint8_t type)
{
	struct proto_head h;
	TURN_UNTIL(r, have_frame(r, &h));
	if (h.type != type)
		fail_msg("%s instead of %s", proto_type_name(h.type), proto_type_name(type));
	return h;
}

static void drop_frame(struct rig *r, const struct proto_head *h)
{
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h->length);
}

static uint32_t expect_credit(struct rig *r)
{
	struct proto_head h = expect(r, PROTO_CREDIT);
	struct proto_credit c;
	assert_int_equal(proto_get_credit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &c, NULL), 0);
	drop_frame(r, &h);
	return c.n_tokens;
}

static void send_buf(struct rig *r, struct sl_buf *b)
{
	assert_int_equal(send(r->fd, buf_data(b), b->len, MSG_NOSIGNAL), (ssize_t)b->len);
	buf_dispose(b);
}

static void send_tokens(struct rig *r, uint64_t id, uint16_t n, const char *text)
{
	struct proto_token tokens[16] = {0};
	struct sl_buf b;
	buf_init(&b, 65536);
	for (uint16_t i = 0; i < n; i++)
		tokens[i].n_bytes = (uint16_t)(i + 1 < n ? 1 : strlen(text) - i);
	struct proto_tokens m = {.n = n, .tokens = tokens, .text = {text, strlen(text)}};
	assert_int_equal(proto_put_tokens(&b, id, &m), 0);
	send_buf(r, &b);
}

/* Up to a generation that is queued; returns its id. */
static uint64_t start_with(struct rig *r, uint32_t window, uint8_t n_top)
{
	struct sl_buf b;
	struct proto_hello hello = {.version = PROTO_VERSION, .epoch = 1, .n_models = 1, .name = {"test", 4}};
	struct proto_model model = {.state = PROTO_MODEL_READY, .role = 1, .n_ctx = 100, .name = {"m", 1}};
	r->fd = accept(r->listener, NULL, NULL);
	assert_true(r->fd >= 0);
	struct proto_head h = expect(r, PROTO_HELLO);
	drop_frame(r, &h);
	buf_init(&b, 65536);
	assert_int_equal(proto_put_hello(&b, &hello), 0);
	assert_int_equal(proto_put_model(&b, &model), 0);
	send_buf(r, &b);
	TURN_UNTIL(r, engine_link_up(r->t.link) && engine_link_find_model(r->t.link, "m") == 0);

	struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT,
				   .temperature = 1, .top_p = 1,
				   .max_tokens = 9,  .prompt = {"p", 1}};
	if (n_top > 0)
		req.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	req.n_top_logprobs = n_top;
	assert_int_equal(gen_start(&r->t, &req, window, &r->sub, &r->gen), 0);
	h = expect(r, PROTO_SUBMIT);
	drop_frame(r, &h);
	struct proto_queued q = {.n_prompt = 3};
	buf_init(&b, 65536);
	assert_int_equal(proto_put_queued(&b, h.id, &q), 0);
	send_buf(r, &b);
	TURN_UNTIL(r, r->n_queued == 1);
	assert_int_equal(gen_state(r->gen), GEN_QUEUED);
	assert_int_equal(gen_queued(r->gen)->n_prompt, 3);
	return h.id;
}

static uint64_t start(struct rig *r) { return start_with(r, WINDOW, 0); }

static int set_up(void **state)
{
	static bool registered;
	struct rig *r = calloc(1, sizeof *r);
	struct sl_err err = {0};
	if (!registered)
		gen_metrics_register(), chat_metrics_register(NULL, 0);
	registered = true;
	snprintf(r->dir, sizeof r->dir, "/tmp/sluice-gen-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	snprintf(r->path, sizeof r->path, "%s/s", r->dir);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", r->path);
	r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(r->listener, 4), 0);
	r->fd = -1;
	r->sub.on_queued = on_queued;
	r->sub.on_progress = on_progress;
	buf_init(&r->in, 1 << 20);
	assert_int_equal(gw_thread_init(&r->t, 0, &r->cfg, &err), 0);
	assert_int_equal(engine_link_create(&r->t, r->path, &r->t.link, &err), 0);
	*state = r;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *r = *state;
	gen_unsubscribe(&r->sub);
	engine_link_destroy(r->t.link);
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

static void credit_follows_the_reader(void **state)
{
	struct rig *r = *state;
	struct gen_chunk c;
	uint64_t id = start(r);
	gen_admit(r->gen);
	assert_int_equal(expect_credit(r), WINDOW);
	send_tokens(r, id, 4, "abcde");
	TURN_UNTIL(r, gen_n_tokens(r->gen) == 4);
	assert_true(gen_peek(r->gen, &r->sub, 2, &c));
	assert_int_equal(c.n_tokens, 2);
	assert_memory_equal(c.text, "ab", 2);
	gen_advance(&r->sub, 1);
	gen_advance(&r->sub, 1);
	assert_int_equal(expect_credit(r), 2); /* one credit for half a window */
	assert_true(gen_peek(r->gen, &r->sub, 100, &c));
	assert_int_equal(c.first_token, 2);
	assert_int_equal(c.n_bytes, 3);
	assert_memory_equal(c.text, "cde", 3);
	gen_advance(&r->sub, 2);
	assert_int_equal(expect_credit(r), 2);
	assert_false(gen_peek(r->gen, &r->sub, 100, &c));
}

enum { LONG_WINDOW = 64, TOLD = 2, LONG_ANSWER = 2000, MOST_AT_ONCE = 7 };

/* Token i: its letter, its id, and rivals whose ids follow from it. */
static char letter_of(uint64_t i) { return (char)('a' + i % 26); }

static void send_run(struct rig *r, uint64_t id, uint64_t first, uint16_t n)
{
	struct proto_token tokens[MOST_AT_ONCE];
	struct proto_id_f32 tops[MOST_AT_ONCE * TOLD];
	char text[MOST_AT_ONCE];
	struct sl_buf b;
	buf_init(&b, 65536);
	for (uint16_t i = 0; i < n; i++) {
		tokens[i] = (struct proto_token){.id = (uint32_t)(first + i), .n_bytes = 1};
		text[i] = letter_of(first + i);
		for (uint32_t k = 0; k < TOLD; k++)
			tops[i * TOLD + k] = (struct proto_id_f32){.id = (uint32_t)(first + i) * 10 + k};
	}
	struct proto_tokens m = {.n = n, .n_top = TOLD, .tokens = tokens, .tops = tops, .text = {text, n}};
	assert_int_equal(proto_put_tokens(&b, id, &m), 0);
	send_buf(r, &b);
}

static void check_log(struct rig *r)
{
	struct gen_chunk c;
	if (!gen_peek(r->gen, &r->sub, UINT32_MAX, &c))
		return;
	assert_int_equal(c.first_token + c.n_tokens, gen_n_tokens(r->gen));
	assert_int_equal(c.n_bytes, c.n_tokens);
	for (uint64_t i = c.first_token; i < c.first_token + c.n_tokens; i++) {
		struct gen_token t;
		gen_token_at(r->gen, i, &t);
		assert_int_equal(c.text[i - c.first_token], letter_of(i));
		assert_int_equal(t.id, i);
		assert_int_equal(t.n_bytes, 1);
		for (uint32_t k = 0; k < TOLD; k++)
			assert_int_equal(t.tops[k].id, i * 10 + k);
	}
}

/* Readers that lag by nothing, by a little and by the whole window find the same log. */
static void the_log_grows_and_begins_anew(void **state)
{
	struct rig *r = *state;
	uint64_t id = start_with(r, LONG_WINDOW, TOLD), sent = 0, credit = 0;
	uint32_t seed = 1;
	gen_admit(r->gen);
	credit = expect_credit(r);
	assert_int_equal(credit, LONG_WINDOW);
	while (sent < LONG_ANSWER) {
		struct proto_head h;
		while (have_frame(r, &h))
			credit += expect_credit(r);
		seed = seed * 1664525 + 1013904223;
		uint64_t n = 1 + (seed >> 16) % MOST_AT_ONCE, lag = (uint64_t)(sent / 300 % 3) * LONG_WINDOW / 2;
		n = n < credit - sent ? n : credit - sent;
		if (n > 0) {
			send_run(r, id, sent, (uint16_t)n);
			sent += n;
			TURN_UNTIL(r, gen_n_tokens(r->gen) == sent);
		}
		check_log(r);
		uint64_t held = sent - r->sub.next_token;
		/* Who lags by a whole window gives no credit. */
		if (n == 0 || held > lag)
			gen_advance(&r->sub, (uint32_t)(n == 0 ? held : held - lag));
		check_log(r);
		if (n == 0)
			TURN_UNTIL(r, have_frame(r, &h));
	}
	assert_int_equal(gen_state(r->gen), GEN_RUNNING);
}

static void tokens_without_credit_fail_it(void **state)
{
	struct rig *r = *state;
	uint64_t id = start(r);
	gen_admit(r->gen);
	assert_int_equal(expect_credit(r), WINDOW);
	send_tokens(r, id, WINDOW + 1, "abcde");
	TURN_UNTIL(r, gen_state(r->gen) == GEN_FAILED);
	assert_int_equal(gen_done(r->gen)->error, PROTO_ERR_INTERNAL);
	assert_int_equal(expect(r, PROTO_CANCEL).id, id);
}

static void the_last_reader_cancels(void **state)
{
	struct rig *r = *state;
	uint64_t id = start(r);
	gen_unsubscribe(&r->sub);
	assert_int_equal(expect(r, PROTO_CANCEL).id, id);
}

static void a_lost_engine_fails_it_and_the_link_comes_back(void **state)
{
	struct rig *r = *state;
	start(r);
	close(r->fd);
	TURN_UNTIL(r, gen_state(r->gen) == GEN_FAILED);
	assert_int_equal(gen_done(r->gen)->error, PROTO_ERR_NOT_READY);
	assert_int_equal(r->n_progress, 1);
	assert_false(engine_link_up(r->t.link));
	assert_int_equal(engine_link_model(r->t.link, 0)->state, PROTO_MODEL_LOADING);
	gen_unsubscribe(&r->sub);
	assert_int_equal(fcntl(r->listener, F_SETFL, O_NONBLOCK), 0);
	TURN_UNTIL(r, (r->fd = accept(r->listener, NULL, NULL)) >= 0);
	buf_clear(&r->in, 0);
	expect(r, PROTO_HELLO);
}

/* ---- gaps between tokens ---- */

static void want_more(void *ctx, uint32_t n_tokens) { *(uint32_t *)ctx += n_tokens; }
static void leave(void *ctx, struct http_hold *hold)
{
	(void)ctx;
	(void)hold;
}

static void tell_token(struct rig *r, uint8_t choice, uint64_t at_ms)
{
	struct proto_token t = {.n_bytes = 1};
	struct proto_tokens m = {.n = 1, .choice = choice, .tokens = &t, .text = {"a", 1}};
	struct sl_buf b;
	struct sl_err err;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_tokens(&b, 1, &m), 0);
	assert_int_equal(proto_get_tokens(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &m, &err), 0);
	r->t.now_ns = at_ms * NS_PER_MS;
	gen_told.on_tokens(r->gen, &m);
	buf_dispose(&b);
}

/* sluice_itl_seconds…{paced="PACED"}. */
static double gap_metric(const char *what, const char *paced)
{
	struct sl_buf out;
	char name[80];
	buf_init(&out, 1 << 20);
	assert_int_equal(metrics_print(&out), 0);
	snprintf(name, sizeof name, "sluice_itl_seconds_%s{paced=\"%s\"} ", what, paced);
	const char *at = strstr(buf_cstr(&out), name);
	assert_non_null(at);
	double value = strtod(at + strlen(name), NULL);
	buf_dispose(&out);
	return value;
}

/* Two choices with a token each 40 ms, 20 ms apart: the gaps are of 40 ms. What waits for its reader is no gap, and
 * what is paced is told apart. */
static void gaps_are_of_one_choice(void **state)
{
	static const struct gen_source source = {want_more, leave};
	struct rig *r = *state;
	for (int paced = 0; paced <= 1; paced++) {
		const char *label = paced ? "true" : "false";
		double n_before = gap_metric("count", label), sum_before = gap_metric("sum", label);
		struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .max_tokens = 9,
					   .prompt = {"p", 1}};
		uint32_t credit = 0;
		req.n = 2;
		req.rate_tps = paced ? 25 : 0;
		assert_int_equal(gen_start_fed(&r->t, &req, 8, &source, &credit, &r->sub, &r->gen), 0);
		gen_told.on_queued(r->gen, &(struct proto_queued){.n_prompt = 3});
		gen_admit(r->gen);
		assert_int_equal(credit, 8);
		for (uint64_t i = 0; i < 4; i++) {
			tell_token(r, 0, 1000 + 40 * i);
			tell_token(r, 1, 1020 + 40 * i);
		}
		assert_true(gap_metric("count", label) - n_before == 6);
		assert_true(fabs(gap_metric("sum", label) - sum_before - 6 * 0.040) < 1e-9);
		gen_advance(&r->sub, 8); /* only now it may go on */
		assert_int_equal(credit, 16);
		tell_token(r, 0, 9000);
		tell_token(r, 0, 9040);
		assert_true(gap_metric("count", label) - n_before == 7);
		assert_true(fabs(gap_metric("sum", label) - sum_before - 7 * 0.040) < 1e-9);
		gen_told.on_done(r->gen, &(struct proto_done){.finish = PROTO_FINISH_STOP, .message = {"", 0}});
		gen_unsubscribe(&r->sub);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(credit_follows_the_reader, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_log_grows_and_begins_anew, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(tokens_without_credit_fail_it, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(gaps_are_of_one_choice, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_last_reader_cancels, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_lost_engine_fails_it_and_the_link_comes_back, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
