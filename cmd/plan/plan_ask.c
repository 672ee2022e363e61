/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_ask.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/range.h"
#include "cmd/config/cmd.h"
#include "kernels/kv_type.h"

enum {
	LEAST_REQUESTS = 300,
	MOST_REQUESTS = 3000,
	MOST_TRACED = 20000,
	MINUTE_S = 60,
	STEP_TOKENS = 128, /* engine.step_tokens on a processor */
	MOST_OPTIONS = 32
};

static const double closeness = 0.05;

#define complain(a, ...) cmd_complain((a)->command, __VA_ARGS__)

/* ---- options ---- */

static int number(const struct plan_ask *a, const char *name, const char *text, double lo, double hi, double *out)
{
	char *end, range[80];
	*out = strtod(text, &end);
	if (end != text && *end == '\0' && *out >= lo && *out <= hi)
		return 0;
	return complain(a, CMD_EXIT_USAGE, "--%s must be %s, not %s", name,
			range_of(lo, false, hi, range, sizeof range), text);
}

static int check(struct plan_ask *a)
{
	struct sl_err err = {0};
	if (a->model == NULL)
		return complain(a, CMD_EXIT_USAGE, "which model file?");
	a->trace_path = a->records != NULL ? a->records : a->trace_path;
	if (workload_parse_mix(a->mix, &a->work) != 0)
		return complain(a, CMD_EXIT_USAGE, "--mix needs WEIGHT:PROMPT:ANSWER,…, at most %d",
				WORKLOAD_MAX_KINDS);
	a->work.n_shared = (uint32_t)a->shared;
	a->work.n_prefixes = (uint32_t)a->prefixes;
	if (arrivals_parse(a->arrivals_text, &a->arrivals) != 0)
		return complain(a, CMD_EXIT_USAGE, "--arrivals must be poisson, even, gamma:SHAPE or burst:N, not %s",
				a->arrivals_text);
	if (strcmp(a->kv, "auto") != 0 && kn_kv_type_from_name(a->kv) < 0)
		return complain(a, CMD_EXIT_USAGE, "--kv: no KV cache type is named %s", a->kv);
	if (a->trace_path == NULL)
		return 0;
	if (load_trace_read(a->trace_path, &a->trace, &err) != 0)
		return complain(a, 1, "%s", err.text);
	if (a->trace.n < 2 || a->trace.items[a->trace.n - 1].at <= 0)
		return complain(a, 1, "%s: all requests are at one time", a->trace_path);
	a->trace.n = a->trace.n < MOST_TRACED ? a->trace.n : MOST_TRACED;
	return 0;
}

void plan_ask_init(struct plan_ask *a)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	*a = (struct plan_ask){.mix = "1:512:128",
			       .kv = "auto",
			       .arrivals_text = "poisson",
			       .good = 90,
			       .sequences = 32,
			       .kv_memory = 2048,
			       .seed = 1,
			       .prefixes = 1,
			       .threads = cores > 0 ? (double)cores : 1,
			       .slo = {.ttft_ms = 2000, .tpot_ms = 250}};
}

void plan_ask_dispose(struct plan_ask *a) { load_trace_free(&a->trace); }

int plan_ask_parse(struct plan_ask *a, int argc, char **argv, const struct plan_option *more, int n_more)
{
	const struct plan_option own[] = {{"mix", NULL, &a->mix, 0, 0},
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
	enum { N = sizeof own / sizeof *own };
	struct plan_option options[MOST_OPTIONS];
	struct option list[MOST_OPTIONS + 3] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}};
	const int n = N + n_more;
	for (int i = 0; i < n; i++) {
		options[i] = i < N ? own[i] : more[i - N];
		list[i + 2] = (struct option){options[i].name, required_argument, NULL, 256 + i};
	}
	optind = 1;
	for (int c, rc; (c = getopt_long(argc, argv, "h", list, NULL)) != -1;) {
		if (c == 'h') {
			fputs(a->usage, stdout);
			exit(0);
		}
		if (c == '?')
			return CMD_EXIT_USAGE;
		const struct plan_option *to = c == 'j' ? NULL : &options[c - 256];
		if (to == NULL)
			a->json = true;
		else if (to->text != NULL)
			*to->text = optarg;
		else if ((rc = number(a, to->name, optarg, to->lo, to->hi, to->number)) != 0)
			return rc;
	}
	a->model = optind < argc ? argv[optind] : NULL;
	if (optind + 1 < argc)
		return complain(a, CMD_EXIT_USAGE, "one model file, not %s too", argv[optind + 1]);
	return check(a);
}

/* ---- traffic ---- */

struct plan_request *plan_traffic(const struct plan_ask *a, double rate, size_t *n)
{
	struct load_random r = {.state = (uint64_t)a->seed * 2 + 1};
	struct arrivals arrivals = a->arrivals;
	double at = 0, speed = 1, want = rate * MINUTE_S,
	       least = a->least_requests > 0 ? a->least_requests : LEAST_REQUESTS;
	*n = want < least ? (size_t)least : want > MOST_REQUESTS ? MOST_REQUESTS : (size_t)want;
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

/* ---- what an arrangement carries ---- */

/* Beside the steps, on a processor of 2024: planning and reporting a step; a token's way to the gateway; tokenizing,
 * for each token; from the engine's count of a prompt to the gateway's credit. */
static const double step_ns = 50e3, token_ns = 3e3, text_ns = 1e3;
enum { link_ns = 150000 };

struct plan_box plan_box_of(const struct plan_ask *a, const struct plan_costs *c, double share_of_memory)
{
	double pages = a->kv_memory * share_of_memory * (1 << 20) / (c->kv_bytes * PLAN_PAGE);
	return (struct plan_box){.cost = c->cost,
				 .curve = c->curve,
				 .step_ns = step_ns,
				 .token_ns = c->draw_ns + token_ns,
				 .text_ns = text_ns,
				 .link_ns = link_ns,
				 .step_tokens = STEP_TOKENS,
				 .max_sequences = (uint32_t)a->sequences,
				 .n_pages = pages < 1e9 ? (uint32_t)pages : 1000000000,
				 .itl_target_ns = 50 * NS_PER_MS};
}

/* What one request takes alone: its inverse is where the search begins. */
static double rate_alone(const struct plan_arrangement *to, const struct plan_request *one)
{
	struct plan_request r = *one;
	uint64_t prefilled;
	r.came_ns = 1;
	if (plan_simulate(to, &r, 1, &prefilled) != 0 || r.last_ns == 0)
		return 0;
	return 1e9 / (double)r.last_ns;
}

static int try_rate(const struct plan_ask *a, const struct plan_arrangement *to, struct plan_found *t, double rate)
{
	size_t n;
	uint64_t prefilled;
	struct sweep_point p = {.rate = rate};
	struct plan_request *all = plan_traffic(a, rate, &n);
	int rc = all != NULL ? plan_simulate(to, all, n, &prefilled) : SL_ENOMEM;
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

int plan_find(const struct plan_ask *a, const struct plan_arrangement *to, struct plan_found *t)
{
	size_t n;
	double rate;
	struct plan_request *some = plan_traffic(a, 1, &n);
	double begin = some != NULL ? rate_alone(to, &some[0]) : 0;
	int rc = begin > 0 ? 0 : SL_ENOMEM;
	sl_free(some);
	*t = (struct plan_found){0};
	sweep_init(&t->sweep, a->good / 100, closeness);
	while (rc == 0 && (rate = sweep_next(&t->sweep, begin)) > 0)
		rc = try_rate(a, to, t, rate);
	return rc;
}

int plan_carries(const struct plan_ask *a, const struct plan_arrangement *to, double rate, bool *out)
{
	struct plan_found t = {0};
	sweep_init(&t.sweep, a->good / 100, closeness);
	int rc = try_rate(a, to, &t, rate);
	*out = t.sweep.passed > 0;
	return rc;
}

int plan_longest(const struct plan_ask *a)
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

void plan_progress(const char *what)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s\033[K", what);
}
