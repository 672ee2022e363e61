/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench cascade`: nanoseconds of one score (features, rules, weights) for messages of several kinds and
 * lengths, with weights of the default size, and nanoseconds of one token of a watched answer.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cascade/weights.h"
#include "cmd/bench/bench.h"

enum { TIMES = 15, EACH = 200, TEXT_MOST = 1 << 16 };

struct sample {
	const char *name, *piece;
	size_t bytes;
};

static const struct sample samples[] = {
    {"short question", "What is the capital of France? ", 30},
    {"english 1 KiB", "Compare the two approaches and explain step by step which one is better for a small team. ",
     1024},
    {"english 4 KiB", "Compare the two approaches and explain step by step which one is better for a small team. ",
     4096},
    {"korean 4 KiB", "두 가지 방법을 비교하고 어느 쪽이 더 나은지 단계별로 설명해 주세요. ", 4096},
    {"code 4 KiB", "for (size_t i = 0; i < n; i++) sum += a[i] * b[i]; // dot product\n", 4096},
    {"english 64 KiB", "Compare the two approaches and explain step by step which one is better for a small team. ",
     TEXT_MOST},
    {"one-letter words", "a b c d e f g h ", 4096},
};

/* w NULL: features only. */
static double ns_of_score(const struct casc_weights *w, const char *text, size_t n, float *sink)
{
	double took[TIMES];
	const struct casc_message m = {CASC_USER, text, n};
	const struct casc_ask ask = {&m, 1, 0, 512};
	static struct casc_features f;
	for (int t = 0; t < TIMES; t++) {
		uint64_t begin = clock_now_ns();
		for (int i = 0; i < EACH; i++) {
			casc_features(&ask, &f);
			if (w != NULL)
				*sink += casc_sigmoid(casc_weights_logit(w, f.dense, f.grams, f.n_grams));
			else
				*sink += f.dense[0];
		}
		took[t] = (double)(clock_now_ns() - begin) / EACH;
	}
	return percentile(took, TIMES, 50);
}

/* Cost of a token of a watched answer: it updates the confidence and changes nothing else. */
static double ns_of_token(void)
{
	double took[TIMES];
	struct casc_policy p = {.race = 1,
				.hard = 1,
				.hold_tokens = 16,
				.hold_min = 3,
				.hold_ms = 250,
				.conf = {0.5f, 0.2f, 0.15f, 0.15f, 0.25f, 6}};
	static struct casc c;
	struct casc_budget b = {0};
	struct casc_actions out;
	const struct casc_event begin_it = {
	    .kind = CASC_START, .plan = {.score = 0.5f, .can_small = true, .can_large = true, .can_watch = true}};
	const struct casc_event token = {.kind = CASC_SMALL_TOKEN, .token = {-0.1f, 4, {-0.1f, -3, -4, -5}}};
	casc_init(&c, &p);
	BUG_IF(casc_step(&c, &b, &begin_it, &out) != 0, "bench cascade: START");
	for (int t = 0; t < TIMES; t++) {
		uint64_t begin = clock_now_ns();
		for (int i = 0; i < EACH; i++)
			BUG_IF(casc_step(&c, &b, &token, &out) != 0, "bench cascade: a token");
		took[t] = (double)(clock_now_ns() - begin) / EACH;
	}
	return percentile(took, TIMES, 50);
}

static void run(const struct sample *s, char *text, const struct casc_weights *w, bool json, bool first, float *sink)
{
	size_t len = strlen(s->piece);
	for (size_t n = 0; n < s->bytes; n += len)
		memcpy(text + n, s->piece, s->bytes - n < len ? s->bytes - n : len);
	ns_of_score(w, text, s->bytes, sink);
	double features = ns_of_score(NULL, text, s->bytes, sink), all = ns_of_score(w, text, s->bytes, sink);
	if (json)
		printf("%s{\"text\":\"%s\",\"bytes\":%zu,\"features_ns\":%.0f,\"score_ns\":%.0f}", first ? "" : ",",
		       s->name, s->bytes, features, all);
	else
		printf("%-18s %8zu %12.0f %12.0f\n", s->name, s->bytes, features, all);
}

int bench_cascade(int argc, char **argv)
{
	bool json = false;
	const struct bench_option options[] = {{"--json", NULL, NULL, &json, 0, 0}};
	int rc = bench_parse(argc, argv, options, 1, NULL);
	if (rc != 0)
		return rc;
	float sink = 0;
	char *text = sl_alloc(TEXT_MOST);
	struct casc_weights *w = casc_weights_create(CASC_BITS_USUAL);
	if (text == NULL || w == NULL) {
		sl_free(text);
		casc_weights_destroy(w);
		return bench_complain(1, "out of memory");
	}
	for (size_t i = 0; i < (size_t)1 << w->bits; i++)
		w->grams[i] = (float)(i % 17) / 17 - 0.5f;
	if (json) {
		printf("{\"texts\":[");
	} else {
		bench_header();
		printf("\nns                    bytes     features        score\n");
	}
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
		run(&samples[i], text, w, json, i == 0, &sink);
	double token = ns_of_token();
	if (json)
		printf("],\"token_ns\":%.0f}\n", token);
	else
		printf("\na watched token %.0f\n", token);
	BUG_IF(!isfinite(sink), "bench cascade: a score is not a number");
	casc_weights_destroy(w);
	sl_free(text);
	return 0;
}
