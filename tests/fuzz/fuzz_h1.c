/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP/1.1 reader: any bytes, whole and in pieces, must give the same result, and what is
 * accepted must lie inside the input.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/transport/h1_parse.h"
#include "tests/fuzz/fuzz.h"

static const char *const seeds[] = {
    "GET /a?b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    "POST http://h:1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\nConnection: close, "
    "x\r\n\r\nbody",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    "5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
    "OPTIONS * HTTP/1.0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static void inside(struct h1_span s, size_t n) { FUZZ_REQUIRE((size_t)s.off + s.len <= n); }

static size_t head(const uint8_t *data, size_t n)
{
	struct h1_scan whole = {0}, pieces = {0};
	enum h1_scan_result r = h1_scan_head(&whole, data, n), p = H1_SCAN_MORE;
	for (size_t m = 1; m <= n && p == H1_SCAN_MORE; m++)
		p = h1_scan_head(&pieces, data, m);
	FUZZ_REQUIRE(r == p || n == 0);
	if (r != H1_SCAN_DONE)
		return 0;
	FUZZ_REQUIRE(whole.pos == pieces.pos && whole.pos <= n);
	static struct h1_head h;
	uint8_t *exact = malloc(whole.pos);
	FUZZ_REQUIRE(exact != NULL);
	memcpy(exact, data, whole.pos);
	int status = h1_parse_head(exact, whole.pos, 100, &h);
	FUZZ_REQUIRE(status == 0 || (status >= 400 && status < 600));
	if (status == 0) {
		inside(h.method, whole.pos);
		inside(h.target, whole.pos);
		inside(h.authority, whole.pos);
		FUZZ_REQUIRE(h.method.len > 0 && h.n_fields <= 100);
		FUZZ_REQUIRE(!(h.chunked && h.content_length >= 0));
		FUZZ_REQUIRE(h.minor == 1 || h.close);
		for (size_t i = 0; i < h.n_fields; i++) {
			inside(h.fields[i].name, whole.pos);
			inside(h.fields[i].value, whole.pos);
			for (uint32_t k = 0; k < h.fields[i].value.len; k++) {
				uint8_t b = exact[h.fields[i].value.off + k];
				FUZZ_REQUIRE(b != 0 && b != '\r' && b != '\n');
			}
		}
	}
	free(exact);
	return whole.pos;
}

/* Total length and a sum of the body; negative: malformed. */
static long chunked(const uint8_t *data, size_t n, size_t step, size_t *taken, bool *done)
{
	struct h1_chunked ch = {0};
	long sum = 0;
	*taken = 0;
	*done = false;
	while (*taken < n && !*done) {
		size_t piece = n - *taken < step ? n - *taken : step, used, n_body;
		const uint8_t *body;
		if (h1_chunked_feed(&ch, data + *taken, piece, &used, &body, &n_body, done) != 0)
			return -1;
		FUZZ_REQUIRE(used > 0 && used <= piece && n_body <= used);
		for (size_t i = 0; i < n_body; i++)
			sum = (sum * 31 + body[i]) & 0xffffff;
		*taken += used;
	}
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t at = head(data, n), a, b;
	bool da, db;
	long whole = chunked(data + at, n - at, n, &a, &da);
	long bytes = chunked(data + at, n - at, 1, &b, &db);
	FUZZ_REQUIRE(whole == bytes && (whole < 0 || (da == db && a == b)));
	return 0;
}
