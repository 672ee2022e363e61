/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench cleanse`: bytes per second of the cleanser for texts of several kinds, compared with memcpy of the
 * same bytes in the same run. Cleansing leaves plain texts unchanged.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/config/cmd.h"
#include "gateway/cleanse/cleanse.h"

enum { TEXT_BYTES = 1 << 20, TIMES = 9 };

struct sample {
	const char *name, *piece;
};

static const struct sample samples[] = {
    {"english", "The capital of France is Paris, which lies on the Seine. It's been there for a while, and people "
		"from all over the world come to see it - mostly in summer. How many? Some millions.\n\n"},
    {"german", "Die Hauptstadt von Frankreich ist Paris; sie liegt an der Seine. Über zwei Millionen Menschen "
	       "wohnen dort, und für viele Gäste ist sie die schönste Stadt.\n\n"},
    {"korean",
     "프랑스의 수도는 파리이며, 센강을 끼고 있습니다. 인구는 이백만 명이 넘고, 여름에는 많은 사람이 찾아옵니다.\n\n"},
    {"hindi", "फ्रांस की राजधानी पेरिस है, जो सीन नदी के किनारे बसी है। यहाँ हर साल लाखों लोग आते हैं।\n\n"},
    {"chat",
     "**Question:** what’s  the capital of *France*…   I think it’s “Paris” — right???\n\n\n\n- one\n- **two**\n\n"},
    {"web page",
     "<div class=\"card\"><h2>Paris</h2><p>The capital of <a href=\"https://example.com/fr\">France</a>&nbsp;"
     "lies on the <b>Seine</b>.</p><ul><li>One</li><li>Two</li></ul></div>\n"},
};

static double seconds_of(const char *text, size_t n, int level, struct sl_buf *out)
{
	double took[TIMES];
	for (int t = 0; t < TIMES; t++) {
		buf_clear(out, SIZE_MAX);
		uint64_t begin = clock_now_ns();
		/* Level off stands for memcpy. */
		int rc = level == CLEANSE_OFF ? buf_append(out, text, n)
					      : cleanse((enum cleanse_level)level, text, n, out, NULL);
		BUG_IF(rc != 0, "bench cleanse: out of memory");
		took[t] = (double)(clock_now_ns() - begin) / 1e9;
	}
	return percentile(took, TIMES, 50);
}

static void run(const struct sample *s, char *text, bool json, bool first)
{
	size_t len = strlen(s->piece), n = 0;
	struct sl_buf out;
	for (; n + len <= TEXT_BYTES; n += len)
		memcpy(text + n, s->piece, len);
	n -= n > 0 && s->piece[len - 1] == '\n'; /* no newline at the end */
	n -= n > 0 && text[n - 1] == '\n';
	buf_init(&out, SIZE_MAX);
	seconds_of(text, n, CLEANSE_OFF, &out);
	double copy = seconds_of(text, n, CLEANSE_OFF, &out);
	double light = seconds_of(text, n, CLEANSE_LIGHT, &out);
	double full = seconds_of(text, n, CLEANSE_FULL, &out);
	double left = (double)out.len / (double)n;
	if (json)
		printf("%s{\"text\":\"%s\",\"bytes\":%zu,\"memcpy_bytes_per_s\":%.4g,\"light_bytes_per_s\":%.4g,"
		       "\"full_bytes_per_s\":%.4g,\"left\":%.4f}",
		       first ? "" : ",", s->name, n, (double)n / copy, (double)n / light, (double)n / full, left);
	else
		printf("%-10s %10.0f %10.0f %10.0f %9.1f %% %8.1f %%\n", s->name, (double)n / copy / 1e6,
		       (double)n / light / 1e6, (double)n / full / 1e6, 100 * copy / full, 100 * left);
	fflush(stdout);
	buf_dispose(&out);
}

int bench_cleanse(int argc, char **argv)
{
	bool json = false;
	const struct bench_option options[] = {{"--json", NULL, NULL, &json, 0, 0}};
	int rc = bench_parse(argc, argv, options, 1, NULL);
	if (rc != 0)
		return rc;
	char *text = sl_alloc(TEXT_BYTES);
	if (text == NULL)
		return bench_complain(1, "out of memory");
	cleanse_prepare();
	if (json) {
		printf("{\"texts\":[");
	} else {
		bench_header();
		printf("\nMB/s           memcpy      light       full  of memcpy  bytes left\n");
	}
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
		run(&samples[i], text, json, i == 0);
	if (json)
		printf("]}\n");
	sl_free(text);
	return 0;
}
