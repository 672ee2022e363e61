/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict HTTP/1.1 reader against the grammar and against smuggling.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "gateway/transport/h1_parse.h"

#define GET "GET / HTTP/1.1\r\n"
#define HOST "Host: localhost\r\n"
#define POST "POST /x HTTP/1.1\r\n" HOST

/* A copy of exactly n bytes, so that a sanitizer sees a read past the end. */
static uint8_t *exact(const void *text, size_t n)
{
	uint8_t *p = malloc(n ? n : 1);
	assert_non_null(p);
	memcpy(p, text, n);
	return p;
}

/* Scans and parses: 0, a status, or -1 when the scan wants more. */
static int read_head(const char *text, size_t n, size_t max_fields, struct h1_head *head)
{
	uint8_t *data = exact(text, n);
	struct h1_scan sc = {0};
	enum h1_scan_result r = h1_scan_head(&sc, data, n);
	int rc = r == H1_SCAN_BAD ? 400 : r == H1_SCAN_MORE ? -1 : h1_parse_head(data, sc.pos, max_fields, head);
	free(data);
	return rc;
}

struct head_case {
	const char *name;
	const char *text;
	size_t n; /* 0: strlen */
	int status;
};

static const struct head_case bad_heads[] = {
    {"length and coding", POST "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 400},
    {"coding and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n", 0, 400},
    {"coding xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n", 0, 400},
    {"coding chunked, identity", POST "Transfer-Encoding: chunked, identity\r\n\r\n", 0, 400},
    {"coding gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, 400},
    {"coding chunked chunked", POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 0, 400},
    {"coding identity", POST "Transfer-Encoding: identity\r\n\r\n", 0, 400},
    {"coding empty", POST "Transfer-Encoding:\r\n\r\n", 0, 400},
    {"coding with parameter", POST "Transfer-Encoding: chunked;a=b\r\n\r\n", 0, 400},
    {"coding with vertical tab",
     POST "Transfer-Encoding: \x0b"
	  "chunked\r\n\r\n",
     0, 400},
    {"coding space colon", POST "Transfer-Encoding : chunked\r\n\r\n", 0, 400},
    {"coding twice", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 400},
    {"coding in 1.0", "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0, 400},
    {"length twice, equal", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0, 400},
    {"length twice", POST "Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 0, 400},
    {"length list", POST "Content-Length: 5, 5\r\n\r\n", 0, 400},
    {"length +5", POST "Content-Length: +5\r\n\r\n", 0, 400},
    {"length -1", POST "Content-Length: -1\r\n\r\n", 0, 400},
    {"length 0x5", POST "Content-Length: 0x5\r\n\r\n", 0, 400},
    {"length 5 5", POST "Content-Length: 5 5\r\n\r\n", 0, 400},
    {"length empty", POST "Content-Length:\r\n\r\n", 0, 400},
    {"length huge", POST "Content-Length: 18446744073709551617\r\n\r\n", 0, 400},
    {"folded", GET HOST "X-A: b\r\n c\r\n\r\n", 0, 400},
    {"folded by tab", GET HOST "X-A: b\r\n\tc\r\n\r\n", 0, 400},
    {"NUL in value", GET HOST "X-A: b\0c\r\n\r\n", sizeof(GET HOST "X-A: b\0c\r\n\r\n") - 1, 400},
    {"DEL in value",
     GET HOST "X-A: b\x7f"
	      "c\r\n\r\n",
     0, 400},
    {"bare CR in value", GET HOST "X-A: b\rc\r\n\r\n", 0, 400},
    {"bare LF", "GET / HTTP/1.1\nHost: localhost\n\n", 0, 400},
    {"bare LF in value", GET HOST "X-A: b\nc\r\n\r\n", 0, 400},
    {"CR CR LF", GET HOST "X-A: b\r\r\n\r\n", 0, 400},
    {"no host", GET "\r\n", 0, 400},
    {"two hosts", GET HOST "Host: evil\r\n\r\n", 0, 400},
    {"two equal hosts", GET HOST HOST "\r\n", 0, 400},
    {"host with path", GET "Host: a/b\r\n\r\n", 0, 400},
    {"host with blank", GET "Host: a b\r\n\r\n", 0, 400},
    {"host with user", GET "Host: a@b\r\n\r\n", 0, 400},
    {"host with user and password", GET "Host: a:b@c:80\r\n\r\n", 0, 400},
    {"host empty", GET "Host:\r\n\r\n", 0, 400},
    {"host with a name as port", GET "Host: a:b\r\n\r\n", 0, 400},
    {"host with half a bracket", GET "Host: [::1\r\n\r\n", 0, 400},
    {"empty name", GET HOST ": b\r\n\r\n", 0, 400},
    {"no colon", GET HOST "X-A\r\n\r\n", 0, 400},
    {"name with blank", GET HOST "X A: b\r\n\r\n", 0, 400},
    {"name with bracket", GET HOST "X(A: b\r\n\r\n", 0, 400},
    {"name not ASCII", GET HOST "X-\xc3\xa4: b\r\n\r\n", 0, 400},
    {"leading empty line", "\r\n" GET HOST "\r\n", 0, 400},
    {"leading blank", " GET / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"two blanks", "GET  / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"blank before version", "GET /  HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"blank after version", "GET / HTTP/1.1 \r\n" HOST "\r\n", 0, 400},
    {"tab for blank", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"no version", "GET /\r\n" HOST "\r\n", 0, 400},
    {"version lower case", "GET / http/1.1\r\n" HOST "\r\n", 0, 400},
    {"version 1.10", "GET / HTTP/1.10\r\n" HOST "\r\n", 0, 400},
    {"version 1.x", "GET / HTTP/1.x\r\n" HOST "\r\n", 0, 400},
    {"version 2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 0, 505},
    {"version 1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", 0, 505},
    {"method with bracket", "G(T / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"method long", "GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG / HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"connect", "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 0, 501},
    {"target relative", "GET x HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target fragment", "GET /#a HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target not ASCII", "GET /\xff HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target asterisk", "GET * HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target no authority", "GET http:/// HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target user", "GET http://u@h/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target user and password", "GET http://u:p@h:80/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target port alone", "GET http://:80/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target port too large", "GET http://h:65536/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"target ftp", "GET ftp://h/ HTTP/1.1\r\n" HOST "\r\n", 0, 400},
    {"expectation", POST "Expect: tea\r\n\r\n", 0, 417},
};

static void bad_heads_are_rejected(void **state)
{
	(void)state;
	struct h1_head head;
	for (size_t i = 0; i < sizeof bad_heads / sizeof *bad_heads; i++) {
		const struct head_case *c = &bad_heads[i];
		int got = read_head(c->text, c->n ? c->n : strlen(c->text), 100, &head);
		if (got != c->status)
			fail_msg("%s: %d, not %d", c->name, got, c->status);
	}
}

static void expect_span(const char *text, struct h1_span s, const char *want)
{
	assert_int_equal(s.len, strlen(want));
	assert_memory_equal(text + s.off, want, s.len);
}

static void a_head_is_read(void **state)
{
	(void)state;
	static const char text[] = "POST /a/b?c=%20d HTTP/1.1\r\n"
				   "hOST: Example.com:8080\r\n"
				   "Content-LENGTH:  12\t\r\n"
				   "X-Empty:\r\n"
				   "X-High: \xc3\xa4\r\n"
				   "Connection: keep-alive, CLOSE\r\n"
				   "Expect: 100-Continue\r\n"
				   "\r\nrest";
	struct h1_head head;
	assert_int_equal(read_head(text, sizeof text - 1, 100, &head), 0);
	expect_span(text, head.method, "POST");
	expect_span(text, head.target, "/a/b?c=%20d");
	expect_span(text, head.authority, "Example.com:8080");
	assert_int_equal(head.minor, 1);
	assert_int_equal(head.content_length, 12);
	assert_false(head.chunked);
	assert_true(head.close);
	assert_true(head.expect_continue);
	assert_int_equal(head.n_fields, 6);
	expect_span(text, head.fields[1].value, "12");
	expect_span(text, head.fields[2].value, "");
	expect_span(text, head.fields[3].value, "\xc3\xa4");
}

static void target_forms(void **state)
{
	(void)state;
	struct h1_head head;
	static const char absolute[] = "GET HTTP://a.b:1/p?q HTTP/1.1\r\nHost: other\r\n\r\n";
	assert_int_equal(read_head(absolute, sizeof absolute - 1, 100, &head), 0);
	expect_span(absolute, head.target, "/p?q");
	expect_span(absolute, head.authority, "a.b:1");
	assert_false(head.target_is_root);
	static const char bare[] = "GET https://a?q HTTP/1.1\r\nHost: a\r\n\r\n";
	assert_int_equal(read_head(bare, sizeof bare - 1, 100, &head), 0);
	expect_span(bare, head.target, "?q");
	assert_true(head.target_is_root);
	static const char star[] = "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
	assert_int_equal(read_head(star, sizeof star - 1, 100, &head), 0);
	expect_span(star, head.target, "*");
}

static void http_1_0_needs_no_host_and_closes(void **state)
{
	(void)state;
	struct h1_head head;
	static const char text[] = "GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n";
	assert_int_equal(read_head(text, sizeof text - 1, 100, &head), 0);
	assert_int_equal(head.minor, 0);
	assert_true(head.close);
	assert_false(head.expect_continue);
	assert_int_equal(head.content_length, -1);
}

static void close_is_a_whole_option(void **state)
{
	(void)state;
	struct h1_head head;
	static const char text[] = GET HOST "Connection: closed, not-close\r\n\r\n";
	assert_int_equal(read_head(text, sizeof text - 1, 100, &head), 0);
	assert_false(head.close);
}

static void fields_are_counted(void **state)
{
	(void)state;
	struct h1_head head;
	static const char text[] = GET HOST "A: 1\r\nB: 2\r\n\r\n";
	assert_int_equal(read_head(text, sizeof text - 1, 3, &head), 0);
	assert_int_equal(read_head(text, sizeof text - 1, 2, &head), 431);
	char many[sizeof GET + 4 * (H1_MAX_FIELDS + 8) + 64] = GET HOST;
	for (int i = 0; i < H1_MAX_FIELDS; i++)
		strcat(many, "a:\r\n");
	strcat(many, "\r\n");
	assert_int_equal(read_head(many, strlen(many), 100000, &head), 431);
}

static void long_target_is_414(void **state)
{
	(void)state;
	struct h1_head head;
	static char text[9000] = "GET /";
	memset(text + 5, 'a', 8500);
	strcpy(text + 8505, " HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(read_head(text, strlen(text), 100, &head), 414);
}

/* However the bytes are cut, the scan ends at the same place and looks at each byte once. */
static void scan_in_pieces(void **state)
{
	(void)state;
	static const char text[] = GET HOST "X: y\r\n\r\nBODY\r\n\r\n";
	size_t head = strlen(GET HOST "X: y\r\n\r\n");
	struct h1_scan sc = {0};
	for (size_t n = 1; n < head; n++) {
		assert_int_equal(h1_scan_head(&sc, (const uint8_t *)text, n), H1_SCAN_MORE);
		assert_int_equal(sc.pos, n);
	}
	assert_int_equal(h1_scan_head(&sc, (const uint8_t *)text, sizeof text - 1), H1_SCAN_DONE);
	assert_int_equal(sc.pos, head);
}

/* ---- chunked ---- */

/* Feeds text in pieces of `step`; the body goes to out. 1 done, 0 not yet, or a code. *taken. */
static int read_chunked(const char *text, size_t n, size_t step, char *out, size_t *n_out, size_t *taken)
{
	struct h1_chunked ch = {0};
	bool done = false;
	size_t at = 0;
	*n_out = 0;
	while (at < n && !done) {
		size_t piece = n - at < step ? n - at : step, used, n_body;
		const uint8_t *body;
		uint8_t *data = exact(text + at, piece);
		int rc = h1_chunked_feed(&ch, data, piece, &used, &body, &n_body, &done);
		if (rc == 0 && n_body > 0) {
			memcpy(out + *n_out, body, n_body);
			*n_out += n_body;
		}
		free(data);
		if (rc != 0)
			return rc;
		assert_true(used > 0 && used <= piece);
		at += used;
	}
	*taken = at;
	return done;
}

static void chunked_bodies(void **state)
{
	(void)state;
	static const char text[] = "5\r\nhello\r\n00A;ext=\"v\"\r\n, chunked!\r\n0;last\r\n"
				   "X-T: 1\r\nY:\r\n\r\nNEXT";
	for (size_t step = 1; step < sizeof text; step++) {
		char out[64];
		size_t n, taken;
		assert_int_equal(read_chunked(text, sizeof text - 1, step, out, &n, &taken), 1);
		assert_int_equal(n, 15);
		assert_memory_equal(out, "hello, chunked!", 15);
		assert_int_equal(taken, sizeof text - 1 - 4);
	}
}

static const char *const bad_chunked[] = {
    "0x5\r\nhello\r\n0\r\n\r\n",
    "-1\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "\r\nhello",
    ";a\r\n",
    "g\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "5;a=b\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n",
    "5\r\nhelloXX0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r0\r\n\r\n",
    "5\rhello",
    "0\r\n\n",
    "0\r\nA b: c\r\n\r\n",
    "0\r\n: c\r\n\r\n",
    "0\r\nAb\r\n\r\n",
    "0\r\n a: b\r\n\r\n",
    "0\r\na: b\rc\r\n\r\n",
    "0\r\na: b\x01\r\n\r\n",
    "5;\x01\r\nhello",
};

static void bad_chunked_bodies_are_rejected(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad_chunked / sizeof *bad_chunked; i++) {
		for (size_t step = 1; step < 32; step += 5) {
			char out[64];
			size_t n, taken;
			int rc = read_chunked(bad_chunked[i], strlen(bad_chunked[i]), step, out, &n, &taken);
			if (rc != SL_EPROTO)
				fail_msg("%s: %d", bad_chunked[i], rc);
		}
	}
}

static void chunk_extras_are_bounded(void **state)
{
	(void)state;
	/* One extension byte a chunk, for ever. */
	struct h1_chunked ch = {0};
	int rc = 0;
	size_t chunks = 0;
	while (rc == 0 && chunks < 2 * H1_CHUNK_EXTRA_MAX) {
		static const uint8_t chunk[] = "1;x\r\na\r\n";
		size_t at = 0, used, n_body;
		const uint8_t *body;
		bool done;
		while (rc == 0 && at < sizeof chunk - 1) {
			rc = h1_chunked_feed(&ch, chunk + at, sizeof chunk - 1 - at, &used, &body, &n_body, &done);
			at += used;
		}
		chunks++;
	}
	assert_int_equal(rc, SL_EPROTO);
	assert_int_equal(chunks, H1_CHUNK_EXTRA_MAX + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bad_heads_are_rejected),
	    cmocka_unit_test(a_head_is_read),
	    cmocka_unit_test(target_forms),
	    cmocka_unit_test(http_1_0_needs_no_host_and_closes),
	    cmocka_unit_test(close_is_a_whole_option),
	    cmocka_unit_test(fields_are_counted),
	    cmocka_unit_test(long_target_is_414),
	    cmocka_unit_test(scan_in_pieces),
	    cmocka_unit_test(chunked_bodies),
	    cmocka_unit_test(bad_chunked_bodies_are_rejected),
	    cmocka_unit_test(chunk_extras_are_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
