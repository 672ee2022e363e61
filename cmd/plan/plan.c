/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice plan MODEL`: measures the model's steps here, simulates arrangements of engines with them, and prints the
 * highest load that each carries within the targets.
 */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json/json_out.h"
#include "cmd/config/cmd.h"
#include "cmd/plan/plan_ask.h"
#include "cmd/plan/plan_compare.h"
#include "cmd/plan/plan_roles.h"

enum { MAX_ARRANGEMENTS = 16, STEP_TOKENS = 256, LEAST_CHUNK = 64 };

static const char usage[] =
    "usage: sluice plan MODEL --compare FILE [--threads N] [--sequences N] [--kv TYPE] [--kv-memory MIB] [--json]\n"
    "       sluice plan MODEL [--mix WEIGHT:PROMPT:ANSWER,… | --trace FILE] [--share N] [--prefixes N]\n"
    "              [--arrivals poisson|even|gamma:SHAPE|burst:N] [--slo-ttft MS] [--slo-tpot MS]\n"
    "              [--slo-total MS] [--good PERCENT] [--threads N] [--sequences N] [--kv TYPE]\n"
    "              [--kv-memory MIB] [--seed N] [--json]\n"
    "\n"
    "Measures what steps of MODEL take on this machine and simulates engines that take as long, under the traffic\n"
    "described or recorded: how many requests per second each arrangement carries while PERCENT of them stay\n"
    "within the targets. Nothing is served, and no server is needed.\n"
    "\n"
    "  --compare FILE  simulates the requests in a server's log.requests at their own times, by one engine with the\n"
    "                  default settings, and prints the latencies in the file beside the simulated ones\n"
    "\n"
    "  --mix           kinds of requests, in tokens (1:512:128)\n"
    "  --trace FILE    recorded traffic, replayed at various speeds: a file of log.requests, or lines of\n"
    "                  {\"at\": SECONDS, \"prompt_tokens\": N, \"answer_tokens\": N}\n"
    "  --share N       tokens at the beginning that requests have in common (0), of --prefixes N kinds (1)\n"
    "  --slo-ttft MS   target for the first token (2000)      --slo-tpot MS  for each further one (250)\n"
    "  --slo-total MS  for the whole answer (none)            --good PERCENT of the requests (90)\n"
    "  --threads N     of the machine (all)                   --sequences N  engine.sequences (32)\n"
    "  --kv TYPE       engine.kv_type (auto)                  --kv-memory MIB  engine.kv_memory (2048)\n";

struct tried {
	char name[96], keys[128];
	struct plan_arrangement a;
	struct plan_found found;
};

#define complain(...) cmd_complain("sluice plan", __VA_ARGS__)

/* ---- arrangements ---- */

/* As handover and planner in etc/sluice.yaml. */
static const struct gw_prefill usual_choice = {
    .tokens = 256, .queue = 10, .busy = 8, .busy_tokens = 64, .local_priority = 2};
static struct plan_planner planner = {.dwell_ns = 10 * NS_PER_S};
static struct plan_roles auto_roles = {.period_ns = NS_PER_S, .turn = plan_planner_turn, .ctx = &planner};

/* Engines together on all threads, with targets for prompts beside answers; then two engines of half the threads, both
 * for everything, or one for prompts, or as the planner decides. */
static int list_all(const struct plan_ask *a, const struct plan_costs *whole, const struct plan_costs *half,
		    int n_threads, struct tried *out)
{
	static const double parts[] = {0.5, 0.75, 1, 1.5, 0};
	int n = 0;
	double target = a->slo.tpot_ms > 0 ? a->slo.tpot_ms : 250;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (uint32_t chunk = LEAST_CHUNK; chunk <= STEP_TOKENS; chunk *= 4) {
			struct tried *t = &out[n++];
			double ms = round(parts[i] * target);
			*t = (struct tried){.a = {.box = plan_box_of(a, whole, 1), .n_engines = 1}};
			t->a.box.step_tokens = chunk;
			t->a.box.itl_target_ns = (uint64_t)ms * NS_PER_MS;
			snprintf(t->name, sizeof t->name, "one engine, %d threads", n_threads);
			snprintf(t->keys, sizeof t->keys, "engine.step_tokens=%u engine.itl_target=%.0fms", chunk, ms);
		}
	if (half == NULL)
		return n;
	struct tried *t = &out[n++];
	*t = (struct tried){.a = {.box = plan_box_of(a, half, 0.5), .n_engines = 2}};
	t->a.box.itl_target_ns = (uint64_t)round(target) * NS_PER_MS;
	snprintf(t->name, sizeof t->name, "two engines, %d threads each", n_threads / 2);
	snprintf(t->keys, sizeof t->keys, "engine.itl_target=%.0fms", round(target));
	t = &out[n++];
	*t = (struct tried){.a = {.box = plan_box_of(a, half, 0.5),
				  .prompt = plan_box_of(a, half, 0.5),
				  .n_engines = 1,
				  .n_prompt_engines = 1,
				  .handover_ns = half->kv_bytes / 4.0}}; /* 4 GB/s */
	t->a.box.itl_target_ns = (uint64_t)round(target) * NS_PER_MS;
	t->a.prompt.itl_target_ns = 0;
	snprintf(t->name, sizeof t->name, "prompts apart, %d and %d threads", n_threads / 2, n_threads / 2);
	snprintf(t->keys, sizeof t->keys, "engine.role=decode engine.itl_target=%.0fms engines.p.role=prefill",
		 round(target));
	const struct plan_arrangement *together = &out[n - 2].a, *apart = &out[n - 1].a;
	auto_roles.slo = &a->slo;
	t = &out[n++];
	*t = (struct tried){.a = *together};
	t->a.handover_ns = apart->handover_ns;
	t->a.choice = &usual_choice;
	t->a.roles = &auto_roles;
	snprintf(t->name, sizeof t->name, "two engines, %d threads each, roles as planned", n_threads / 2);
	snprintf(t->keys, sizeof t->keys, "engine.role=auto engine.itl_target=%.0fms engines.b.role=auto",
		 round(target));
	return n;
}

/* ---- the command ---- */

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct tried *)a)->found.sweep.passed, y = ((const struct tried *)b)->found.sweep.passed;
	return x > y ? -1 : x < y;
}

static void print_text(const struct tried *all, int n, const struct plan_ask *a)
{
	printf(
	    "requests per second of which %g %% are within %g ms to the first token and %g ms for each further one\n\n"
	    "  requests/s   first token p50, p99 ms   per token p50, p99 ms   tokens/s   arrangement\n",
	    a->good, a->slo.ttft_ms, a->slo.tpot_ms);
	for (int i = 0; i < n; i++) {
		const struct sweep_point *p = &all[i].found.best;
		if (all[i].found.sweep.passed > 0)
			printf("%12.3f %12.0f %12.0f %12.1f %10.1f %10.1f   %s; %s\n", all[i].found.sweep.passed,
			       p->ttft_p50_ms, p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms, p->tokens_per_s,
			       all[i].name, all[i].keys);
		else
			printf("%12s %72s   %s; %s\n", "none", "", all[i].name, all[i].keys);
	}
}

static int print_json(const struct tried *all, int n, const struct plan_ask *a)
{
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	int rc = buf_printf(&out, "{\"good\":%g,\"slo_ttft_ms\":%g,\"slo_tpot_ms\":%g,\"arrangements\":[",
			    a->good / 100, a->slo.ttft_ms, a->slo.tpot_ms);
	for (int i = 0; i < n && rc == 0; i++) {
		const struct sweep_point *p = &all[i].found.best;
		rc = buf_printf(&out,
				"%s{\"name\":\"%s\",\"keys\":\"%s\",\"requests_per_s\":%.4f,\"ttft_p50_ms\":%.2f,"
				"\"ttft_p99_ms\":%.2f,\"tpot_p50_ms\":%.3f,\"tpot_p99_ms\":%.3f,\"tokens_per_s\":%.2f}",
				i > 0 ? "," : "", all[i].name, all[i].keys, all[i].found.sweep.passed, p->ttft_p50_ms,
				p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms, p->tokens_per_s);
	}
	if (rc == 0)
		rc = buf_append_str(&out, "]}\n");
	if (rc == 0)
		fwrite(buf_data(&out), 1, out.len, stdout);
	buf_dispose(&out);
	return rc == 0 ? 0 : complain(1, "out of memory");
}

/* The simulation beside records. */
static int compare(const struct plan_ask *a, const struct plan_costs *whole)
{
	struct compare found;
	const struct plan_box box = plan_box_of(a, whole, 1);
	if (compare_run(a, &box, &found) != 0)
		return complain(1, "out of memory");
	plan_progress("");
	if (found.ttft.n == 0)
		return complain(1, "%s: no line has ttft_ms: these are no records of log.requests", a->records);
	compare_print(&found, a->json);
	return 0;
}

static int plan(struct plan_ask *a, struct tried *all)
{
	struct plan_costs whole, half;
	struct sl_err err = {0};
	int n_threads = (int)a->threads;
	plan_progress("measuring steps …");
	if (plan_costs_measure(a->model, a->kv, n_threads, 0, &whole, &err) != 0 ||
	    (n_threads > 1 && a->records == NULL &&
	     plan_costs_measure(a->model, a->kv, n_threads / 2, n_threads / 2, &half, &err) != 0))
		return complain(1, "%s", err.text);
	if (plan_longest(a) > whole.n_ctx)
		return complain(1, "a request of %d tokens does not fit into the model's context of %d",
				plan_longest(a), whole.n_ctx);
	if (a->records != NULL)
		return compare(a, &whole);
	int n = list_all(a, &whole, n_threads > 1 ? &half : NULL, n_threads, all);
	for (int i = 0; i < n; i++) {
		char line[64];
		snprintf(line, sizeof line, "simulating %d of %d …", i + 1, n);
		plan_progress(line);
		if ((uint32_t)plan_longest(a) / PLAN_PAGE + 2 > all[i].a.box.n_pages)
			return complain(1, "a request of %d tokens needs more than --kv-memory %g", plan_longest(a),
					a->kv_memory);
		if (plan_find(a, &all[i].a, &all[i].found) != 0)
			return complain(1, "out of memory");
	}
	plan_progress("");
	qsort(all, (size_t)n, sizeof *all, by_rate);
	if (a->json)
		return print_json(all, n, a);
	print_text(all, n, a);
	return 0;
}

int cmd_plan(int argc, char **argv)
{
	static struct tried all[MAX_ARRANGEMENTS];
	struct plan_ask a;
	plan_ask_init(&a);
	a.command = "sluice plan";
	a.usage = usage;
	const struct plan_option own[] = {{"compare", NULL, &a.records, 0, 0}};
	int rc = plan_ask_parse(&a, argc, argv, own, 1);
	if (rc == 0)
		rc = plan(&a, all);
	plan_ask_dispose(&a);
	return rc;
}
