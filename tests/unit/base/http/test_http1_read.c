/* SPDX-License-Identifier: Apache-2.0
 *
 * A response reads the same however it is cut into pieces, and a malformed one is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/http/http1_read.h"

enum { LINES_MOST = 256 };

struct seen {
	char body[256];
	size_t n, n_lines, stop_at; /* stop_at: bytes of the body, then false */
};

static bool on_line(void *ctx, const char *line, size_t n)
{
	struct seen *s = ctx;
	assert_true(n > 0 && line[n - 1] == '\n');
	s->n_lines++;
	return true;
}

static bool on_body(void *ctx, const char *bytes, size_t n)
{
	struct seen *s = ctx;
	assert_true(n > 0 && s->n + n < sizeof s->body);
	memcpy(s->body + s->n, bytes, n);
	s->n += n;
	return s->stop_at == 0 || s->n < s->stop_at;
}

static void begin(struct http1_read *h, struct seen *s)
{
	*s = (struct seen){.n = 0};
	http1_read_init(h, LINES_MOST);
	h->on_line = on_line;
	h->on_body = on_body;
	h->ctx = s;
	http1_read_begin(h);
}

/* In pieces of `step` bytes; *used: bytes read in all. */
static enum http1_result feed(struct http1_read *h, const char *text, size_t n, size_t step, size_t *used)
{
	enum http1_result r = HTTP1_READ_MORE;
	*used = 0;
	while (r == HTTP1_READ_MORE && *used < n) {
		size_t k, piece = n - *used < step ? n - *used : step;
		r = http1_read_feed(h, text + *used, piece, &k);
		*used += k;
	}
	return r;
}

#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

static const struct {
	const char *text, *body;
	enum http1_result result;
	bool keeps;
	int status;
} cases[] = {
    {CHUNKED "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n", "hello world", HTTP1_READ_DONE, true, 200},
    {CHUNKED "b \r\nhello world\r\n000\r\nTrailer: x\r\n\r\n", "hello world", HTTP1_READ_DONE, true, 200},
    {OK "transfer-encoding:CHUNKED\nConnection: Keep-Alive, Close\n\n1\na\n0\n\n", "a", HTTP1_READ_DONE, false, 200},
    {OK "Content-Length: 4\r\n\r\nbody", "body", HTTP1_READ_DONE, true, 200},
    {OK "Content-Length: 4\r\ncontent-length: 4\r\n\r\nbody", "body", HTTP1_READ_DONE, true, 200},
    {OK "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "a", HTTP1_READ_DONE, false, 200},
    {OK "Content-Length: 0\r\n\r\n", "", HTTP1_READ_DONE, true, 200},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "x", HTTP1_READ_DONE, false, 200},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx", "x", HTTP1_READ_DONE, true, 200},
    {"HTTP/1.1 204 No Content\r\n\r\n", "", HTTP1_READ_DONE, true, 204},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 429 No\r\nContent-Length: "
     "2\r\n\r\nno",
     "no", HTTP1_READ_DONE, true, 429},
    {OK "Content-Length: 4\r\n\r\nbod", "bod", HTTP1_READ_MORE, false, 200},
    {CHUNKED "5\r\nabc", "abc", HTTP1_READ_MORE, false, 200},
    {CHUNKED "5\r\nhello\r\n0\r\n", "hello", HTTP1_READ_MORE, false, 200},
    {OK "\r\nuntil it closes", "until it closes", HTTP1_READ_MORE, false, 200},
    {"220 mail.example ESMTP\r\n", "", HTTP1_READ_NO_HTTP, false, 0},
    {OK "nonsense\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 200},
    {OK "x: a\r\n folded\r\nContent-Length: 0\r\n\r\n", "", HTTP1_READ_DONE, true, 200},
    {OK "Content-Length: 0\r\n\r\n", "", HTTP1_READ_DONE, true, 200},
    {"HTTP/2 200\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 0},
    {"HTTP/1.1 2x0 OK\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 0},
    {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 101},
    {OK "Content-Length: 4\r\nContent-Length: 5\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 200},
    {OK "Content-Length: -1\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 200},
    {OK "Content-Length: 1234567890123456789\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 200},
    {OK "Transfer-Encoding: gzip, chunked\r\n\r\n", "", HTTP1_READ_NO_HTTP, false, 200},
    {CHUNKED "\r\n", "", HTTP1_READ_BROKEN, false, 200},
    {CHUNKED "x\r\n", "", HTTP1_READ_BROKEN, false, 200},
    {CHUNKED "5x\r\n", "", HTTP1_READ_BROKEN, false, 200},
    {CHUNKED "1234567890123456\r\n", "", HTTP1_READ_BROKEN, false, 200},
    {CHUNKED "1\r\nab\r\n", "a", HTTP1_READ_BROKEN, false, 200},
};

static void in_any_pieces(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (size_t step = 1; step < 80; step += step < 8 ? 1 : 9) {
			struct http1_read h;
			struct seen s;
			size_t used, n = strlen(cases[i].text);
			begin(&h, &s);
			enum http1_result r = feed(&h, cases[i].text, n, step, &used);
			if (r != cases[i].result)
				fail_msg("case %zu in steps of %zu: %d", i, step, (int)r);
			assert_int_equal(s.n, strlen(cases[i].body));
			assert_memory_equal(s.body, cases[i].body, s.n);
			assert_int_equal(h.status, cases[i].status);
			assert_int_equal(http1_read_keeps(&h), cases[i].keeps);
			if (r == HTTP1_READ_DONE)
				assert_int_equal(used, n);
			http1_read_dispose(&h);
		}
}

/* What follows a response is not read; the next one begins there. */
static void one_after_the_other(void **state)
{
	(void)state;
	static const char text[] = OK "Content-Length: 1\r\n\r\na" CHUNKED "1\r\nb\r\n0\r\n\r\n";
	struct http1_read h;
	struct seen s;
	size_t first, second;
	begin(&h, &s);
	assert_int_equal(feed(&h, text, sizeof text - 1, sizeof text, &first), HTTP1_READ_DONE);
	assert_true(first < sizeof text - 1 && s.n == 1);
	http1_read_begin(&h);
	assert_int_equal(feed(&h, text + first, sizeof text - 1 - first, 3, &second), HTTP1_READ_DONE);
	assert_int_equal(first + second, sizeof text - 1);
	assert_memory_equal(s.body, "ab", 2);
	http1_read_dispose(&h);
}

/* A body without a length ends with the connection; nothing else does. */
static void it_closes(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool ends;
	} ways[] = {{OK "\r\nx", true},
		    {OK "\r\n", true},
		    {OK, false},
		    {"", false},
		    {OK "Content-Length: 2\r\n\r\nx", false},
		    {CHUNKED "1\r\nx\r\n", false}};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct http1_read h;
		struct seen s;
		size_t used;
		begin(&h, &s);
		assert_int_equal(feed(&h, ways[i].text, strlen(ways[i].text), 100, &used), HTTP1_READ_MORE);
		assert_int_equal(http1_read_closed(&h), ways[i].ends);
		assert_false(http1_read_keeps(&h));
		http1_read_dispose(&h);
	}
}

static void too_long(void **state)
{
	(void)state;
	static const char *const begins[] = {"", OK, OK "x: ", CHUNKED, CHUNKED "0\r\n", CHUNKED "1;"};
	for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
		for (int lines = 0; lines < 2; lines++) {
			struct http1_read h;
			struct seen s;
			size_t used;
			char text[4 * LINES_MOST];
			int n = snprintf(text, sizeof text, "%s", begins[i]);
			for (size_t at = (size_t)n; at < sizeof text; at++)
				text[at] = lines && at % 16 == 0 ? '\n' : i >= 3 && i != 4 ? '0' : 'y';
			begin(&h, &s);
			enum http1_result r = feed(&h, text, sizeof text, 7, &used);
			if (!lines)
				assert_int_equal(r, HTTP1_READ_LONG);
			else
				assert_int_not_equal(r, HTTP1_READ_MORE);
			assert_true(used <= 2 * LINES_MOST + 7);
			http1_read_dispose(&h);
		}
}

static void a_body_is_stopped(void **state)
{
	(void)state;
	struct http1_read h;
	struct seen s;
	size_t used;
	begin(&h, &s);
	s.stop_at = 2;
	assert_int_equal(feed(&h, CHUNKED "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n", strlen(CHUNKED) + 18, 100, &used),
			 HTTP1_READ_STOPPED);
	assert_int_equal(s.n, 2);
	http1_read_dispose(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_any_pieces), cmocka_unit_test(one_after_the_other), cmocka_unit_test(it_closes),
	    cmocka_unit_test(too_long),      cmocka_unit_test(a_body_is_stopped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
