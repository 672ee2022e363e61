/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench serve URL`: a server under a load that is drawn at random, or recorded (cmd/load/load_run.h). With
 * --sweep, the highest load that it carries within its targets; with --against, whether it is slower than it was.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "cmd/bench/bench.h"
#include "cmd/load/load_run.h"
#include "cmd/load/sweep.h"

enum { REPORT_BYTES = 64 << 20, REPORT_TEXT = 16 << 10, SWEEP_PAUSE_MS = 500, CONNECT_S = 5, DRAIN_S = 10, PROBES = 3 };

struct serve_options {
	struct load_plan plan;
	struct load_target target;
	struct load_trace trace;
	const char *key, *mix, *ca, *kinds, *arrivals, *trace_path, *against, *plot;
	double conns, streams, requests, seconds, seed, prompt_tokens, max_tokens, shared, prefixes;
	double tolerance, least_share;
	bool json, warmup, http1, insecure, sweep;
};

/* ---- options ---- */

/* "KEY=WEIGHT,KEY=WEIGHT,…" */
static int parse_keys(struct load_plan *plan, const char *mix)
{
	for (const char *at = mix; *at != '\0';) {
		size_t n = strcspn(at, ","), n_key = strcspn(at, "=,");
		if (plan->n_keys == LOAD_MAX_KEYS || n_key == 0 || n_key >= sizeof plan->keys->text)
			return SL_EINVAL;
		struct load_key *k = &plan->keys[plan->n_keys++];
		memcpy(k->text, at, n_key);
		k->weight = at[n_key] == '=' ? strtod(at + n_key + 1, NULL) : 1;
		if (!(k->weight > 0))
			return SL_EINVAL;
		at += n + (at[n] == ',' ? 1 : 0);
	}
	return plan->n_keys > 0 ? 0 : SL_EINVAL;
}

static int set_keys(struct serve_options *o)
{
	if (o->mix != NULL)
		return parse_keys(&o->plan, o->mix) == 0
			   ? 0
			   : bench_complain(CMD_EXIT_USAGE, "--tier-mix needs KEY=WEIGHT,KEY=WEIGHT, at most %d",
					    LOAD_MAX_KEYS);
	o->plan.n_keys = 1;
	o->plan.keys[0].weight = 1;
	snprintf(o->plan.keys[0].text, sizeof o->plan.keys[0].text, "%s", o->key != NULL ? o->key : "none");
	return 0;
}

static int set_work(struct serve_options *o)
{
	struct load_plan *p = &o->plan;
	struct sl_err err = {0};
	p->work = (struct workload){.kinds = {{1, (uint32_t)o->prompt_tokens, (uint32_t)o->max_tokens}},
				    .n_kinds = 1,
				    .n_shared = (uint32_t)o->shared,
				    .n_prefixes = (uint32_t)o->prefixes};
	if (o->kinds != NULL && workload_parse_mix(o->kinds, &p->work) != 0)
		return bench_complain(CMD_EXIT_USAGE, "--mix needs WEIGHT:PROMPT:ANSWER,…, at most %d",
				      WORKLOAD_MAX_KINDS);
	if (o->arrivals != NULL && arrivals_parse(o->arrivals, &p->arrivals) != 0)
		return bench_complain(CMD_EXIT_USAGE,
				      "--arrivals must be poisson, even, gamma:SHAPE or burst:N, not %s", o->arrivals);
	if (o->arrivals != NULL && p->arrivals.rate == 0 && !o->sweep)
		return bench_complain(CMD_EXIT_USAGE, "--arrivals needs --rate or --sweep");
	if (o->trace_path == NULL)
		return 0;
	if (o->sweep || p->arrivals.rate > 0 || p->turns > 1)
		return bench_complain(CMD_EXIT_USAGE, "--trace has its own times: no --sweep, --rate or --turns");
	if (load_trace_read(o->trace_path, &o->trace, &err) != 0)
		return bench_complain(1, "%s", err.text);
	p->trace = &o->trace;
	return 0;
}

static int set_target(struct serve_options *o, const char *url)
{
	struct sl_err err = {0};
	if (url == NULL)
		return bench_complain(CMD_EXIT_USAGE, "serve needs a server's address, such as https://localhost:8443");
	if (load_target_parse(url, &o->target, &err) != 0)
		return bench_complain(1, "%s", err.text);
	o->target.http1 = o->http1;
	o->target.ca_file = o->ca;
	o->target.verify = o->ca != NULL || (o->target.verify && !o->insecure);
	if (o->conns * o->streams > LOAD_MAX_SLOTS)
		return bench_complain(CMD_EXIT_USAGE, "at most %d streams in all", LOAD_MAX_SLOTS);
	return 0;
}

static int check_sweep(const struct serve_options *o)
{
	if (o->sweep && !serve_slo_any(&o->plan.slo))
		return bench_complain(CMD_EXIT_USAGE,
				      "--sweep needs a target: --slo-ttft, --slo-itl, --slo-tpot or --slo-total");
	if (o->plot != NULL && !o->sweep)
		return bench_complain(CMD_EXIT_USAGE, "--plot needs --sweep");
	if (o->against != NULL && o->sweep)
		return bench_complain(CMD_EXIT_USAGE, "--against compares one load, not a sweep");
	return 0;
}

static int parse(int argc, char **argv, struct serve_options *o)
{
	const char *url = NULL;
	double turns = 1;
	struct load_plan *p = &o->plan;
	const struct bench_option options[] = {
	    {"--key", NULL, &o->key, NULL, 0, 0},
	    {"--tier-mix", NULL, &o->mix, NULL, 0, 0},
	    {"--model", NULL, &p->model, NULL, 0, 0},
	    {"--connections", &o->conns, NULL, NULL, 1, LOAD_MAX_SLOTS},
	    {"--streams", &o->streams, NULL, NULL, 1, LOAD_MAX_SLOTS},
	    {"--requests", &o->requests, NULL, NULL, 1, 1e9},
	    {"--seconds", &o->seconds, NULL, NULL, 0.01, 86400},
	    {"--rate", &p->arrivals.rate, NULL, NULL, 0.001, 1e6},
	    {"--arrivals", NULL, &o->arrivals, NULL, 0, 0},
	    {"--trace", NULL, &o->trace_path, NULL, 0, 0},
	    {"--speed", &p->speed, NULL, NULL, 0.001, 1000},
	    {"--mix", NULL, &o->kinds, NULL, 0, 0},
	    {"--prompt-tokens", &o->prompt_tokens, NULL, NULL, 1, WORKLOAD_MAX_TOKENS},
	    {"--share", &o->shared, NULL, NULL, 0, WORKLOAD_MAX_TOKENS},
	    {"--prefixes", &o->prefixes, NULL, NULL, 1, 1e6},
	    {"--turns", &turns, NULL, NULL, 1, LOAD_MAX_TURNS},
	    {"--think", &p->think_s, NULL, NULL, 0, 3600},
	    {"--max-tokens", &o->max_tokens, NULL, NULL, 1, WORKLOAD_MAX_TOKENS},
	    {"--temperature", &p->temperature, NULL, NULL, 0, 2},
	    {"--slo-ttft", &p->slo.ttft_ms, NULL, NULL, 0, 1e7},
	    {"--slo-itl", &p->slo.itl_ms, NULL, NULL, 0, 1e7},
	    {"--slo-tpot", &p->slo.tpot_ms, NULL, NULL, 0, 1e7},
	    {"--slo-total", &p->slo.total_ms, NULL, NULL, 0, 1e7},
	    {"--sweep", NULL, NULL, &o->sweep, 0, 0},
	    {"--sweep-share", &o->least_share, NULL, NULL, 1, 100},
	    {"--plot", NULL, &o->plot, NULL, 0, 0},
	    {"--against", NULL, &o->against, NULL, 0, 0},
	    {"--tolerance", &o->tolerance, NULL, NULL, 0, 1000},
	    {"--seed", &o->seed, NULL, NULL, 0, 1e9},
	    {"--cacert", NULL, &o->ca, NULL, 0, 0},
	    {"--insecure", NULL, NULL, &o->insecure, 0, 0},
	    {"--http1", NULL, NULL, &o->http1, 0, 0},
	    {"--whole", NULL, NULL, &p->whole, 0, 0},
	    {"--warmup", NULL, NULL, &o->warmup, 0, 0},
	    {"--json", NULL, NULL, &o->json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &url);
	p->turns = (int)turns;
	p->seed = (uint64_t)o->seed;
	if (rc == 0)
		rc = set_target(o, url);
	if (rc == 0)
		rc = check_sweep(o);
	if (rc == 0)
		rc = set_keys(o);
	return rc == 0 ? set_work(o) : rc;
}

/* ---- --against ---- */

/* The batches of a report, those of all requests first; empty: it has none. batch_means_compare checks what they are.
 */
static struct proto_str batches_of(const struct sl_buf *report)
{
	static const char name[] = "\"batches\":";
	const char *text = (const char *)buf_data(report);
	const char *at = text != NULL ? memmem(text, report->len, name, sizeof name - 1) : NULL;
	if (at == NULL)
		return (struct proto_str){0};
	at += sizeof name - 1;
	const char *end = memchr(at, '}', report->len - (size_t)(at - text));
	return (struct proto_str){.at = at, .n = end != NULL ? (uint32_t)(end + 1 - at) : 0};
}

static void say(const struct comparison *c, double tolerance)
{
	static const char *const words[] = {"no worse", "better", "WORSE", "undecided: more requests are needed"};
	fprintf(stderr, "%-9s %.3f times as before [%.3f, %.3f], tolerance %.0f %%: %s\n", c->figure, c->ratio, c->low,
		c->high, 100 * tolerance, words[c->verdict]);
}

static int against(const struct serve_options *o, const struct sl_buf *report)
{
	struct comparison found[BATCH_FIGURES];
	struct sl_buf old;
	struct sl_err why = {0};
	char before[REPORT_TEXT], after[REPORT_TEXT];
	int rc = file_read(o->against, REPORT_BYTES, &old, &why);
	if (rc != 0) {
		buf_dispose(&old);
		return bench_complain(1, "--against: %s: %s", o->against, why.text);
	}
	struct proto_str a = batches_of(&old), b = batches_of(report);
	int n = a.n == 0 || a.n >= sizeof before || b.n >= sizeof after ? SL_EINVAL : 0;
	if (n == 0) {
		snprintf(before, sizeof before, "%.*s", (int)a.n, a.at);
		snprintf(after, sizeof after, "%.*s", (int)b.n, b.at);
		n = batch_means_compare(before, after, o->tolerance / 100, found);
	}
	buf_dispose(&old);
	if (n < 0)
		return bench_complain(1, "--against: %s: not a report of sluice bench serve --json", o->against);
	for (int i = 0; i < n; i++) {
		say(&found[i], o->tolerance / 100);
		rc |= found[i].verdict == VERDICT_WORSE;
	}
	return n > 0 ? rc : bench_complain(1, "--against: at least %d requests are needed on each side", BATCHES_LEAST);
}

/* ---- one load ---- */

static int report_json(const struct load_run *r, int n_keys, struct sl_buf *out)
{
	int rc = buf_append_str(out, "{\"all\":");
	if (rc == 0)
		rc = serve_stats_json(load_run_stats(r, -1), out);
	if (rc == 0)
		rc = buf_append_str(out, ",\"by_key\":[");
	for (int i = 0; i < n_keys && n_keys > 1 && rc == 0; i++) {
		rc = i == 0 ? 0 : buf_append_str(out, ",");
		if (rc == 0)
			rc = serve_stats_json(load_run_stats(r, i), out);
	}
	return rc == 0 ? buf_append_str(out, "]}\n") : rc;
}

static void report_table(const struct serve_options *o, const struct load_run *r)
{
	bench_header();
	serve_stats_table(load_run_stats(r, -1), "all", &o->plan.slo);
	for (int i = 0; i < o->plan.n_keys && o->plan.n_keys > 1; i++) {
		char name[32];
		snprintf(name, sizeof name, "key %d of the mix", i + 1);
		serve_stats_table(load_run_stats(r, i), name, &o->plan.slo);
	}
}

static int one_load(const struct serve_options *o)
{
	struct load_run *r;
	struct sl_err err = {0};
	struct sl_buf report;
	double requests = o->requests, seconds = o->seconds > 0 ? o->seconds : 600;
	/* Default: a number of requests, or the whole trace. If both are given, both limit the run. */
	if (requests == 0 && o->seconds == 0 && o->plan.trace == NULL)
		requests = 3 * o->conns * o->streams;
	if (o->plan.trace != NULL && o->seconds == 0)
		seconds = 86400;
	if (load_run_create(&o->plan, &o->target, (int)o->conns, (int)o->streams, &r, &err) != 0)
		return bench_complain(1, "%s", err.text);
	if (o->warmup)
		load_run_warm(r, seconds);
	load_run_measure(r, requests > 0 ? (uint64_t)requests : UINT64_MAX, seconds, 0);
	int rc = load_run_stats(r, -1)->n_done > 0 ? 0 : 1;
	buf_init(&report, REPORT_BYTES);
	if (report_json(r, o->plan.n_keys, &report) != 0)
		rc = bench_complain(1, "out of memory");
	else if (o->json)
		fwrite(buf_data(&report), 1, report.len, stdout);
	else
		report_table(o, r);
	if (rc == 0 && o->against != NULL)
		rc = against(o, &report);
	buf_dispose(&report);
	load_run_destroy(r);
	return rc;
}

/* ---- --sweep ---- */

static double ms_at(const struct histogram *h, double p) { return (double)histogram_percentile(h, p) / 1e6; }

/* Long enough to see that a request is late, and for streams to end. */
static double drain_of(const struct serve_slo *slo)
{
	double most = slo->ttft_ms > slo->total_ms ? slo->ttft_ms : slo->total_ms;
	return most / 1000 + DRAIN_S;
}

static int measure_point(const struct serve_options *o, double rate, double seconds, struct sweep_point *out)
{
	struct load_plan plan = o->plan;
	struct load_run *r;
	struct sl_err err = {0};
	plan.arrivals.rate = rate;
	if (load_run_create(&plan, &o->target, (int)o->conns, (int)o->streams, &r, &err) != 0)
		return bench_complain(1, "%s", err.text);
	load_run_connect(r, CONNECT_S);
	load_run_measure(r, UINT64_MAX, seconds, drain_of(&o->plan.slo));
	const struct serve_stats *s = load_run_stats(r, -1);
	*out = (struct sweep_point){.rate = rate,
				    .share = serve_stats_good(s),
				    .ttft_p50_ms = ms_at(&s->ttft, 50),
				    .ttft_p99_ms = ms_at(&s->ttft, 99),
				    .tpot_p50_ms = ms_at(&s->tpot, 50),
				    .tpot_p99_ms = ms_at(&s->tpot, 99),
				    .tokens_per_s = s->seconds > 0 ? (double)s->n_completion / s->seconds : 0};
	int rc = s->n_done + s->n_failed + s->n_late > 0
		     ? 0
		     : bench_complain(1, "no request ended within --seconds %g; give it longer", seconds);
	load_run_destroy(r);
	/* What was in flight is cancelled; the server takes note. */
	usleep(SWEEP_PAUSE_MS * 1000);
	return rc;
}

/* Where the search begins: what one request at a time gives. */
static int first_rate(const struct serve_options *o, double *out)
{
	struct load_plan plan = o->plan;
	struct load_run *r;
	struct sl_err err = {0};
	if (plan.arrivals.rate > 0) {
		*out = plan.arrivals.rate;
		return 0;
	}
	if (load_run_create(&plan, &o->target, 1, 1, &r, &err) != 0)
		return bench_complain(1, "%s", err.text);
	load_run_connect(r, CONNECT_S);
	load_run_measure(r, PROBES, 600, 0);
	const struct serve_stats *s = load_run_stats(r, -1);
	*out = s->seconds > 0 ? (double)s->n_done / s->seconds : 0;
	int rc = s->n_done > 0 ? 0
			       : bench_complain(1, "no request succeeded: %s",
						s->n_errors > 0 ? s->errors[0].what : "interrupted");
	load_run_destroy(r);
	return rc;
}

static int write_plot(const struct serve_options *o, const struct sweep *s)
{
	struct sl_buf image;
	char title[400];
	buf_init(&image, REPORT_BYTES);
	snprintf(title, sizeof title, "%.200s, %.60s", o->target.authority, o->plan.model);
	FILE *f = fopen(o->plot, "w");
	bool good =
	    f != NULL && sweep_plot(s, title, &image) == 0 && fwrite(buf_data(&image), 1, image.len, f) == image.len;
	good = f != NULL && fclose(f) == 0 && good;
	buf_dispose(&image);
	return good ? 0 : bench_complain(1, "--plot: %s can't be written", o->plot);
}

static void report_sweep(const struct serve_options *o, const struct sweep *s)
{
	if (!o->json)
		bench_header();
	printf(o->json ? "{\"rate\":%.4f,\"least_share\":%.4f,\"points\":["
		       : "%.3f requests/s with %.1f %% of them within the targets\n"
			 "  requests/s   good   first token p50, p99 ms   per token p50, p99 ms   tokens/s\n",
	       s->passed, o->json ? s->least_share : 100 * s->least_share);
	for (int i = 0; i < s->n_points; i++) {
		const struct sweep_point *p = &s->points[i];
		printf(o->json ? "%s{\"rate\":%.4f,\"share\":%.4f,\"ttft_p50_ms\":%.4f,\"ttft_p99_ms\":%.4f,"
				 "\"tpot_p50_ms\":%.4f,\"tpot_p99_ms\":%.4f,\"tokens_per_s\":%.2f}"
			       : "%s%12.3f %5.1f %% %12.1f %12.1f %12.2f %10.2f %12.1f\n",
		       o->json && i > 0 ? "," : "", p->rate, o->json ? p->share : 100 * p->share, p->ttft_p50_ms,
		       p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms, p->tokens_per_s);
	}
	if (o->json)
		puts("]}");
}

static int sweep(const struct serve_options *o)
{
	struct sweep s;
	double begin = 0, rate;
	int rc = first_rate(o, &begin);
	sweep_init(&s, o->least_share / 100, 0.1);
	while (rc == 0 && !load_run_interrupted() && (rate = sweep_next(&s, begin)) > 0) {
		struct sweep_point p;
		rc = measure_point(o, rate, o->seconds > 0 ? o->seconds : 20, &p);
		if (rc == 0 && !load_run_interrupted())
			sweep_add(&s, &p);
	}
	if (rc != 0 || s.n_points == 0)
		return rc != 0 ? rc : 1;
	report_sweep(o, &s);
	if (o->plot != NULL)
		rc = write_plot(o, &s);
	return rc == 0 && s.passed == 0 ? bench_complain(1, "no load was within the targets") : rc;
}

int bench_serve(int argc, char **argv)
{
	static struct serve_options o;
	o = (struct serve_options){
	    .plan = {.model = "default", .temperature = 1, .speed = 1, .arrivals = {.shape = 1, .burst = 1}},
	    .conns = 1,
	    .streams = 1,
	    .seed = 1,
	    .prompt_tokens = 75,
	    .max_tokens = 64,
	    .prefixes = 1,
	    .tolerance = 2,
	    .least_share = 95};
	int rc = parse(argc, argv, &o);
	if (rc == 0) {
		load_run_catch_signals();
		rc = o.sweep ? sweep(&o) : one_load(&o);
	}
	load_trace_free(&o.trace);
	return rc;
}
