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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(percentiles_are_close),
	    cmocka_unit_test(events_in_any_pieces),
	    cmocka_unit_test(endless_lines_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
