/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the engine on its real loop, against an engine that the test plays on a real socket: a listener that
 * counts, and the engine's words.
 */
#ifndef TESTS_GATEWAY_LINK_RIG_H
#define TESTS_GATEWAY_LINK_RIG_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "gateway/generation/engine_link.h"
#include "gateway/loop/thread.h"

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

#define TURN_UNTIL(r, cond)                                           \
	do {                                                          \
		struct timespec start_, now_;                         \
		clock_gettime(CLOCK_MONOTONIC, &start_);              \
		while (!(cond)) {                                     \
			assert_int_equal(gw_thread_turn(&(r)->t), 0); \
			clock_gettime(CLOCK_MONOTONIC, &now_);        \
			if (now_.tv_sec - start_.tv_sec > PATIENCE_S) \
				fail_msg("never: %s", #cond);         \
		}                                                     \
	} while (0)

/* ---- the listener ---- */

static inline void forget_another(struct seq *s)
{
	if (s->forgets != NULL)
		engine_link_forget(s->rig->link, s->forgets->id);
}

static inline void on_queued(void *ctx, const struct proto_queued *m)
{
	struct seq *s = ctx;
	(void)m;
	s->queued++;
	forget_another(s);
}

static inline void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct seq *s = ctx;
	size_t n = strlen(s->text);
	s->tokens += m->n;
	snprintf(s->text + n, sizeof s->text - n, "%.*s", (int)m->text.n, m->text.at);
	forget_another(s);
}

static inline void on_choice(void *ctx, const struct proto_choice *m)
{
	struct seq *s = ctx;
	s->choices |= 1u << m->choice;
}

static inline void on_done(void *ctx, const struct proto_done *m)
{
	struct seq *s = ctx;
	s->done++;
	s->finish = m->finish;
	forget_another(s);
}

static const struct link_listener listener;

static inline int submit_as(struct rig *r, struct seq *s, size_t prompt_bytes, uint8_t priority)
{
	static char prompt[BIG_BYTES];
	struct proto_submit req = {
	    PROTO_SUBMIT_OFF,     .prompt_kind = PROTO_PROMPT_TEXT, .temperature = 1, .top_p = 1, .max_tokens = 9,
	    .priority = priority, .prompt = {prompt, prompt_bytes}};
	s->rig = r;
	return engine_link_submit(r->link, &req, &listener, s, &s->id);
}

static inline int submit(struct rig *r, struct seq *s, size_t prompt_bytes) { return submit_as(r, s, prompt_bytes, 0); }

static inline void on_lost(void *ctx)
{
	struct seq *s = ctx;
	s->lost++;
	forget_another(s);
	if (s->submits)
		s->submit_rc = submit(s->rig, s, 1);
}

static const struct link_listener listener = {
    .on_queued = on_queued, .on_tokens = on_tokens, .on_choice = on_choice, .on_done = on_done, .on_lost = on_lost};

/* ---- the engine's side ---- */

static inline void take_input(struct rig *r)
{
	uint8_t bytes[65536];
	ssize_t n;
	while ((n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
		assert_int_equal(buf_append(&r->in, bytes, (size_t)n), 0);
}

static inline bool have_frame(struct rig *r, struct proto_head *h)
{
	take_input(r);
	return r->in.len >= PROTO_HEAD_BYTES && proto_head_read(buf_data(&r->in), h, NULL) == 0 &&
	       r->in.len >= PROTO_HEAD_BYTES + h->length;
}

static inline void say(struct rig *r, struct sl_buf *b)
{
	assert_int_equal(send(r->fd, buf_data(b), b->len, MSG_NOSIGNAL), (ssize_t)b->len);
	buf_dispose(b);
}

/* The next frame from the gateway. A PING that nobody expects is answered: a test may have waited long for a processor.
 */
static inline struct proto_head await(struct rig *r, uint8_t type)
{
	struct proto_head h;
	struct sl_buf b;
	for (;;) {
		TURN_UNTIL(r, have_frame(r, &h));
		if (h.type == type)
			return h;
		if (h.type != PROTO_PING)
			fail_msg("%s instead of %s", proto_type_name(h.type), proto_type_name(type));
		buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
		buf_init(&b, 64);
		assert_int_equal(proto_put_pong(&b, 1), 0);
		say(r, &b);
	}
}

/* The same, consumed. */
static inline struct proto_head expect(struct rig *r, uint8_t type)
{
	struct proto_head h = await(r, type);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	return h;
}

static inline bool try_accept(struct rig *r)
{
	if (r->fd >= 0)
		return true;
	r->fd = accept(r->listener, NULL, NULL);
	return r->fd >= 0;
}

static inline void await_connection(struct rig *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	buf_clear(&r->in, 0);
	TURN_UNTIL(r, try_accept(r));
}

static inline void put_hello(struct sl_buf *b, uint16_t version, uint16_t n_models)
{
	struct proto_hello m = {.version = version, .epoch = 1, .n_models = n_models, .name = {"test", 4}};
	assert_int_equal(proto_put_hello(b, &m), 0);
}

static inline void come_up(struct rig *r)
{
	struct sl_buf b;
	await_connection(r);
	expect(r, PROTO_HELLO);
	buf_init(&b, 4096);
	put_hello(&b, PROTO_VERSION, 0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_up(r->link));
}

static inline void put_tokens(struct sl_buf *b, uint64_t id, const char *text)
{
	struct proto_token t = {.n_bytes = (uint16_t)strlen(text)};
	struct proto_tokens m = {.n = 1, .tokens = &t, .text = {text, strlen(text)}};
	assert_int_equal(proto_put_tokens(b, id, &m), 0);
}

static inline void put_done(struct sl_buf *b, uint64_t id)
{
	struct proto_done m = {.finish = PROTO_FINISH_STOP, .message = {"", 0}};
	assert_int_equal(proto_put_done(b, id, &m), 0);
}

static inline void submitted(struct rig *r, struct seq *s)
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
