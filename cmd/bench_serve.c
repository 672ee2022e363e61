/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench serve`: a server under load, ours or any that speaks OpenAI's chat completions. TTFT
 * is from the request to its first text, ITL between two texts of one answer. Goodput counts the
 * requests that met both targets, the ITL one by their own mean (Zhong et al., "DistServe", 2024).
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "cmd/load_client.h"

enum { MAX_LEVELS = 16, MAX_STREAMS = 4096, MAX_ERRORS = 8 };

struct figures {
	int n_ok, n_failed, n_good;
	double ttft[4], itl[4]; /* p50, p95, p99, most; milliseconds */
	double tokens_per_s, requests_per_s, goodput_per_s;
	double n_prompt, n_cached, n_tokens; /* mean of a request */
};

static void percentiles(double *x, size_t n, double *out)
{
	static const double at[] = {50, 95, 99, 100};
	for (int i = 0; i < 4; i++)
		out[i] = bench_percentile(x, n, at[i]);
}

static int summarize(const struct load_result *r, double ttft_target, double itl_target, struct figures *f)
{
	size_t n_gaps = 0, n_ttft = 0;
	for (int i = 0; i < r->n; i++)
		n_gaps += (size_t)r->requests[i].n_events;
	double *ttft = sl_zalloc_n((size_t)r->n + 1, sizeof *ttft), *gaps = sl_zalloc_n(n_gaps + 1, sizeof *gaps);
	if (ttft == NULL || gaps == NULL) {
		sl_free(ttft);
		sl_free(gaps);
		return bench_complain(1, "out of memory");
	}
	*f = (struct figures){0};
	n_gaps = 0;
	double tokens = 0;
	for (int i = 0; i < r->n; i++) {
		const struct load_request *q = &r->requests[i];
		f->n_ok += q->ok;
		f->n_failed += !q->ok;
		tokens += q->n_tokens > 0 ? q->n_tokens : q->n_events;
		if (!q->ok || q->first_ns == 0)
			continue;
		double first = (double)(q->first_ns - q->begin_ns) / 1e6, mean = 0;
		ttft[n_ttft++] = first;
		for (int k = 1; k < q->n_events; k++)
			gaps[n_gaps++] = (double)(q->token_ns[k] - q->token_ns[k - 1]) / 1e6;
		if (q->n_events > 1)
			mean = (double)(q->token_ns[q->n_events - 1] - q->first_ns) / 1e6 / (q->n_events - 1);
		f->n_good += first <= ttft_target && mean <= itl_target;
		f->n_prompt += q->n_prompt;
		f->n_cached += q->n_cached;
		f->n_tokens += q->n_tokens;
	}
	percentiles(ttft, n_ttft, f->ttft);
	percentiles(gaps, n_gaps, f->itl);
	f->tokens_per_s = tokens / r->seconds;
	f->requests_per_s = f->n_ok / r->seconds;
	f->goodput_per_s = f->n_good / r->seconds;
	double n = f->n_ok > 0 ? f->n_ok : 1;
	f->n_prompt /= n;
	f->n_cached /= n;
	f->n_tokens /= n;
	sl_free(ttft);
	sl_free(gaps);
	return 0;
}

/* What went wrong, and how often. */
static void tell_errors(const struct load_result *r, bool json)
{
	const char *seen[MAX_ERRORS];
	int count[MAX_ERRORS], n = 0;
	for (int i = 0; i < r->n; i++) {
		const char *e = r->requests[i].error;
		int k = 0;
		if (r->requests[i].ok)
			continue;
		while (k < n && strcmp(seen[k], e) != 0)
			k++;
		if (k == MAX_ERRORS)
			continue;
		if (k == n) {
			seen[n] = e;
			count[n++] = 0;
		}
		count[k]++;
	}
	for (int k = 0; k < n; k++)
		if (json)
			printf("%s\"%s\":%d", k > 0 ? "," : "", seen[k], count[k]);
		else
			printf("          %d × %s\n", count[k], seen[k]);
}

static void tell(const struct load_result *r, const struct figures *f, int streams, bool json, bool first)
{
	if (!json) {
		printf("%7d %6d %6d %8.2f %9.1f  %8.1f %8.1f %8.1f  %7.1f %7.1f %7.1f %7.1f  %7.2f %5.1f %%\n", streams,
		       f->n_ok, f->n_failed, f->requests_per_s, f->tokens_per_s, f->ttft[0], f->ttft[1], f->ttft[2],
		       f->itl[0], f->itl[1], f->itl[2], f->itl[3], f->goodput_per_s,
		       r->n > 0 ? 100.0 * f->n_good / r->n : 0);
		tell_errors(r, false);
		return;
	}
	printf("%s{\"streams\":%d,\"ok\":%d,\"failed\":%d,\"seconds\":%.4g,\"requests_per_s\":%.6g,\"tokens_per_s\":%.6g,"
	       "\"ttft_ms\":{\"p50\":%.6g,\"p95\":%.6g,\"p99\":%.6g},"
	       "\"itl_ms\":{\"p50\":%.6g,\"p95\":%.6g,\"p99\":%.6g,\"max\":%.6g},\"goodput_per_s\":%.6g,"
	       "\"good_share\":%.4g,\"mean_prompt_tokens\":%.6g,\"mean_cached_tokens\":%.6g,\"mean_tokens\":%.6g,\"errors\":{",
	       first ? "" : ",", streams, f->n_ok, f->n_failed, r->seconds, f->requests_per_s, f->tokens_per_s, f->ttft[0],
	       f->ttft[1], f->ttft[2], f->itl[0], f->itl[1], f->itl[2], f->itl[3], f->goodput_per_s,
	       r->n > 0 ? (double)f->n_good / r->n : 0, f->n_prompt, f->n_cached, f->n_tokens);
	tell_errors(r, true);
	printf("}}");
}

int bench_serve(int argc, char **argv)
{
	const char *url = NULL, *key = NULL, *model = "default", *streams_text = "1,4,8";
	double requests = 0, words = 100, tokens = 64, share = 0, rate = 0, ttft_target = 1000, itl_target = 100, seconds = 120;
	bool json = false;
	const struct bench_option options[] = {
	    {"--url", NULL, &url, NULL, 0, 0},
	    {"--key", NULL, &key, NULL, 0, 0},
	    {"--model", NULL, &model, NULL, 0, 0},
	    {"--streams", NULL, &streams_text, NULL, 0, 0},
	    {"--requests", &requests, NULL, NULL, 1, 1000000},
	    {"--prompt-words", &words, NULL, NULL, 1, 100000},
	    {"--share", &share, NULL, NULL, 0, 100000},
	    {"--tokens", &tokens, NULL, NULL, 1, 100000},
	    {"--rate", &rate, NULL, NULL, 0, 100000},
	    {"--seconds", &seconds, NULL, NULL, 1, 3600},
	    {"--ttft-target", &ttft_target, NULL, NULL, 0, 1e9},
	    {"--itl-target", &itl_target, NULL, NULL, 0, 1e9},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &url);
	if (rc != 0)
		return rc;
	int levels[MAX_LEVELS], n_levels = bench_list(streams_text, MAX_STREAMS, levels, MAX_LEVELS);
	if (url == NULL || n_levels == 0)
		return bench_complain(CMD_EXIT_USAGE, url == NULL ? "serve needs a URL" : "--streams: not a list of numbers");
	if (strpbrk(model, "\"\\") != NULL || (key != NULL && strpbrk(key, "\r\n") != NULL))
		return bench_complain(CMD_EXIT_USAGE, "--model and --key can't hold that");
	signal(SIGPIPE, SIG_IGN);
	if (json) {
		printf("[");
	} else {
		bench_header();
		printf("%s, model %s: about %d words in, %d tokens out%s\n", url, model, (int)words, (int)tokens,
		       rate > 0 ? ", arriving at random" : "");
		printf("good: TTFT within %.0f ms and a mean ITL within %.0f ms\n\n", ttft_target, itl_target);
		printf("streams     ok failed    req/s  tokens/s    TTFT p50      p95      p99  ITL p50     p95     p99    most"
		       "  good/s  share\n");
	}
	for (int i = 0; i < n_levels && rc == 0; i++) {
		struct load_plan plan = {.url = url, .key = key, .model = model, .n_streams = levels[i],
					 .n_requests = requests > 0 ? (int)requests : 4 * levels[i] + 4, .rate = rate,
					 .prompt_words = (int)words, .shared_words = (int)share, .max_tokens = (int)tokens,
					 .seconds = seconds, .seed = (uint64_t)i + 1, .progress = isatty(2) && !json};
		struct load_result result;
		struct figures f = {0};
		struct sl_err err = {0};
		if (load_run(&plan, &result, &err) != 0) {
			rc = bench_complain(1, "%s", err.text);
			break;
		}
		rc = summarize(&result, ttft_target, itl_target, &f);
		if (rc == 0)
			tell(&result, &f, levels[i], json, i == 0);
		if (rc == 0 && (result.interrupted || f.n_ok == 0))
			rc = result.interrupted ? 130 : bench_complain(1, "no request succeeded");
		fflush(stdout);
		load_result_dispose(&result);
	}
	if (json)
		puts("]");
	return rc;
}
