/* SPDX-License-Identifier: Apache-2.0
 *
 * The cleanser on any bytes: what it promises of every text holds (gateway/cleanse/cleanse.h): the result is
 * valid where the text was, bounded, not empty unless the text was, and the same when cleansed again;
 * a text that is not valid UTF-8 stays; and a text that the scan calls clean is one that the passes
 * leave alone.
 *
 * Input: a byte whose lowest bit is the level, then the text.
 */
#include <string.h>

#include "base/utf8.h"
#include "gateway/cleanse/cleanse_priv.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_TEXT = 8192 };

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x01<p>What is the <b>capital</b> "
	    "of&nbsp;<i>France</i>?</p>\n<ul><li>a<li>b</ul><table><tr><td>1<td>2</table>",
	    "\x01<html><head><style>a{}</style></head><body><pre>x &lt; y</pre><code>a</code><!-- c "
	    "--><br><br></body></html>",
	    "\x01# Title\n\nSome *text* with **bold** and `code **x**`\n\n```\n  a   b  "
	    "\n```\nEnd\n====\n|a|b|\n|-----|----|\n",
	    "\x01\xe2\x80\x9cquick\xe2\x80\x9d\xc2\xa0"
	    "fox\xe2\x80\x94jumps\xe2\x80\xa6 !!!! ..... $a_b_c$ \\(x*y*z\\)",
	    "\x01{\"a\": [1, \"<b>x</b>\"]} [1, 2] https://x.y/a_b_c*d*! diff --git a b\n@@ -1 +1 @@\n-a  b\n+a\n",
	    "\x00"
	    "cafe\xcc\x81 \xef\xbb\xbf\xe2\x80\x8bx \xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xae "
	    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
	    "\x00\x1b[31mred\x1b[0m \r\n\r\n\r\n  a  b\n  c  d\n\ta   b \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab "
	    "\xe0\xa4\x95\xe0\xa5\x8d\xe2\x80\x8d\xe0\xa4\xb7",
	    "\x01- - -\n***bold*** _a b_ __c d__ ![x](data:image/png;base64,AAAA) ![y](http://z)\n\xe2\x80\xa2 item",
	};
	if (i >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	size_t n = 1 + strlen(seeds[i] + 1);
	if (n > max)
		n = max;
	memcpy(out, seeds[i], n);
	return n;
}

static void cleansed(enum cleanse_level level, const char *text, size_t n, struct sl_buf *out)
{
	struct cleanse_stats stats = {0};
	buf_init(out, SIZE_MAX);
	FUZZ_REQUIRE(cleanse(level, text, n, out, &stats) == 0);
	FUZZ_REQUIRE(stats.bytes_in == n && stats.bytes_out == out->len && stats.n_texts == 1);
	FUZZ_REQUIRE(out->len <= n * CLEANSE_GROWTH && (n == 0 || out->len > 0));
}

static void same(const struct sl_buf *a, const char *text, size_t n)
{
	FUZZ_REQUIRE(a->len == n && (n == 0 || memcmp(buf_data(a), text, n) == 0));
}

static void clean_stays(enum cleanse_level level, const char *text, size_t n)
{
	cleanse_pass *const passes[] = {cleanse_chars, cleanse_blanks, cleanse_html, cleanse_markdown};
	if (cleanse_scan(level, text, n) != CLEANSE_CLEAN)
		return;
	for (size_t i = 0; i < (level == CLEANSE_FULL ? 4 : 2); i++) {
		struct sl_buf out;
		buf_init(&out, SIZE_MAX);
		FUZZ_REQUIRE(passes[i](text, n, &out) == 0);
		same(&out, text, n);
		buf_dispose(&out);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0 || n > MAX_TEXT)
		return 0;
	enum cleanse_level level = data[0] & 1 ? CLEANSE_FULL : CLEANSE_LIGHT;
	const char *text = (const char *)data + 1;
	struct sl_buf once, twice;
	n--;
	cleansed(level, text, n, &once);
	if (!utf8_valid(text, n)) {
		same(&once, text, n);
	} else {
		const char *made = once.len > 0 ? (const char *)buf_data(&once) : "";
		FUZZ_REQUIRE(utf8_valid(made, once.len));
		cleansed(level, made, once.len, &twice);
		same(&twice, made, once.len);
		clean_stays(level, text, n);
		clean_stays(level, made, once.len);
		buf_dispose(&twice);
	}
	buf_dispose(&once);
	return 0;
}
