/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's processor time limits these measurements, so it parses nothing: it finds an event by the stamp at the
 * start of its token, even if a frame or a TLS record splits it.
 */
#include "cmd/bench/bench_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

static const char mark[] = "\"content\":\"t";

enum {
	OPEN_S = 60,
	STAMP_DIGITS = 20,
	TURN_MS = 100,
	ASK_AT_ONCE = 500,
	ASK_TURN_MS = 5,
	MARK_BYTES = sizeof mark - 1,
	TAIL_BYTES = MARK_BYTES + STAMP_DIGITS - 1
};

static const char stream_body[] = "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
				  "\"max_tokens\":1000000,\"stream\":true}";
static const char whole_body[] = "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
				 "\"max_tokens\":16}";

struct call {
	struct load_call call;
	struct bench_load *l;
	int conn;
	bool begun;
	size_t usual; /* offset of the stamp in the last piece with one; most pieces have the same */
	size_t n_tail;
	char tail[TAIL_BYTES]; /* the end of the last piece: a stamp may be split */
	uint64_t asked_ns;
};

struct bench_load {
	struct load_client *client;
	struct bench_load_shape shape;
	const char *key;
	struct call *calls;
	int n_calls, n_begun;
	bool failed;
	char why[128];
	uint64_t n;
	struct histogram times;
};

static void fail(struct bench_load *l, const char *why, const char *more)
{
	if (!l->failed)
		snprintf(l->why, sizeof l->why, "%s%s%s", why, more[0] != '\0' ? ": " : "", more);
	l->failed = true;
}

static int ask(struct call *c)
{
	struct bench_load *l = c->l;
	const char *body = l->shape.whole ? whole_body : stream_body;
	c->asked_ns = clock_now_ns();
	int rc = load_client_start(l->client, c->conn, &c->call, "/v1/chat/completions", l->key, body, strlen(body));
	if (rc != 0)
		fail(l, "a request could not be sent", load_client_why(l->client));
	return rc;
}

static void on_head(struct load_call *call, int status, uint64_t now_ns)
{
	(void)now_ns;
	struct call *c = (struct call *)(void *)call;
	char code[16];
	snprintf(code, sizeof code, "%d", status);
	if (status != 200)
		fail(c->l, "a response has the status", code);
}

static void take_stamp(struct call *c, const char *digits, uint64_t now_ns)
{
	struct bench_load *l = c->l;
	uint64_t made = 0;
	for (int i = 0; i < STAMP_DIGITS; i++)
		made = made * 10 + (uint64_t)(digits[i] - '0');
	l->n++;
	if (made <= now_ns)
		histogram_add(&l->times, now_ns - made);
	l->n_begun += !c->begun;
	c->begun = true;
}

/* Counts every complete stamp in the text that begins before from_end. */
static void take_stamps(struct call *c, const char *text, const char *from_end, const char *end, uint64_t now_ns)
{
	const char *at = text;
	while (at < from_end && (at = memmem(at, (size_t)(end - at), mark, MARK_BYTES)) != NULL && at < from_end) {
		at += MARK_BYTES;
		if (end - at < STAMP_DIGITS)
			return;
		c->usual = (size_t)(at - MARK_BYTES - text);
		take_stamp(c, at, now_ns);
		at += STAMP_DIGITS;
	}
}

/* Fast path for a piece that is exactly one event, as nearly all are: its stamp is usually where the last one was. */
static bool take_usual(struct call *c, const char *text, size_t n, uint64_t now_ns)
{
	size_t digits = c->usual + MARK_BYTES;
	if (c->usual == 0 || c->n_tail > 0 || n < digits + STAMP_DIGITS ||
	    memcmp(text + c->usual, mark, MARK_BYTES) != 0 || memchr(text, '\n', n) != text + n - 2)
		return false;
	take_stamp(c, text + digits, now_ns);
	return true;
}

static void on_data(struct load_call *call, const uint8_t *bytes, size_t n, uint64_t now_ns)
{
	struct call *c = (struct call *)(void *)call;
	const char *text = (const char *)bytes;
	char join[2 * TAIL_BYTES];
	size_t m = n < TAIL_BYTES ? n : TAIL_BYTES;
	if (c->l->shape.whole || take_usual(c, text, n, now_ns))
		return;
	memcpy(join, c->tail, c->n_tail);
	memcpy(join + c->n_tail, text, m);
	take_stamps(c, join, join + c->n_tail, join + c->n_tail + m, now_ns);
	take_stamps(c, text, text + n, text + n, now_ns);
	if (n > 0 && text[n - 1] == '\n') {
		c->n_tail = 0;
		return;
	}
	/* The tail is too short for a complete stamp, which would count twice. */
	size_t all = n < TAIL_BYTES ? c->n_tail + n : TAIL_BYTES, keep = all < TAIL_BYTES ? all : TAIL_BYTES;
	memcpy(c->tail, n < TAIL_BYTES ? join + all - keep : text + n - keep, keep);
	c->n_tail = keep;
}

static void on_end(struct load_call *call, enum load_end how, uint64_t now_ns)
{
	struct call *c = (struct call *)(void *)call;
	struct bench_load *l = c->l;
	if (how != LOAD_DONE || !l->shape.whole) {
		fail(l, how == LOAD_LOST ? "a connection broke" : "a response ended early", load_client_why(l->client));
		return;
	}
	l->n++;
	histogram_add(&l->times, now_ns - c->asked_ns);
	l->n_begun += !c->begun;
	c->begun = true;
	if (!l->failed)
		ask(c);
}

static const struct load_ops ops = {on_head, on_data, on_end};

static int connect_all(struct bench_load *l, struct sl_err *err)
{
	uint64_t deadline = clock_now_ns() + OPEN_S * NS_PER_S;
	/* A few at a time, so that no server's backlog overflows. */
	for (int i = 0; i < l->shape.n_conns; i++) {
		if (load_client_connect(l->client, i) != 0)
			return sl_errf(err, SL_EIO, "can't connect: %s", load_client_why(l->client));
		while (load_client_n_up(l->client) + 64 <= i + 1 && load_client_why(l->client)[0] == '\0' &&
		       clock_now_ns() < deadline)
			load_client_turn(l->client, clock_now_ns() + TURN_MS * NS_PER_MS);
	}
	while (load_client_n_up(l->client) < l->shape.n_conns) {
		load_client_turn(l->client, clock_now_ns() + TURN_MS * NS_PER_MS);
		if (load_client_why(l->client)[0] != '\0' || clock_now_ns() > deadline)
			return sl_errf(err, SL_EIO, "only %d of %d connections opened: %s", load_client_n_up(l->client),
				       l->shape.n_conns, load_client_why(l->client));
	}
	return 0;
}

static int ask_all(struct bench_load *l, struct sl_err *err)
{
	uint64_t deadline = clock_now_ns() + OPEN_S * NS_PER_S;
	for (int i = 0; i < l->n_calls && !l->failed; i++) {
		if (ask(&l->calls[i]) == 0 && i % ASK_AT_ONCE == ASK_AT_ONCE - 1)
			load_client_turn(l->client, clock_now_ns() + ASK_TURN_MS * NS_PER_MS);
	}
	while (l->n_begun < l->n_calls && !l->failed && clock_now_ns() < deadline)
		load_client_turn(l->client, clock_now_ns() + TURN_MS * NS_PER_MS);
	if (l->failed)
		return sl_errf(err, SL_EIO, "%s", l->why);
	return l->n_begun == l->n_calls
		   ? 0
		   : sl_errf(err, SL_ETIMEOUT, "only %d of %d responses began", l->n_begun, l->n_calls);
}

int bench_load_open(const struct load_target *target, const struct bench_load_shape *shape, const char *key,
		    struct bench_load **out, struct sl_err *err)
{
	struct bench_load *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	l->shape = *shape;
	l->key = key;
	l->n_calls = shape->n_conns * shape->n_streams;
	l->calls = sl_zalloc_n((size_t)l->n_calls, sizeof *l->calls);
	int rc = l->calls == NULL ? sl_errf(err, SL_ENOMEM, "out of memory")
				  : load_client_create(target, shape->n_conns, &l->client, err);
	for (int i = 0; rc == 0 && i < l->n_calls; i++) {
		l->calls[i] = (struct call){.call.ops = &ops, .l = l, .conn = i % shape->n_conns};
		list_init(&l->calls[i].call.node);
	}
	rc = rc == 0 ? connect_all(l, err) : rc;
	rc = rc == 0 ? ask_all(l, err) : rc;
	if (rc != 0) {
		bench_load_close(l);
		return rc;
	}
	bench_load_clear(l);
	*out = l;
	return 0;
}

int bench_load_run(struct bench_load *l, double seconds, struct sl_err *err)
{
	uint64_t end = clock_now_ns() + (uint64_t)(seconds * 1e9);
	while (clock_now_ns() < end && !l->failed)
		load_client_turn(l->client, end);
	return l->failed ? sl_errf(err, SL_EIO, "%s", l->why) : 0;
}

void bench_load_clear(struct bench_load *l)
{
	l->n = 0;
	histogram_clear(&l->times);
}

uint64_t bench_load_n(const struct bench_load *l) { return l->n; }
const struct histogram *bench_load_times(const struct bench_load *l) { return &l->times; }

void bench_load_close(struct bench_load *l)
{
	if (l == NULL)
		return;
	load_client_destroy(l->client);
	sl_free(l->calls);
	sl_free(l);
}
