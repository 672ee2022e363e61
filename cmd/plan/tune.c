/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/config/cmd.h"
#include "cmd/plan/tune_run.h"

static const char usage[] =
    "usage: sluice tune MODEL [--mix WEIGHT:PROMPT:ANSWER,… | --trace FILE] [--share N] [--prefixes N]\n"
    "              [--arrivals poisson|even|gamma:SHAPE|burst:N] [--slo-ttft MS] [--slo-tpot MS]\n"
    "              [--slo-total MS] [--good PERCENT] [--accept SHARE] [--verify SECONDS] [--threads N]\n"
    "              [--sequences N] [--kv TYPE] [--kv-memory MIB] [--seed N] [--svg FILE] [--json]\n"
    "\n"
    "Finds the settings of one engine with which most requests per second stay within the targets: chunks of\n"
    "prompts, the target between tokens beside them, sequences at once, memory for keys and values, and the\n"
    "longest draft. It measures what steps of MODEL take here, simulates the traffic described or recorded, and\n"
    "verifies what it found and the defaults with a real engine, in turns. Prints the section for the\n"
    "configuration. What is not better than the default is not recommended.\n"
    "\n"
    "  --mix           kinds of requests, in tokens (1:512:128)\n"
    "  --trace FILE    recorded traffic, replayed at various speeds: a file of log.requests, or lines of\n"
    "                  {\"at\": SECONDS, \"prompt_tokens\": N, \"answer_tokens\": N}. Neither has any text\n"
    "  --share N       tokens at the beginning that requests have in common (0), of --prefixes N kinds (1)\n"
    "  --slo-ttft MS   target for the first token (2000)      --slo-tpot MS  for each further one (250)\n"
    "  --slo-total MS  for the whole answer (none)            --good PERCENT of the requests (90)\n"
    "  --accept SHARE  how likely a drafted token is right: sluice_spec_accepted_tokens_total divided by\n"
    "                  sluice_spec_drafted_tokens_total; 0: the longest draft is not tuned (0)\n"
    "  --verify SECONDS  of each real run; 0: none (20)\n"
    "  --threads N     of the machine (all)                   --sequences N  engine.max_sequences now (32)\n"
    "  --kv TYPE       engine.kv_type (auto)                  --kv-memory MIB  engine.kv_memory now (2048)\n"
    "  --svg FILE      draws latencies and goodput of the settings over the load\n";

/* A setting must be so much better than its default. */
static const double gain = 0.02;
/* Real runs begin with so much of the rate that the simulation found, which knows steps only, and halve it until one of
 * the settings keeps the targets: runs that both miss them compare little. */
static const double part_of_rate = 0.9;
enum { MOST_RUNS = 6 };

#define complain(...) cmd_complain("sluice tune", __VA_ARGS__)

struct tuning {
	struct plan_ask ask;
	struct tune_case space;
	struct tune_result result;
	struct plan_found best, usual;
	double accept, verify_s;
	const char *svg;
	bool verified, kept; /* real runs were made; they kept the defaults */
	struct sweep_point real_best, real_usual;
};

/* ---- real runs ---- */

static struct tune_setting setting_of(const struct tuning *t, const int *at)
{
	const struct plan_box b = tune_box(&t->space, at);
	const struct tune_knob *memory = &t->space.grid.knobs[TUNE_MEMORY];
	return (struct tune_setting){.model = t->ask.model,
				     .kv = t->ask.kv,
				     .n_threads = (int)t->ask.threads,
				     .step_tokens = b.step_tokens,
				     .max_sequences = b.max_sequences,
				     .max_draft = b.max_draft,
				     .kv_bytes = (uint64_t)memory->values[at[TUNE_MEMORY]] << 20,
				     .itl_target_ns = b.itl_target_ns};
}

static void usual_at(const struct tuning *t, int *at)
{
	for (int i = 0; i < TUNE_KNOBS; i++)
		at[i] = t->space.grid.knobs[i].usual;
}

/* Requests due within the time of a run. */
static size_t n_within(const struct plan_request *all, size_t n, double seconds)
{
	size_t k = 0;
	while (k < n && (double)all[k].came_ns / 1e9 <= seconds)
		k++;
	return k;
}

static int run_once(const struct tuning *t, const int *at, double rate, struct sweep_point *out)
{
	const struct tune_setting how = setting_of(t, at);
	struct sl_err err = {0};
	size_t n;
	*out = (struct sweep_point){.rate = rate};
	struct plan_request *all = plan_traffic(&t->ask, rate, &n);
	if (all == NULL)
		return complain(1, "out of memory");
	n = n_within(all, n, t->verify_s);
	int rc = tune_run(&how, all, n, t->verify_s + t->ask.slo.ttft_ms / 1e3, &err);
	if (rc == 0)
		rc = plan_judge(all, n, &t->ask.slo, out);
	sl_free(all);
	return rc == 0 ? 0 : complain(1, "%s", err.text[0] != '\0' ? err.text : sl_code_name(rc));
}

static int run_both(struct tuning *t, const int *usual, double rate)
{
	plan_progress("a real run with the defaults …");
	int rc = run_once(t, usual, rate, &t->real_usual);
	if (rc != 0)
		return rc;
	plan_progress("a real run with what was found …");
	return run_once(t, t->result.at, rate, &t->real_best);
}

/* What the simulation recommends has to prove itself. */
static int verify(struct tuning *t)
{
	int usual[TUNE_KNOBS];
	double rate = part_of_rate * t->best.sweep.passed;
	usual_at(t, usual);
	if (t->verify_s <= 0 || memcmp(usual, t->result.at, sizeof usual) == 0)
		return 0;
	for (int i = 0; i < MOST_RUNS; i++, rate /= 2) {
		int rc = run_both(t, usual, rate);
		if (rc != 0)
			return rc;
		if (fmax(t->real_best.share, t->real_usual.share) >= t->ask.good / 100)
			break;
	}
	t->verified = true;
	t->kept = t->real_best.share < t->real_usual.share;
	if (t->kept) {
		memcpy(t->result.at, usual, sizeof usual);
		t->result.best = t->result.usual;
		t->best = t->usual;
	}
	return 0;
}

/* ---- results ---- */

static double value_of(const struct tuning *t, int knob)
{
	return t->space.grid.knobs[knob].values[t->result.at[knob]];
}

static bool is_changed(const struct tuning *t, int knob)
{
	return t->result.at[knob] != t->space.grid.knobs[knob].usual;
}

/* The section for the configuration: what differs from the defaults. */
static int write_section(const struct tuning *t, struct sl_buf *out)
{
	static const char *const lines[TUNE_KNOBS] = {[TUNE_CHUNK] = "  step_tokens: %.0f\n",
						      [TUNE_ITL] = "  itl_target: %.0fms\n",
						      [TUNE_SEQUENCES] = "  max_sequences: %.0f\n",
						      [TUNE_MEMORY] = "  kv_memory: %.0fMiB\n",
						      [TUNE_DRAFT] = "  speculation:\n    max_draft: %.0f\n"};
	int n = 0;
	int rc = buf_printf(out, "# %.3f requests a second within the targets, in simulation; with the defaults %.3f\n",
			    t->result.best, t->result.usual);
	for (int i = 0; i < TUNE_KNOBS && rc == 0; i++) {
		if (!is_changed(t, i))
			continue;
		rc = n++ == 0 ? buf_append_str(out, "engine:\n") : 0;
		char line[64];
		snprintf(line, sizeof line, lines[i], value_of(t, i));
		if (i == TUNE_DRAFT && value_of(t, i) == 0)
			snprintf(line, sizeof line, "  speculation:\n    mode: off\n");
		rc = rc == 0 ? buf_append_str(out, line) : rc;
	}
	return n > 0 || rc != 0 ? rc : buf_append_str(out, "# nothing is clearly better than the defaults\n");
}

static void print_point(const char *name, const struct sweep_point *p)
{
	printf(
	    "#   %-10s %6.1f %% good at %.3f/s; first token p50 %.0f, p99 %.0f ms; per token p50 %.1f, p99 %.1f ms\n",
	    name, 100 * p->share, p->rate, p->ttft_p50_ms, p->ttft_p99_ms, p->tpot_p50_ms, p->tpot_p99_ms);
}

/* One knob at a time, the others as recommended; simulates each of these points again. */
static int print_curve(struct tuning *t)
{
	printf("# requests a second within the targets, one setting changed at a time:\n");
	for (int i = 0; i < t->space.grid.n_knobs; i++) {
		const struct tune_knob *k = &t->space.grid.knobs[i];
		int at[TUNE_KNOBS];
		memcpy(at, t->result.at, sizeof at);
		if (k->n < 2)
			continue;
		printf("#   %-13s", k->name);
		for (at[i] = 0; at[i] < k->n; at[i]++) {
			double rate;
			if (tune_rate(&t->space, at, 0, &rate) != 0)
				return complain(1, "out of memory");
			printf("  %g: %.3f%s", k->values[at[i]], rate, at[i] == t->result.at[i] ? "*" : "");
		}
		printf("\n");
	}
	return 0;
}

static int print_text(struct tuning *t)
{
	struct sl_buf out;
	buf_init(&out, 1 << 16);
	int rc = write_section(t, &out);
	if (rc == 0)
		fwrite(buf_data(&out), 1, out.len, stdout);
	buf_dispose(&out);
	if (rc != 0)
		return complain(1, "out of memory");
	if (t->verified) {
		printf("# real runs of %g s each:\n", t->verify_s);
		print_point("defaults", &t->real_usual);
		print_point("these", &t->real_best);
	}
	if (t->kept)
		printf("# the real runs do not confirm the simulation, so these are the defaults\n");
	return print_curve(t);
}

static int print_json(const struct tuning *t)
{
	printf("{\"requests_per_s\":%.4f,\"default_requests_per_s\":%.4f,\"points\":%d,\"settings\":{", t->result.best,
	       t->result.usual, t->result.n_measured);
	for (int i = 0; i < t->space.grid.n_knobs; i++)
		printf("%s\"%s\":%g", i > 0 ? "," : "", t->space.grid.knobs[i].name, value_of(t, i));
	printf("}");
	if (t->verified)
		printf(",\"verified\":{\"good\":%.4f,\"default_good\":%.4f,\"kept_defaults\":%s}", t->real_best.share,
		       t->real_usual.share, t->kept ? "true" : "false");
	printf("}\n");
	return 0;
}

static int draw(const struct tuning *t)
{
	struct sl_buf out;
	FILE *f = t->svg != NULL ? fopen(t->svg, "w") : NULL;
	if (t->svg == NULL)
		return 0;
	if (f == NULL)
		return complain(1, "%s can't be written", t->svg);
	buf_init(&out, 1 << 20);
	int rc = sweep_plot(&t->best.sweep, "sluice tune: the settings found", &out);
	bool whole = rc == 0 && fwrite(buf_data(&out), 1, out.len, f) == out.len;
	buf_dispose(&out);
	return fclose(f) == 0 && whole ? 0 : complain(1, "%s can't be written", t->svg);
}

/* ---- the command ---- */

static void told(int n)
{
	char line[48];
	snprintf(line, sizeof line, "simulating, point %d …", n);
	plan_progress(line);
}

static int find_at(struct tuning *t, const int *at, struct plan_found *out)
{
	const struct plan_arrangement a = {.box = tune_box(&t->space, at), .n_engines = 1};
	return plan_find(&t->ask, &a, out);
}

static int search(struct tuning *t, const struct plan_costs *costs)
{
	int usual[TUNE_KNOBS];
	tune_case_init(&t->space, &t->ask, costs, t->accept);
	usual_at(t, usual);
	t->space.told = told;
	if ((uint32_t)plan_longest(&t->ask) / PLAN_PAGE + 2 > tune_box(&t->space, usual).n_pages)
		return complain(1, "a request of %d tokens needs more than --kv-memory %g", plan_longest(&t->ask),
				t->ask.kv_memory);
	int rc = tune_search(&t->space.grid, gain, tune_rate, &t->space, &t->result);
	if (rc == 0)
		rc = find_at(t, t->result.at, &t->best);
	if (rc == 0)
		rc = find_at(t, usual, &t->usual);
	t->space.told = NULL;
	if (rc != 0)
		return complain(1, "%s", sl_code_name(rc));
	return t->result.best > 0 ? 0 : complain(1, "no setting keeps the targets, however few requests come");
}

static int tune(struct tuning *t)
{
	struct plan_costs costs;
	struct sl_err err = {0};
	plan_progress("measuring steps …");
	if (plan_costs_measure(t->ask.model, t->ask.kv, (int)t->ask.threads, 0, &costs, &err) != 0)
		return complain(1, "%s", err.text);
	if (plan_longest(&t->ask) > costs.n_ctx)
		return complain(1, "a request of %d tokens does not fit into the model's context of %d",
				plan_longest(&t->ask), costs.n_ctx);
	int rc = search(t, &costs);
	if (rc == 0)
		rc = verify(t);
	plan_progress("");
	if (rc == 0)
		rc = t->ask.json ? print_json(t) : print_text(t);
	return rc == 0 ? draw(t) : rc;
}

int cmd_tune(int argc, char **argv)
{
	static struct tuning t;
	const struct plan_option own[] = {
	    {"accept", &t.accept, NULL, 0, 0.99}, {"verify", &t.verify_s, NULL, 0, 3600}, {"svg", NULL, &t.svg, 0, 0}};
	t = (struct tuning){.verify_s = 20};
	plan_ask_init(&t.ask);
	t.ask.command = "sluice tune";
	t.ask.usage = usage;
	int rc = plan_ask_parse(&t.ask, argc, argv, own, sizeof own / sizeof *own);
	if (rc == 0)
		rc = tune(&t);
	plan_ask_dispose(&t.ask);
	return rc;
}
