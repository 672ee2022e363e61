/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of the load client: percentiles, the event reader, the HTTP/1.1 reply reader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "cmd/load/histogram.h"
#include "cmd/load/http1_reply.h"
#include "base/http/sse_read.h"

/* ---- histogram ---- */

static void percentiles_are_close(void **state)
{
	(void)state;
	struct histogram *h = calloc(1, sizeof *h);
	assert_int_equal(histogram_percentile(h, 50), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		histogram_add(h, i * 1000);
	static const double at[] = {1, 50, 95, 99, 99.9};
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		double want = at[i] / 100 * 1e8, got = (double)histogram_percentile(h, at[i]);
		assert_true(got >= want && got <= want * (1 + 1.0 / 64));
	}
	assert_int_equal(histogram_percentile(h, 100), 100000000);
	assert_true(histogram_mean(h) == 50000500);
	histogram_clear(h);
	histogram_add(h, UINT64_MAX);
	histogram_add(h, 0);
	assert_int_equal(histogram_percentile(h, 50), 0);
	assert_true(histogram_percentile(h, 100) == UINT64_MAX);
	free(h);
}

/* ---- events ---- */

struct seen {
	char text[512];
};

static void note(void *ctx, const char *data, size_t n)
{
	struct seen *s = ctx;
	strncat(s->text, data, n);
	strcat(s->text, "|");
}

static void events_in_any_pieces(void **state)
{
	(void)state;
	static const char body[] = ": ping\n\ndata: one\n\nid: 7\r\ndata: two\r\ndata:more\r\n\r\nevent: x\n\n"
				   "data\n\ndata:  space\r\rdatum: no\n\ndata: {\"a\":1}\n\ndata: cut";
	static const char want[] = "one|two\nmore|| space|{\"a\":1}|";
	for (size_t piece = 1; piece <= sizeof body; piece++) {
		struct seen s = {""};
		struct sse_read r;
		sse_read_init(&r, SSE_READ_MAX, note, &s);
		for (size_t at = 0; at < sizeof body - 1; at += piece) {
			size_t n = sizeof body - 1 - at < piece ? sizeof body - 1 - at : piece;
			assert_int_equal(sse_read_feed(&r, body + at, n), 0);
		}
		assert_string_equal(s.text, want);
		sse_read_dispose(&r);
	}
}

static void endless_lines_are_refused(void **state)
{
	(void)state;
	struct sse_read r;
	struct seen s = {""};
	char *mega = malloc(1 << 20);
	memset(mega, 'x', 1 << 20);
	sse_read_init(&r, SSE_READ_MAX, note, &s);
	int rc = 0;
	for (int i = 0; i < 8 && rc == 0; i++)
		rc = sse_read_feed(&r, mega, 1 << 20);
	assert_int_equal(rc, SL_ELIMIT);
	sse_read_dispose(&r);
	free(mega);
}

/* ---- HTTP/1.1 replies ---- */

struct reply_seen {
	int status;
	char body[256];
};

static void on_head(void *ctx, int status) { ((struct reply_seen *)ctx)->status = status; }

static void on_body(void *ctx, const uint8_t *bytes, size_t n)
{
	strncat(((struct reply_seen *)ctx)->body, (const char *)bytes, n);
}

static const struct http1_events events = {on_head, on_body};

static void check_reply(const char *wire, size_t n_reply, int status, const char *body, bool keep)
{
	struct http1_reply *r = malloc(sizeof *r);
	size_t n = strlen(wire);
	for (size_t piece = 1; piece <= n; piece++) {
		struct reply_seen s = {0};
		size_t at = 0, used;
		http1_reply_init(r);
		while (at < n && r->state != HTTP1_DONE) {
			size_t k = n - at < piece ? n - at : piece;
			assert_int_equal(http1_reply_feed(r, &events, &s, (const uint8_t *)wire + at, k, &used), 0);
			at += used;
		}
		assert_int_equal(at, n_reply);
		assert_true(http1_reply_eof(r));
		assert_int_equal(s.status, status);
		assert_string_equal(s.body, body);
		assert_int_equal(r->keep, keep);
	}
	free(r);
}

static void replies_of_every_kind(void **state)
{
	(void)state;
	static const char by_length[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello";
	check_reply(by_length, sizeof by_length - 1, 404, "hello", true);
	static const char chunked[] =
	    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
	    "3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
	check_reply(chunked, sizeof chunked - 1, 200, "abc0123456789", true);
	static const char to_end[] = "HTTP/1.0 200 OK\r\n\r\nall of it";
	check_reply(to_end, sizeof to_end - 1, 200, "all of it", false);
	static const char empty[] = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
	check_reply(empty, sizeof empty - 1, 204, "", false);
	/* What follows belongs to the next one. */
	static const char two[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 X\r\n";
	check_reply(two, 38, 200, "", true);
}

static void bad_replies(void **state)
{
	(void)state;
	static const char *const wires[] = {"SSH-2.0-x\r\n", "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1 200 OK\r\nnonsense\r\n",
					    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
					    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"};
	struct http1_reply *r = malloc(sizeof *r);
	for (size_t i = 0; i < sizeof wires / sizeof *wires; i++) {
		struct reply_seen s = {0};
		size_t used;
		http1_reply_init(r);
		assert_int_equal(http1_reply_feed(r, &events, &s, (const uint8_t *)wires[i], strlen(wires[i]), &used),
				 SL_EPROTO);
	}
	http1_reply_init(r);
	assert_false(http1_reply_eof(r));
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(percentiles_are_close),
	    cmocka_unit_test(events_in_any_pieces),
	    cmocka_unit_test(endless_lines_are_refused),
	    cmocka_unit_test(replies_of_every_kind),
	    cmocka_unit_test(bad_replies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
