/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is `sluice cascade`: it fits the cascade's weights and thresholds to logged outcomes and reports on them
 * (etc/cascade.md). It reads JSON Lines and needs neither a configuration nor a server. outcomes.h parses the log, the
 * folder cascade/ learns; this file has the command line and the output.
 *
 *   outcome      one logged request, with verdicts on its answers where they are known
 *   verdict      whether an answer is right
 *   trace        the small model's confidence after each of its tokens
 *
 * Thread: main, which calls cmd_cascade.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/out_file.h"
#include "base/percentile.h"
#include "base/range.h"
#include "cascade/learn.h"
#include "cmd/config/cmd.h"
#include "cmd/cascade/outcomes.h"
#include "cmd/cascade/refit.h"

static const char usage[] =
    "usage: sluice cascade train FILE.jsonl -o WEIGHTS [--bits N] [--epochs N] [--rate R] [--decay D]\n"
    "              [--held-out SHARE] [--seed N] [--force] [--json]\n"
    "       sluice cascade calibrate FILE.jsonl [--rate SHARE | --quality SHARE] [--hold N] [--hold-min N]\n"
    "              [--sure-above X | --early SHARE] [--drop-below X] [--points N] [--json]\n"
    "       sluice cascade report FILE.jsonl [--small-cost X] [--json]\n"
    "       sluice cascade refit LOG -o WEIGHTS [--newest SHARE] [--least N] [--small-cost X] [--tolerance SHARE]\n"
    "              [--bits N] [--epochs N] [--json]\n"
    "\n"
    "train      fits the score's weights to the small model's verdicts and writes them for cascade.weights\n"
    "  --bits N          2^N weights for hashed words (14)  --epochs N   passes over the outcomes (20)\n"
    "  --rate R          initial learning rate (0.1)        --decay D    weight decay per pass (0.01)\n"
    "  --held-out SHARE  outcomes used for testing (0.1)    --seed N     of the shuffle (1)\n"
    "  -o, --output WEIGHTS  the file to write\n"
    "  --force           replaces an existing WEIGHTS\n"
    "calibrate  finds confidence thresholds for cascade.tiers and prints the trade-off curve\n"
    "  --rate SHARE      target: the share of requests that the small model answers alone (0.6)\n"
    "  --quality SHARE   or: right answers, relative to the large model's\n"
    "  --hold N          cascade.hold.tokens (16)           --hold-min N cascade.hold.min_tokens (3)\n"
    "  --sure-above X    sure = low + X (0.2)               --drop-below X  drop = low - X (0.1)\n"
    "  --early SHARE     or: the lowest sure that keeps SHARE of the answers that are right with sure: 1\n"
    "  --points N        of the curve (20)\n"
    "report     prints which model served what, why, how well, and what the cascade saved\n"
    "  --small-cost X    cost of a small model's token, in tokens of the large model (0.1)\n"
    "refit      fits weights to LOG.1 and LOG, and replaces WEIGHTS if they are better on the newest outcomes than\n"
    "           chance explains; exits with 3 where they are not. Checks by the large model count as verdicts\n"
    "  --newest SHARE    outcomes that judge (0.3)          --least N    of each kind among them (30)\n"
    "  --tolerance SHARE wrong answers that need no check (0.02), for the threshold easy\n"
    "  -o, --output WEIGHTS  the file to replace; without it the built-in weights are compared\n"
    "FILE - is standard input. etc/cascade.md describes its lines\n";

static int complain(const char *what, const char *text)
{
	fprintf(stderr, "sluice cascade %s: %s\n", what, text);
	return 1;
}

/* ---- options ---- */

struct number {
	const char *name;
	double *to;
	double lo, hi;
};

struct ask {
	const char *what, *file, *output;
	bool json, force;
};

static int take_number(const struct ask *a, const struct number *n, const char *text)
{
	char *end;
	errno = 0;
	*n->to = strtod(text, &end);
	if (errno == 0 && end != text && *end == '\0' && *n->to >= n->lo && *n->to <= n->hi)
		return 0;
	char range[80];
	fprintf(stderr, "sluice cascade %s: --%s must be %s, not '%.60s'\n", a->what, n->name,
		range_of(n->lo, false, n->hi, range, sizeof range), text);
	return CMD_EXIT_USAGE;
}

enum { OPT_FORCE = 999, OPT_JSON = 1000, MOST_NUMBERS = 12 };

/* 0, or the exit status. */
static int parse(struct ask *a, int argc, char **argv, const struct number *numbers, int n)
{
	struct option longs[MOST_NUMBERS + 4] = {{"json", no_argument, NULL, OPT_JSON},
						 {"output", required_argument, NULL, 'o'},
						 {"force", no_argument, NULL, OPT_FORCE}};
	for (int i = 0; i < n; i++)
		longs[3 + i] = (struct option){numbers[i].name, required_argument, NULL, OPT_JSON + 1 + i};
	a->what = argv[0];
	optind = 1;
	for (int opt; (opt = getopt_long(argc, argv, "o:", longs, NULL)) != -1;) {
		int rc = 0;
		if (opt == OPT_JSON)
			a->json = true;
		else if (opt == OPT_FORCE)
			a->force = true;
		else if (opt == 'o')
			a->output = optarg;
		else if (opt > OPT_JSON)
			rc = take_number(a, &numbers[opt - OPT_JSON - 1], optarg);
		else
			rc = CMD_EXIT_USAGE;
		if (rc != 0)
			return rc;
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "sluice cascade %s: needs one FILE\n", a->what);
		return CMD_EXIT_USAGE;
	}
	a->file = argv[optind];
	return 0;
}

/* ---- train ---- */

static void print_fit(const struct casc_fit *f, const char *name, bool json)
{
	if (json)
		printf("\"%s\":{\"n\":%u,\"hard\":%u,\"loss\":%.6f,\"base_loss\":%.6f,\"accuracy\":%.6f,\"auc\":%.6f}",
		       name, f->n, f->n_hard, f->loss, f->base_loss, f->accuracy, f->auc);
	else
		printf("%-9s %8u %8u %10.4f %10.4f %10.4f %10.4f\n", name, f->n, f->n_hard, f->loss, f->base_loss,
		       f->accuracy, f->auc);
}

static size_t examples_of(const struct outcomes *o, struct casc_example *out)
{
	size_t n = 0;
	for (size_t i = 0; i < o->n; i++) {
		const struct outcome *x = &o->at[i];
		if (x->dense != NULL && x->small_right != VERDICT_NONE)
			out[n++] =
			    (struct casc_example){x->dense, x->grams, x->n_grams, x->small_right == VERDICT_WRONG};
	}
	return n;
}

static int fit(const struct ask *a, const struct outcomes *o, const struct casc_train_settings *s, struct sl_err *err)
{
	struct casc_fit trained, held_out;
	struct casc_weights *w = NULL;
	struct casc_example *examples = sl_zalloc_n(o->n > 0 ? o->n : 1, sizeof *examples);
	if (examples == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %zu outcomes", o->n);
	int rc = casc_train(examples, examples_of(o, examples), s, &w, &trained, &held_out, err);
	if (rc == 0)
		rc = casc_weights_write(w, a->output, a->force, err);
	if (rc == 0 && a->json) {
		printf("{");
		print_fit(&trained, "trained", true);
		printf(",");
		print_fit(&held_out, "held_out", true);
		printf("}\n");
	} else if (rc == 0) {
		printf("%-9s %8s %8s %10s %10s %10s %10s\n", "", "outcomes", "hard", "loss", "of mean", "accuracy",
		       "AUC");
		print_fit(&trained, "trained", false);
		print_fit(&held_out, "held out", false);
		printf("\nset cascade.weights to %s\n", a->output);
	}
	casc_weights_destroy(w);
	sl_free(examples);
	return rc;
}

static int train(int argc, char **argv)
{
	struct ask a = {0};
	struct sl_err err = {0};
	struct outcomes o;
	double bits = CASC_BITS_USUAL, epochs = 20, rate = 0.1, decay = 0.01, held_out = 0.1, seed = 1;
	const struct number numbers[] = {{"bits", &bits, CASC_BITS_MIN, CASC_BITS_MAX},
					 {"epochs", &epochs, 1, 1000},
					 {"rate", &rate, 1e-6, 100},
					 {"decay", &decay, 0, 0.99},
					 {"held-out", &held_out, 0, 0.9},
					 {"seed", &seed, 0, 9007199254740992.0}};
	int rc = parse(&a, argc, argv, numbers, sizeof numbers / sizeof *numbers);
	if (rc != 0)
		return rc;
	if (a.output == NULL) {
		complain("train", "needs -o WEIGHTS");
		return CMD_EXIT_USAGE;
	}
	if (out_file_is_not(a.output, a.file, &err) != 0 || out_file_check(a.output, a.force, &err) != 0)
		return complain("train", err.text);
	out_file_on_signals();
	rc = outcomes_read(a.file, &o, &err);
	if (rc != 0)
		return complain("train", err.text);
	struct casc_train_settings s = {(uint32_t)bits, (uint32_t)epochs, rate, decay, held_out, (uint64_t)seed};
	rc = fit(&a, &o, &s, &err);
	outcomes_dispose(&o);
	return rc == 0 ? 0 : complain("train", err.text);
}

/* ---- calibrate ---- */

enum { MOST_POINTS = 1000 };

static size_t calibration_of(const struct outcomes *o, struct casc_outcome *out)
{
	size_t n = 0;
	for (size_t i = 0; i < o->n; i++) {
		const struct outcome *x = &o->at[i];
		if (x->trace != NULL && x->small_right != VERDICT_NONE)
			/* A large model's answer without a verdict counts as right. */
			out[n++] = (struct casc_outcome){x->trace, x->n_trace, x->small_right == VERDICT_RIGHT,
							 x->large_right != VERDICT_WRONG};
	}
	return n;
}

static float at_most_1(float v) { return v < 1 ? v : 1; }

static float at_least_0(float v) { return v > 0 ? v : 0; }

static void print_point(const struct casc_curve_point *p, bool json, bool first)
{
	if (json)
		printf("%s{\"low\":%.4f,\"small_rate\":%.4f,\"quality\":%.4f,\"large_tokens_saved\":%.4f}",
		       first ? "" : ",", (double)p->low, p->small_rate, p->quality, p->large_tokens_saved);
	else
		printf("%8.4f %9.1f %% %9.1f %% %11.1f %%\n", (double)p->low, 100 * p->small_rate, 100 * p->quality,
		       100 * p->large_tokens_saved);
}

static void print_curve(const struct ask *a, const struct casc_gate *g, size_t n, const struct casc_curve_point *points,
			size_t n_points, const struct casc_curve_point *best, const struct casc_early *early)
{
	float sure = best == NULL ? 1 : early != NULL ? early->sure : at_most_1(best->low + g->sure_above);

	if (a->json) {
		printf("{\"outcomes\":%zu,\"curve\":[", n);
	} else {
		printf("%zu outcomes\n\n%8s %11s %11s %13s\n", n, "low", "small alone", "quality", "tokens saved");
	}
	for (size_t i = 0; i < n_points; i++)
		print_point(&points[i], a->json, i == 0);
	printf(a->json ? "]" : "\n");
	if (best != NULL && a->json) {
		printf(",\"best\":");
		print_point(best, true, true);
		printf(",\"sure\":%.4f,\"drop\":%.4f", (double)sure, (double)at_least_0(best->low - g->drop_below));
		if (early != NULL)
			printf(",\"held\":%.3f,\"held_at_1\":%.3f", early->held, early->held_at_1);
	} else if (best != NULL) {
		print_point(best, false, true);
		if (early != NULL)
			printf("\ntokens held, mean:  %.2f (with sure: 1  %.2f)", early->held, early->held_at_1);
		printf("\nfor cascade.tiers:  sure: %.4f  low: %.4f  drop: %.4f\n", (double)sure, (double)best->low,
		       (double)at_least_0(best->low - g->drop_below));
	}
	if (a->json)
		printf("}\n");
}

/* early_share: of --early; negative: sure = low + sure_above. */
static int find_thresholds(const struct ask *a, const struct outcomes *o, const struct casc_gate *g,
			   enum casc_target kind, double target, double early_share, size_t most, struct sl_err *err)
{
	static struct casc_curve_point points[MOST_POINTS];
	struct casc_curve_point best;
	struct casc_early early;
	size_t n_points;
	struct casc_outcome *outcomes = sl_zalloc_n(o->n > 0 ? o->n : 1, sizeof *outcomes);
	if (outcomes == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %zu outcomes", o->n);
	size_t n = calibration_of(o, outcomes);
	int rc = casc_calibrate(outcomes, n, g, kind, target, points, most, &n_points, &best, err);
	if (rc == 0 && early_share >= 0)
		rc = casc_calibrate_early(outcomes, n, g, best.low, early_share, &early, err);
	if (rc == 0 || rc == SL_ENOTFOUND)
		print_curve(a, g, n, points, n_points, rc == 0 ? &best : NULL, early_share >= 0 ? &early : NULL);
	sl_free(outcomes);
	return rc;
}

static int calibrate(int argc, char **argv)
{
	struct ask a = {0};
	struct sl_err err = {0};
	struct outcomes o;
	double rate = 0.6, quality = -1, hold = 16, hold_min = 3, sure_above = 0.2, drop_below = 0.1, points = 20,
	       early = -1;
	const struct number numbers[] = {{"rate", &rate, 0, 1},
					 {"quality", &quality, 0, 2},
					 {"hold", &hold, 1, 1024},
					 {"hold-min", &hold_min, 1, 1024},
					 {"sure-above", &sure_above, 0, 1},
					 {"drop-below", &drop_below, 0, 1},
					 {"points", &points, 2, MOST_POINTS},
					 {"early", &early, 0, 1}};
	int rc = parse(&a, argc, argv, numbers, sizeof numbers / sizeof *numbers);
	if (rc != 0)
		return rc;
	rc = outcomes_read(a.file, &o, &err);
	if (rc != 0)
		return complain("calibrate", err.text);
	struct casc_gate g = {(uint16_t)hold, (uint16_t)(hold_min < hold ? hold_min : hold), (float)sure_above,
			      (float)drop_below};
	bool for_quality = quality >= 0;
	rc = find_thresholds(&a, &o, &g, for_quality ? CASC_FOR_QUALITY : CASC_FOR_RATE, for_quality ? quality : rate,
			     early, (size_t)points, &err);
	outcomes_dispose(&o);
	return rc == 0 ? 0 : complain("calibrate", err.text);
}

/* ---- report ---- */

struct report {
	struct casc_cost cost;
	size_t plans[CASC_PLAN_RACE + 1], whys[CASC_N_WHYS], reasons[CASC_FOR_FAILURE + 1];
	size_t judged, right, large_right; /* outcomes with both verdicts */
	double *small_ttft, *large_ttft;   /* by the model that produced the first token */
	size_t n_small_ttft, n_large_ttft;
};

static void add_to_report(struct report *r, const struct outcome *o)
{
	casc_cost_merge(&r->cost, &o->cost);
	if (o->plan >= 0)
		r->plans[o->plan]++;
	if (o->why >= 0)
		r->whys[o->why]++;
	if (o->escalated >= 0)
		r->reasons[o->escalated]++;
	if (o->right != VERDICT_NONE && o->large_right != VERDICT_NONE) {
		r->judged++;
		r->right += o->right == VERDICT_RIGHT;
		r->large_right += o->large_right == VERDICT_RIGHT;
	}
	if (o->ttft_ms >= 0 && o->cost.small_shown > 0)
		r->small_ttft[r->n_small_ttft++] = o->ttft_ms;
	else if (o->ttft_ms >= 0)
		r->large_ttft[r->n_large_ttft++] = o->ttft_ms;
}

static void print_names(const char *title, const size_t *counts, int n, const char *(*name)(int), bool json)
{
	printf(json ? "\"%s\":{" : "%-24s", title);
	for (int i = 0, shown = 0; i < n; i++)
		if (counts[i] > 0 || json)
			printf(json ? "%s\"%s\":%zu" : "%s%s %zu", shown++ > 0 ? (json ? "," : ", ") : "", name(i),
			       counts[i]);
	printf(json ? "}," : "\n");
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void print_json(struct report *r, double small_cost)
{
	const struct casc_cost *c = &r->cost;
	unsigned long long small_rows = c->small_prompt + c->small_made;
	printf("{\"requests\":%llu,\"small_alone\":%llu,\"escalations\":%llu,\"races\":%llu,\"refused\":%llu,",
	       (unsigned long long)c->requests, (unsigned long long)c->small_only, (unsigned long long)c->escalations,
	       (unsigned long long)c->races, (unsigned long long)c->refused);
	print_names("plans", r->plans, CASC_PLAN_RACE + 1, casc_plan_name, true);
	print_names("whys", r->whys, CASC_N_WHYS, casc_why_name, true);
	print_names("escalated", r->reasons, CASC_FOR_FAILURE + 1, casc_reason_name, true);
	printf("\"tokens\":{\"small_shown\":%llu,\"small_wasted\":%llu,\"large_shown\":%llu,\"large_wasted\":%llu,"
	       "\"offered\":%llu,\"accepted\":%llu},",
	       (unsigned long long)c->small_shown, (unsigned long long)c->small_wasted,
	       (unsigned long long)c->large_shown, (unsigned long long)c->large_wasted, (unsigned long long)c->offered,
	       (unsigned long long)c->accepted);
	printf("\"rows\":{\"large\":%llu,\"always_large\":%llu,\"small\":%llu,\"saved\":%.4f},",
	       (unsigned long long)casc_cost_large(c), (unsigned long long)c->always_large, small_rows,
	       casc_cost_saved(c, small_cost));
	printf("\"quality\":{\"judged\":%zu,\"right\":%zu,\"large_right\":%zu},", r->judged, r->right, r->large_right);
	printf("\"ttft_ms\":{\"small\":{\"n\":%zu,\"p50\":%.1f,\"p99\":%.1f},\"large\":{\"n\":%zu,\"p50\":%.1f,\"p99\":"
	       "%.1f}}}\n",
	       r->n_small_ttft, percentile(r->small_ttft, r->n_small_ttft, 50),
	       percentile(r->small_ttft, r->n_small_ttft, 99), r->n_large_ttft,
	       percentile(r->large_ttft, r->n_large_ttft, 50), percentile(r->large_ttft, r->n_large_ttft, 99));
}

static void print_text(struct report *r, double small_cost)
{
	const struct casc_cost *c = &r->cost;
	printf("%-24s%llu\n", "requests", (unsigned long long)c->requests);
	printf("%-24s%llu (%.1f %%)\n", "small model alone", (unsigned long long)c->small_only,
	       100 * share((double)c->small_only, (double)c->requests));
	printf("%-24s%llu (%.1f %%), refused by the budget %llu\n", "escalated", (unsigned long long)c->escalations,
	       100 * share((double)c->escalations, (double)c->requests), (unsigned long long)c->refused);
	print_names("  at", r->reasons, CASC_FOR_FAILURE + 1, casc_reason_name, false);
	print_names("plans", r->plans, CASC_PLAN_RACE + 1, casc_plan_name, false);
	print_names("  because", r->whys, CASC_N_WHYS, casc_why_name, false);
	printf("%-24s%llu small, %llu large; wasted %llu and %llu\n", "tokens shown",
	       (unsigned long long)c->small_shown, (unsigned long long)c->large_shown,
	       (unsigned long long)c->small_wasted, (unsigned long long)c->large_wasted);
	printf("%-24s%llu of %llu (%.1f %%)\n", "drafts accepted", (unsigned long long)c->accepted,
	       (unsigned long long)c->offered, 100 * share((double)c->accepted, (double)c->offered));
	printf("%-24s%llu of %llu with always-large (%.1f %%)\n", "large model's rows",
	       (unsigned long long)casc_cost_large(c), (unsigned long long)c->always_large,
	       100 * share((double)casc_cost_large(c), (double)c->always_large));
	printf("%-24s%.1f %%, with a small model's row at %g\n", "compute saved", 100 * casc_cost_saved(c, small_cost),
	       small_cost);
	if (r->judged > 0)
		printf("%-24s%zu of %zu right, always-large %zu (%.1f %%)\n", "quality on a sample", r->right,
		       r->judged, r->large_right, 100 * share((double)r->right, (double)r->large_right));
	printf("%-24ssmall model first: p50 %.0f, p99 %.0f (%zu); large model first: p50 %.0f, p99 %.0f (%zu)\n",
	       "TTFT, ms", percentile(r->small_ttft, r->n_small_ttft, 50),
	       percentile(r->small_ttft, r->n_small_ttft, 99), r->n_small_ttft,
	       percentile(r->large_ttft, r->n_large_ttft, 50), percentile(r->large_ttft, r->n_large_ttft, 99),
	       r->n_large_ttft);
}

static int report(int argc, char **argv)
{
	struct ask a = {0};
	struct sl_err err = {0};
	struct outcomes o;
	double small_cost = 0.1;
	const struct number numbers[] = {{"small-cost", &small_cost, 0, 1}};
	int rc = parse(&a, argc, argv, numbers, 1);
	if (rc != 0)
		return rc;
	rc = outcomes_read(a.file, &o, &err);
	if (rc != 0)
		return complain("report", err.text);
	struct report r = {.small_ttft = sl_zalloc_n(o.n + 1, sizeof(double)),
			   .large_ttft = sl_zalloc_n(o.n + 1, sizeof(double))};
	if (r.small_ttft == NULL || r.large_ttft == NULL) {
		rc = complain("report", "out of memory");
	} else {
		for (size_t i = 0; i < o.n; i++)
			add_to_report(&r, &o.at[i]);
		(a.json ? print_json : print_text)(&r, small_cost);
	}
	sl_free(r.small_ttft);
	sl_free(r.large_ttft);
	outcomes_dispose(&o);
	return rc;
}

static int refit(int argc, char **argv)
{
	struct ask a = {0};
	struct sl_err err = {0};
	double bits = CASC_BITS_USUAL, epochs = 20, newest = 0.3, least = 30, small_cost = 0.1, tolerance = 0.02;
	const struct number numbers[] = {{"bits", &bits, CASC_BITS_MIN, CASC_BITS_MAX},
					 {"epochs", &epochs, 1, 1000},
					 {"newest", &newest, 0.01, 0.5},
					 {"least", &least, 1, 1e6},
					 {"small-cost", &small_cost, 0, 1},
					 {"tolerance", &tolerance, 0, 0.99}};
	int rc = parse(&a, argc, argv, numbers, sizeof numbers / sizeof *numbers);
	if (rc != 0)
		return rc;
	if (a.output == NULL) {
		complain("refit", "needs -o WEIGHTS");
		return CMD_EXIT_USAGE;
	}
	if (out_file_is_not(a.output, a.file, &err) != 0)
		return complain("refit", err.text);
	out_file_on_signals();
	const struct refit_ask ask = {
	    .log = a.file,
	    .weights = a.output,
	    .json = a.json,
	    .settings = {
		.train = {.bits = (uint32_t)bits, .epochs = (uint32_t)epochs, .rate = 0.1, .decay = 0.01, .seed = 1},
		.newest = newest,
		.least = (uint32_t)least,
		.small_cost = small_cost,
		.tolerance = tolerance}};
	rc = refit_run(&ask, &err);
	return rc == 1 ? complain("refit", err.text) : rc;
}

int cmd_cascade(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} actions[] = {{"train", train}, {"calibrate", calibrate}, {"report", report}, {"refit", refit}};
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof actions / sizeof *actions && argc > 1; i++)
		if (strcmp(argv[1], actions[i].name) == 0)
			return actions[i].run(argc - 1, argv + 1);
	fputs(usage, stderr);
	return CMD_EXIT_USAGE;
}
