/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/text_stream: a stream that gets the bytes in pieces and one that gets them at once must
 * release the same valid UTF-8.
 *
 * Input: number of stops, each as length and bytes; a byte that chooses the pieces; the text.
 */
#include <string.h>

#include "base/utf8.h"
#include "engine/step/text_stream.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x02\x02"
	    "ab\x01"
	    "b\x01"
	    "xxabab",
	    "\x01\x03"
	    "aab\x07"
	    "aaaabaab",
	    "\x02\x02\xC3\xA9\x03\xEF\xBF\xBD\x03"
	    "a\xC3\xC3\xA9\xE2\x82",
	    "\x01\x07\n\nUser:\x05"
	    "Hi.\n\nUse it\n\nUser: x",
	    "\x01\x04"
	    "abab\x02"
	    "abacababab",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static bool run(const struct proto_str *stops, int n_stops, const char *text, size_t n, size_t piece,
		struct sl_buf *out)
{
	struct text_stream s;
	bool stopped = false;
	int rc = text_stream_init(&s, stops, n_stops);
	FUZZ_REQUIRE(rc == 0);
	for (size_t from = 0; from < n; from += piece) {
		rc = text_stream_push(&s, text + from, n - from < piece ? n - from : piece, out, &stopped);
		FUZZ_REQUIRE(rc == 0 && utf8_valid(buf_data(out), out->len));
	}
	rc = text_stream_finish(&s, out);
	FUZZ_REQUIRE(rc == 0 && utf8_valid(buf_data(out), out->len));
	text_stream_dispose(&s);
	return stopped;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct proto_str stops[PROTO_MAX_STOPS];
	size_t i = 0;
	int n_stops = 0, want = n > 0 ? data[i++] % (PROTO_MAX_STOPS + 1) : 0;
	while (n_stops < want && i + 1 < n) {
		size_t len = data[i++];
		if (len == 0 || len > n - i || !utf8_valid(data + i, len))
			break;
		stops[n_stops++] = (struct proto_str){(const char *)data + i, len};
		i += len;
	}
	size_t piece = i < n ? 1 + data[i++] % 16 : 1;
	struct sl_buf parts, whole;
	buf_init(&parts, 3 * n + 16);
	buf_init(&whole, 3 * n + 16);
	const char *text = n > 0 ? (const char *)data + i : "";
	bool a = run(stops, n_stops, text, n - i, piece, &parts);
	bool b = run(stops, n_stops, text, n - i, n + 1, &whole);
	FUZZ_REQUIRE(a == b && parts.len == whole.len);
	FUZZ_REQUIRE(whole.len == 0 || memcmp(buf_data(&parts), buf_data(&whole), whole.len) == 0);
	for (int k = 0; k < n_stops; k++)
		FUZZ_REQUIRE(whole.len == 0 || memmem(buf_data(&whole), whole.len, stops[k].at, stops[k].n) == NULL);
	buf_dispose(&parts);
	buf_dispose(&whole);
	return 0;
}
