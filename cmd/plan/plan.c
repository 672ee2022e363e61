/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice plan MODEL`: measures the model's steps here, simulates arrangements of engines with them, and prints the
 * highest load that each carries within the targets.
 */
#include "cmd/plan/plan.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/range.h"
#include "cmd/config/cmd.h"
#include "cmd/plan/plan_costs.h"
#include "cmd/plan/plan_sim.h"
#include "kernels/kv_type.h"

enum {
	LEAST_REQUESTS = 300,
	MOST_REQUESTS = 3000,
	MOST_TRACED = 20000,
	MINUTE_S = 60,
	MAX_ARRANGEMENTS = 16,
	STEP_TOKENS = 256,
	LEAST_CHUNK = 64
};

static const double closeness = 0.05;

static const char usage[] =
    "usage: sluice plan MODEL [--mix WEIGHT:PROMPT:ANSWER,… | --trace FILE] [--share N] [--prefixes N]\n"
    "              [--arrivals poisson|even|gamma:SHAPE|burst:N] [--slo-ttft MS] [--slo-tpot MS]\n"
    "              [--slo-total MS] [--good PERCENT] [--threads N] [--sequences N] [--kv TYPE]\n"
    "              [--kv-memory MIB] [--seed N] [--json]\n"
    "\n"
    "Measures what steps of MODEL take on this machine and simulates engines that take as long, under the traffic\n"
    "described or recorded: how many requests per second each arrangement carries while PERCENT of them stay\n"
    "within the targets. Nothing is served, and no server is needed.\n"
    "\n"
    "  --mix           kinds of requests, in tokens (1:512:128)\n"
    "  --trace FILE    recorded traffic, replayed at various speeds: a file of log.requests, or lines of\n"
    "                  {\"at\": SECONDS, \"prompt_tokens\": N, \"answer_tokens\": N}\n"
    "  --share N       tokens at the beginning that requests have in common (0), of --prefixes N kinds (1)\n"
    "  --slo-ttft MS   target for the first token (2000)      --slo-tpot MS  for each further one (250)\n"
    "  --slo-total MS  for the whole answer (none)            --good PERCENT of the requests (90)\n"
    "  --threads N     of the machine (all)                   --sequences N  engine.sequences (32)\n"
    "  --kv TYPE       engine.kv_type (auto)                  --kv-memory MIB  engine.kv_memory (2048)\n";

struct ask {
	const char *model, *mix, *trace_path, *kv, *arrivals_text;
	struct workload work;
	struct arrivals arrivals;
	struct load_trace trace;
	struct serve_slo slo;
	double good, threads, sequences, kv_memory, seed, shared, prefixes;
	bool json;
};

struct tried {
	char name[96], keys[128];
	struct plan_arrangement a;
	struct sweep sweep;
	struct sweep_point best; /* at sweep.passed */
	uint64_t prefilled;
};

#define complain(...) cmd_complain("sluice plan", __VA_ARGS__)

/* ---- options ---- */

static int number(const char *name, const char *text, double lo, double hi, double *out)
{
	char *end, range[80];
	*out = strtod(text, &end);
	if (end != text && *end == '\0' && *out >= lo && *out <= hi)
		return 0;
	return complain(CMD_EXIT_USAGE, "--%s must be %s, not %s", name, range_of(lo, false, hi, range, sizeof range),
			text);
}

static int check(struct ask *a)
{
	struct sl_err err = {0};
	if (a->model == NULL)
		return complain(CMD_EXIT_USAGE, "which model file?");
	if (workload_parse_mix(a->mix, &a->work) != 0)
		return complain(CMD_EXIT_USAGE, "--mix needs WEIGHT:PROMPT:ANSWER,…, at most %d", WORKLOAD_MAX_KINDS);
	a->work.n_shared = (uint32_t)a->shared;
	a->work.n_prefixes = (uint32_t)a->prefixes;
	if (arrivals_parse(a->arrivals_text, &a->arrivals) != 0)
		return complain(CMD_EXIT_USAGE, "--arrivals must be poisson, even, gamma:SHAPE or burst:N, not %s",
				a->arrivals_text);
	if (strcmp(a->kv, "auto") != 0 && kn_kv_type_from_name(a->kv) < 0)
		return complain(CMD_EXIT_USAGE, "--kv: no KV cache type is named %s", a->kv);
	if (a->trace_path == NULL)
		return 0;
	if (load_trace_read(a->trace_path, &a->trace, &err) != 0)
		return complain(1, "%s", err.text);
	if (a->trace.n < 2 || a->trace.items[a->trace.n - 1].at <= 0)
		return complain(1, "%s: all requests are at one time", a->trace_path);
	a->trace.n = a->trace.n < MOST_TRACED ? a->trace.n : MOST_TRACED;
	return 0;
}

static int parse(int argc, char **argv, struct ask *a)
{
	const struct {
		const char *name;
		double *number;
		const char **text;
		double lo, hi;
	} options[] = {{"mix", NULL, &a->mix, 0, 0},
		       {"trace", NULL, &a->trace_path, 0, 0},
		       {"arrivals", NULL, &a->arrivals_text, 0, 0},
		       {"kv", NULL, &a->kv, 0, 0},
		       {"share", &a->shared, NULL, 0, WORKLOAD_MAX_TOKENS},
		       {"prefixes", &a->prefixes, NULL, 1, 1e6},
		       {"slo-ttft", &a->slo.ttft_ms, NULL, 0, 1e7},
		       {"slo-tpot", &a->slo.tpot_ms, NULL, 0, 1e7},
		       {"slo-total", &a->slo.total_ms, NULL, 0, 1e7},
		       {"good", &a->good, NULL, 1, 100},
		       {"threads", &a->threads, NULL, 1, 1024},
		       {"sequences", &a->sequences, NULL, 1, 1024},
		       {"kv-memory", &a->kv_memory, NULL, 16, 1 << 24},
		       {"seed", &a->seed, NULL, 0, 1e9}};
	enum { N = sizeof options / sizeof *options };
	struct option list[N + 3] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}};
	for (int i = 0; i < N; i++)
		list[i + 2] = (struct option){options[i].name, required_argument, NULL, 256 + i};
	optind = 1;
	for (int c, rc; (c = getopt_long(argc, argv, "h", list, NULL)) != -1;) {
		if (c == 'h') {
			fputs(usage, stdout);
			exit(0);
		}
		if (c == '?')
			return CMD_EXIT_USAGE;
		if (c == 'j')
			a->json = true;
		else if (options[c - 256].text != NULL)
			*options[c - 256].text = optarg;
		else if ((rc = number(options[c - 256].name, optarg, options[c - 256].lo, options[c - 256].hi,
				      options[c - 256].number)) != 0)
			return rc;
	}
	a->model = optind < argc ? argv[optind] : NULL;
	if (optind + 1 < argc)
		return complain(CMD_EXIT_USAGE, "one model file, not %s too", argv[optind + 1]);
	return check(a);
}

/* ---- traffic ---- */

/* Requests at this rate. *out: owned by the caller; NULL: out of memory. */
static struct plan_request *traffic(const struct ask *a, double rate, size_t *n)
{
	struct load_random r = {.state = (uint64_t)a->seed * 2 + 1};
	struct arrivals arrivals = a->arrivals;
	double at = 0, speed = 1, want = rate * MINUTE_S;
	*n = want < LEAST_REQUESTS ? LEAST_REQUESTS : want > MOST_REQUESTS ? MOST_REQUESTS : (size_t)want;
	if (a->trace.n > 0) {
		*n = a->trace.n;
		speed = rate * a->trace.items[*n - 1].at / (double)(*n - 1);
	}
	struct plan_request *all = sl_zalloc_n(*n, sizeof *all);
	arrivals.rate = rate;
	for (size_t i = 0; i < *n && all != NULL; i++) {
		all[i].work = a->trace.n > 0 ? a->trace.items[i].work : workload_draw(&a->work, &r);
		at = a->trace.n > 0 ? a->trace.items[i].at / speed : at + arrivals_gap(&arrivals, &r);
		all[i].came_ns = (uint64_t)(at * 1e9) + 1;
	}
	return all;
}

/* ---- arrangements ---- */

static struct plan_box box_of(const struct ask *a, const struct plan_costs *c, double share_of_memory)
{
	double pages = a->kv_memory * share_of_memory * (1 << 20) / (c->kv_bytes * PLAN_PAGE);
	return (struct plan_box){.cost = c->cost,
				 .step_tokens = STEP_TOKENS,
				 .max_sequences = (uint32_t)a->sequences,
				 .n_pages = pages < 1e9 ? (uint32_t)pages : 1000000000,
				 .itl_target_ns = 50 * NS_PER_MS};
}

/* Engines together on all threads, with targets for prompts beside answers; then two engines of half the threads, both
 * for everything, or one for prompts. */
static int list_all(const struct ask *a, const struct plan_costs *whole, const struct plan_costs *half, int n_threads,
		    struct tried *out)
{
	static const double parts[] = {0.5, 0.75, 1, 1.5, 0};
	int n = 0;
	double target = a->slo.tpot_ms > 0 ? a->slo.tpot_ms : 250;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (uint32_t chunk = LEAST_CHUNK; chunk <= STEP_TOKENS; chunk *= 4) {
			struct tried *t = &out[n++];
			double ms = round(parts[i] * target);
			*t = (struct tried){.a = {.box = box_of(a, whole, 1), .n_engines = 1}};
			t->a.box.step_tokens = chunk;
			t->a.box.itl_target_ns = (uint64_t)ms * NS_PER_MS;
			snprintf(t->name, sizeof t->name, "one engine, %d threads", n_threads);
			snprintf(t->keys, sizeof t->keys, "engine.step_tokens=%u engine.itl_target=%.0fms", chunk, ms);
		}
	if (half == NULL)
		return n;
	struct tried *t = &out[n++];
	*t = (struct tried){.a = {.box = box_of(a, half, 0.5), .n_engines = 2}};
	t->a.box.itl_target_ns = (uint64_t)round(target) * NS_PER_MS;
	snprintf(t->name, sizeof t->name, "two engines, %d threads each", n_threads / 2);
	snprintf(t->keys, sizeof t->keys, "engine.itl_target=%.0fms", round(target));
	t = &out[n++];
	*t = (struct tried){.a = {.box = box_of(a, half, 0.5),
				  .prompt = box_of(a, half, 0.5),
				  .n_engines = 1,
				  .n_prompt_engines = 1,
				  .handover_ns = half->kv_bytes / 4.0}}; /* 4 GB/s */
	t->a.box.itl_target_ns = (uint64_t)round(target) * NS_PER_MS;
	t->a.prompt.itl_target_ns = 0;
	snprintf(t->name, sizeof t->name, "prompts apart, %d and %d threads", n_threads / 2, n_threads / 2);
	snprintf(t->keys, sizeof t->keys, "engine.role=decode engine.itl_target=%.0fms engines.p.role=prefill",
		 round(target));
	return n;
}

/* What one request takes alone: its inverse is where the search begins. */
static double rate_alone(const struct tried *t, const struct plan_request *one)
{
	struct plan_request r = *one;
	uint64_t prefilled;
	r.came_ns = 1;
	if (plan_simulate(&t->a, &r, 1, &prefilled) != 0 || r.last_ns == 0)
		return 0;
	return 1e9 / (double)r.last_ns;
}

static int try_rate(const struct ask *a, struct tried *t, double rate)
{
	size_t n;
	uint64_t prefilled;
	struct sweep_point p = {.rate = rate};
	struct plan_request *all = traffic(a, rate, &n);
	int rc = all != NULL ? plan_simulate(&t->a, all, n, &prefilled) : SL_ENOMEM;
	if (rc == 0)
		rc = plan_judge(all, n, &a->slo, &p);
	sl_free(all);
	if (rc != 0)
		return rc;
	if (p.share >= t->sweep.least_share && rate > t->sweep.passed) {
		t->best = p;
		t->prefilled = prefilled;
	}
	sweep_add(&t->sweep, &p);
	return 0;
}

static int search(const struct ask *a, struct tried *t)
{
	size_t n;
	double rate;
	struct plan_request *some = traffic(a, 1, &n);
	double begin = some != NULL ? rate_alone(t, &some[0]) : 0;
	int rc = begin > 0 ? 0 : SL_ENOMEM;
	sl_free(some);
	sweep_init(&t->sweep, a->good / 100, closeness);
	while (rc == 0 && (rate = sweep_next(&t->sweep, begin)) > 0)
		rc = try_rate(a, t, rate);
	return rc;
}

/* ---- the command ---- */

static int longest(const struct ask *a)
{
	uint32_t most = 0;
	for (int i = 0; i < a->work.n_kinds && a->trace.n == 0; i++)
		most = a->work.kinds[i].n_prompt + a->work.kinds[i].n_answer > most
			   ? a->work.kinds[i].n_prompt + a->work.kinds[i].n_answer
			   : most;
	for (size_t i = 0; i < a->trace.n; i++) {
		uint32_t n = a->trace.items[i].work.n_prompt + a->trace.items[i].work.n_answer;
		most = n > most ? n : most;
	}
	return (int)most;
}

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct tried *)a)->sweep.passed, y = ((const struct tried *)b)->sweep.passed;
	return x > y ? -1 : x < y;
}

static void print_text(const struct tried *all, int n, const struct ask *a)
{
	printf(
	    "requests per second of which %g %% are within %g ms to the first token and %g ms for each further one\n\n"
	    "  requests/s   first token p50, p99 ms   per token p50, p99 ms   tokens/s   arrangement\n",
	    a->good, a->slo.ttft_ms, a->slo.tpot_ms);
	for (int i = 0; i < n; i++) {
		const struct sweep_point *p = &all[i].best;
		if (all[i].sweep.passed > 0)
			printf("%12.3f %12.0f %12.0f %12.1f %10.1f %10.1f   %s; %s\n", all[i].sweep.passed,
			       p->ttft_p50_ms, p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms, p->tokens_per_s,
			       all[i].name, all[i].keys);
		else
			printf("%12s %72s   %s; %s\n", "none", "", all[i].name, all[i].keys);
	}
}

static int print_json(const struct tried *all, int n, const struct ask *a)
{
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	int rc = buf_printf(&out, "{\"good\":%g,\"slo_ttft_ms\":%g,\"slo_tpot_ms\":%g,\"arrangements\":[",
			    a->good / 100, a->slo.ttft_ms, a->slo.tpot_ms);
	for (int i = 0; i < n && rc == 0; i++) {
		const struct sweep_point *p = &all[i].best;
		rc = buf_printf(&out,
				"%s{\"name\":\"%s\",\"keys\":\"%s\",\"requests_per_s\":%.4f,\"ttft_p50_ms\":%.2f,"
				"\"ttft_p99_ms\":%.2f,\"tpot_p50_ms\":%.3f,\"tpot_p99_ms\":%.3f,\"tokens_per_s\":%.2f}",
				i > 0 ? "," : "", all[i].name, all[i].keys, all[i].sweep.passed, p->ttft_p50_ms,
				p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms, p->tokens_per_s);
	}
	if (rc == 0)
		rc = buf_append_str(&out, "]}\n");
	if (rc == 0)
		fwrite(buf_data(&out), 1, out.len, stdout);
	buf_dispose(&out);
	return rc == 0 ? 0 : complain(1, "out of memory");
}

static void progress(const char *what)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s\033[K", what);
}

static int plan(struct ask *a, struct tried *all)
{
	struct plan_costs whole, half;
	struct sl_err err = {0};
	int n_threads = (int)a->threads;
	progress("measuring steps …");
	if (plan_costs_measure(a->model, a->kv, n_threads, 0, &whole, &err) != 0 ||
	    (n_threads > 1 && plan_costs_measure(a->model, a->kv, n_threads / 2, n_threads / 2, &half, &err) != 0))
		return complain(1, "%s", err.text);
	if (longest(a) > whole.n_ctx)
		return complain(1, "a request of %d tokens does not fit into the model's context of %d", longest(a),
				whole.n_ctx);
	int n = list_all(a, &whole, n_threads > 1 ? &half : NULL, n_threads, all);
	for (int i = 0; i < n; i++) {
		char line[64];
		snprintf(line, sizeof line, "simulating %d of %d …", i + 1, n);
		progress(line);
		if ((uint32_t)longest(a) / PLAN_PAGE + 2 > all[i].a.box.n_pages)
			return complain(1, "a request of %d tokens needs more than --kv-memory %g", longest(a),
					a->kv_memory);
		if (search(a, &all[i]) != 0)
			return complain(1, "out of memory");
	}
	progress("");
	qsort(all, (size_t)n, sizeof *all, by_rate);
	if (a->json)
		return print_json(all, n, a);
	print_text(all, n, a);
	return 0;
}

int cmd_plan(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	static struct tried all[MAX_ARRANGEMENTS];
	struct ask a = {.mix = "1:512:128",
			.kv = "auto",
			.arrivals_text = "poisson",
			.good = 90,
			.sequences = 32,
			.kv_memory = 2048,
			.seed = 1,
			.prefixes = 1,
			.threads = cores > 0 ? (double)cores : 1,
			.slo = {.ttft_ms = 2000, .tpot_ms = 250}};
	int rc = parse(argc, argv, &a);
	if (rc == 0)
		rc = plan(&a, all);
	load_trace_free(&a.trace);
	return rc;
}
