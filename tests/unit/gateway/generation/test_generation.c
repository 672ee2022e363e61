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
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
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
	struct proto_model model = {
	    .state = PROTO_MODEL_READY, .role = 1, .does = PROTO_DOES_GENERATE, .n_ctx = 100, .name = {"m", 1}};
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
	struct rig *r = calloc(1, sizeof *r);
	struct sl_err err = {0};
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

/* sluice_itl_seconds…{…,paced="PACED"}. */
static double gap_metric(const char *what, const char *paced)
{
	struct sl_buf out;
	char name[120];
	buf_init(&out, 1 << 20);
	assert_int_equal(metrics_print(&out), 0);
	snprintf(name, sizeof name, "sluice_itl_seconds_%s{tier=\"gaps\",model=\"m\",paced=\"%s\"} ", what, paced);
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
		const char *label = paced ? "yes" : "no";
		struct latency_cells *cells = latency_of("gaps", "m", "");
		double n_before = gap_metric("count", label), sum_before = gap_metric("sum", label);
		struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .max_tokens = 9,
					   .prompt = {"p", 1}};
		uint32_t credit = 0;
		req.n = 2;
		req.rate_tps = paced ? 25 : 0;
		assert_int_equal(gen_start_fed(&r->t, &req, 8, &source, &credit, &r->sub, &r->gen), 0);
		gen_observe(r->gen, cells);
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
		struct observed_gaps gaps = gen_gaps(r->gen);
		assert_int_equal(gaps.n, 7);
		assert_int_equal(gaps.n_tokens, 7);
		assert_int_equal(gaps.sum_ns, 7 * 40 * NS_PER_MS);
		assert_int_equal(gaps.max_ns, 40 * NS_PER_MS);
		assert_int_equal(gaps.slow_ns, 0);
		gen_told.on_done(r->gen, &(struct proto_done){.finish = PROTO_FINISH_STOP, .message = {"", 0}});
		gen_unsubscribe(&r->sub);
	}
}

/* ---- one log for all readers ---- */

enum { ANSWER = 500, MAX_TEXT_BYTES = 1024, N_THREADS = 3 };

/* One that joined (or the first), and what it got. */
struct joiner {
	struct subscriber sub;
	struct generation *gen;
	bool reads; /* at once */
	char text[MAX_TEXT_BYTES];
	size_t n_text;
	bool ended_early; /* a choice's end was seen before its last token */
};

static long n_logged(void)
{
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	assert_int_equal(metrics_print(&out), 0);
	const char *at = strstr(buf_cstr(&out), "\nsluice_tokens_logged_total ");
	assert_non_null(at);
	long n = atol(strchr(at, ' ') + 1);
	buf_dispose(&out);
	return n;
}

static void read_all(struct joiner *j)
{
	struct gen_chunk c;
	while (gen_peek(j->gen, &j->sub, 5, &c)) {
		j->ended_early |= gen_choice_end(j->gen, &j->sub, 0) != 0;
		assert_true(c.n_tokens > 0 && c.n_tokens <= 5 && c.n_bytes == c.n_tokens);
		for (uint32_t i = 0; i < c.n_tokens; i++) {
			struct gen_token t;
			gen_token_at(j->gen, c.first_token + i, &t);
			assert_int_equal(t.id, c.first_token + i);
			assert_int_equal(t.tops[TOLD - 1].id, (c.first_token + i) * 10 + TOLD - 1);
		}
		assert_true(j->n_text + c.n_bytes < sizeof j->text);
		memcpy(j->text + j->n_text, c.text, c.n_bytes);
		j->n_text += c.n_bytes;
		gen_advance(&j->sub, c.n_tokens);
	}
}

static void joiner_queued(struct subscriber *s) { gen_admit(s->gen); }

static void joiner_progress(struct subscriber *s)
{
	struct joiner *j = list_entry(s, struct joiner, sub);
	if (j->reads)
		read_all(j);
}

static const struct proto_submit shared_request = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT,
						   .max_tokens = 9,  .n_top_logprobs = TOLD,
						   .seed = 77,       .prompt = {"p", 1}};

static void join(struct gw_thread *t, struct token_log *log, struct joiner *j, bool reads)
{
	*j = (struct joiner){.sub = {.on_queued = joiner_queued, .on_progress = joiner_progress}, .reads = reads};
	assert_int_equal(gen_join(t, log, &shared_request, LONG_WINDOW, &j->sub, &j->gen), 0);
}

static void check_whole(const struct joiner *j)
{
	assert_int_equal(gen_state(j->gen), GEN_FINISHED);
	assert_int_equal(gen_done(j->gen)->n_completion, ANSWER);
	assert_int_equal(gen_seed(j->gen), 77);
	assert_int_equal(gen_choice_end(j->gen, &j->sub, 0), PROTO_FINISH_STOP);
	assert_false(j->ended_early);
	assert_int_equal(j->n_text, ANSWER);
	for (uint64_t i = 0; i < ANSWER; i++)
		assert_int_equal(j->text[i], letter_of(i));
}

/* As a source: tokens first … first + n - 1. */
static void feed_run(struct generation *g, uint64_t first, uint16_t n)
{
	struct proto_token tokens[MOST_AT_ONCE];
	struct proto_id_f32 tops[MOST_AT_ONCE * TOLD];
	char text[MOST_AT_ONCE];
	struct sl_buf b;
	struct sl_err err;
	for (uint16_t i = 0; i < n; i++) {
		tokens[i] = (struct proto_token){.id = (uint32_t)(first + i), .n_bytes = 1};
		text[i] = letter_of(first + i);
		for (uint32_t k = 0; k < TOLD; k++)
			tops[i * TOLD + k] = (struct proto_id_f32){.id = (uint32_t)(first + i) * 10 + k};
	}
	struct proto_tokens m = {.n = n, .n_top = TOLD, .tokens = tokens, .tops = tops, .text = {text, n}};
	buf_init(&b, 65536);
	assert_int_equal(proto_put_tokens(&b, 1, &m), 0);
	assert_int_equal(proto_get_tokens(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &m, &err), 0);
	gen_told.on_tokens(g, &m);
	buf_dispose(&b);
}

static void on_log_end(void *ctx, struct token_log *log)
{
	(void)log;
	++*(int *)ctx;
}

struct shared_rig {
	struct joiner first;
	struct token_log *log;
	uint32_t credit;
	int n_ends;
};

static void start_shared(struct rig *r, struct shared_rig *sh, bool reads)
{
	static const struct gen_source source = {want_more, leave};
	*sh = (struct shared_rig){
	    .first = {.sub = {.on_queued = joiner_queued, .on_progress = joiner_progress}, .reads = reads}};
	sh->log = token_log_create(on_log_end, &sh->n_ends);
	assert_non_null(sh->log);
	assert_int_equal(
	    gen_start_fed(&r->t, &shared_request, LONG_WINDOW, &source, &sh->credit, &sh->first.sub, &sh->first.gen),
	    0);
	gen_share(sh->first.gen, sh->log);
}

/* Up to token `to`, as far as there is credit; a turn where there is none. */
static void feed_to(struct rig *r, struct shared_rig *sh, uint64_t to)
{
	uint64_t at;
	while ((at = gen_n_tokens(sh->first.gen)) < to) {
		uint64_t n = to - at < MOST_AT_ONCE ? to - at : MOST_AT_ONCE;
		n = n < sh->credit - at ? n : sh->credit - at;
		if (n > 0)
			feed_run(sh->first.gen, at, (uint16_t)n);
		else
			assert_int_equal(gw_thread_turn(&r->t), 0);
	}
}

static void end_well(struct shared_rig *sh)
{
	gen_told.on_done(sh->first.gen,
			 &(struct proto_done){
			     .finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = ANSWER, .message = {"", 0}});
}

/* Read by its own subscriber, from the beginning, from the middle on, and by one that reads only when all has ended. */
static void each_token_is_logged_once(void **state)
{
	struct rig *r = *state;
	struct shared_rig sh;
	struct joiner all[3];
	long before = n_logged();
	start_shared(r, &sh, true);
	join(&r->t, sh.log, &all[0], true);
	gen_told.on_queued(sh.first.gen, &(struct proto_queued){.n_prompt = 3});
	feed_to(r, &sh, ANSWER / 2);
	TURN_UNTIL(r, all[0].n_text == ANSWER / 2);
	join(&r->t, sh.log, &all[1], true);
	join(&r->t, sh.log, &all[2], false);
	feed_to(r, &sh, ANSWER);
	TURN_UNTIL(r, gen_state(all[2].gen) == GEN_RUNNING);
	end_well(&sh);
	assert_int_equal(sh.n_ends, 1);
	gen_unsubscribe(&sh.first.sub);
	TURN_UNTIL(r, gen_state(all[0].gen) == GEN_FINISHED && gen_state(all[1].gen) == GEN_FINISHED);
	assert_int_equal(gen_state(all[2].gen), GEN_RUNNING);
	assert_true(gen_n_tokens(all[2].gen) <= LONG_WINDOW);
	all[2].reads = true;
	read_all(&all[2]);
	TURN_UNTIL(r, gen_state(all[2].gen) == GEN_FINISHED);
	for (int i = 0; i < 3; i++) {
		check_whole(&all[i]);
		gen_unsubscribe(&all[i].sub);
	}
	token_log_unref(sh.log);
	assert_int_equal(n_logged() - before, ANSWER);
}

/* Nobody reads it but its own subscriber. */
static void a_log_of_its_own_logs_each_token_once(void **state)
{
	struct rig *r = *state;
	long before = n_logged();
	uint64_t id = start(r);
	gen_admit(r->gen);
	assert_int_equal(expect_credit(r), WINDOW);
	send_tokens(r, id, 4, "abcde");
	TURN_UNTIL(r, gen_n_tokens(r->gen) == 4);
	gen_advance(&r->sub, 4);
	assert_int_equal(n_logged() - before, 4);
}

/* The first one's subscriber reads nothing: the fastest reader paces the engine. Its own log waits for it. */
static void the_fastest_reader_paces_the_engine(void **state)
{
	struct rig *r = *state;
	struct shared_rig sh;
	struct joiner fast;
	start_shared(r, &sh, false);
	join(&r->t, sh.log, &fast, true);
	gen_told.on_queued(sh.first.gen, &(struct proto_queued){.n_prompt = 3});
	feed_to(r, &sh, ANSWER);
	end_well(&sh);
	TURN_UNTIL(r, gen_state(fast.gen) == GEN_FINISHED);
	check_whole(&fast);
	gen_unsubscribe(&fast.sub);
	read_all(&sh.first);
	check_whole(&sh.first);
	gen_unsubscribe(&sh.first.sub);
	token_log_unref(sh.log);
}

/* ---- on several threads ---- */

struct reading_thread {
	pthread_t thread;
	struct token_log *log; /* a reference */
	struct joiner j;
};

static void *read_on_a_thread(void *ctx)
{
	struct reading_thread *rt = ctx;
	struct gw_config cfg = {0};
	struct gw_thread t = {0};
	struct sl_err err = {0};
	assert_int_equal(gw_thread_init(&t, 0, &cfg, &err), 0);
	join(&t, rt->log, &rt->j, true);
	while (gen_state(rt->j.gen) < GEN_FINISHED)
		assert_int_equal(gw_thread_turn(&t), 0);
	check_whole(&rt->j);
	gen_unsubscribe(&rt->j.sub);
	token_log_unref(rt->log);
	gw_thread_dispose(&t);
	return NULL;
}

static void threads_read_one_log(void **state)
{
	struct rig *r = *state;
	struct shared_rig sh;
	struct reading_thread all[N_THREADS];
	long before = n_logged();
	start_shared(r, &sh, true);
	for (int i = 0; i < N_THREADS; i++) {
		all[i].log = token_log_ref(sh.log);
		assert_int_equal(pthread_create(&all[i].thread, NULL, read_on_a_thread, &all[i]), 0);
	}
	gen_told.on_queued(sh.first.gen, &(struct proto_queued){.n_prompt = 3});
	feed_to(r, &sh, ANSWER);
	end_well(&sh);
	check_whole(&sh.first);
	gen_unsubscribe(&sh.first.sub);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_join(all[i].thread, NULL), 0);
	token_log_unref(sh.log);
	assert_int_equal(n_logged() - before, ANSWER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(credit_follows_the_reader, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_log_grows_and_begins_anew, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(tokens_without_credit_fail_it, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(gaps_are_of_one_choice, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(each_token_is_logged_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_log_of_its_own_logs_each_token_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_fastest_reader_paces_the_engine, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(threads_read_one_log, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_last_reader_cancels, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_lost_engine_fails_it_and_the_link_comes_back, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
