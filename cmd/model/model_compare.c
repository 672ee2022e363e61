/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model compare`: options and output. compare_text.c and compare_tasks.c measure, compare_stats.c judges.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/progress.h"
#include "cmd/config/cmd.h"
#include "cmd/model/compare_tasks.h"
#include "cmd/model/compare_text.h"
#include "cmd/model/model.h"
#include "kernels/kv_type.h"

enum { BLOCK = 512, TASK_TOKENS = 256, POINTS_WANTED = 1 };

struct side {
	const char *path, *adapter, *quantize, *kv_type, *kv_rotation;
	struct scorer *scorer;
};

struct compare_options {
	struct side sides[2];
	const char *text, *tasks, *match, *backend;
	uint32_t block, tokens;
	int n_threads;
	bool raw, json;
};

struct comparison {
	bool has_text, has_tasks;
	struct text_comparison text;
	char kv[2][24], weights[2][96];
	struct stats_pairs pairs;
	struct stats_verdict tasks;
	uint64_t needed; /* tasks to find a loss of POINTS_WANTED; 0: more than STATS_MOST_TASKS */
};

/* ---- progress ---- */

struct meter {
	const char *what;
	struct progress at;
	bool shown;
};

static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	if (!progress_says(&m->at, clock_now_ns()))
		return;
	m->shown = true;
	fprintf(stderr, "\r\033[K%s: %llu of %llu", m->what, (unsigned long long)done, (unsigned long long)total);
	fflush(stderr);
}

static void clear(const struct meter *m)
{
	if (m->shown)
		fputs("\r\033[K", stderr);
}

/* ---- measuring ---- */

static int open_sides(struct compare_options *o, struct sl_err *err)
{
	int rc = 0;
	for (int i = 0; i < 2 && rc == 0; i++) {
		struct side *s = &o->sides[i];
		const struct scorer_how how = {.path = s->path,
					       .adapter = s->adapter,
					       .backend = o->backend,
					       .quantize = s->quantize,
					       .kv_type = s->kv_type,
					       .kv_rotation = s->kv_rotation,
					       .n_threads = o->n_threads,
					       .most_tokens = (int)o->block,
					       .host_logits = true};
		rc = scorer_open(&how, &s->scorer, err);
	}
	return rc != 0 ? rc
		       : compare_vocabularies(model_tokenizer(scorer_model(o->sides[0].scorer)),
					      model_tokenizer(scorer_model(o->sides[1].scorer)), err);
}

static int measure_text(struct compare_options *o, struct comparison *c, struct sl_err *err)
{
	struct scorer *a = o->sides[0].scorer, *b = o->sides[1].scorer;
	struct text_pieces pieces;
	struct meter meter = {.what = "text"};
	int most_a = scorer_most_tokens(a), most_b = scorer_most_tokens(b);
	int rc = text_pieces_read(scorer_model(a), o->text, most_a < most_b ? most_a : most_b, &pieces, err);
	if (rc != 0)
		return rc;
	rc = compare_text(a, b, &pieces, isatty(STDERR_FILENO) ? show : NULL, &meter, &c->text, err);
	clear(&meter);
	text_pieces_dispose(&pieces);
	c->has_text = rc == 0;
	return rc;
}

static int measure_tasks(const struct compare_options *o, struct comparison *c, struct sl_err *err)
{
	struct tasks tasks;
	struct meter meter;
	int rc = tasks_read(o->tasks, o->raw, &tasks, err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < 2 && rc == 0; i++) {
		const struct side *s = &o->sides[i];
		meter = (struct meter){.what = i == 0 ? "tasks of A" : "tasks of B"};
		const struct tasks_how how = {.path = s->path,
					      .adapter = s->adapter,
					      .backend = o->backend,
					      .quantize = s->quantize,
					      .kv_type = s->kv_type,
					      .kv_rotation = s->kv_rotation,
					      .n_threads = o->n_threads,
					      .most_tokens = o->tokens,
					      .match = (enum task_match)task_match_from_name(o->match),
					      .report = isatty(STDERR_FILENO) ? show : NULL,
					      .ctx = &meter};
		rc = tasks_run(&tasks, i, &how, err);
		clear(&meter);
	}
	for (size_t i = 0; i < tasks.n; i++) {
		bool a = tasks.all[i].right[0], b = tasks.all[i].right[1];
		(*(a && b ? &c->pairs.both : a ? &c->pairs.only_a : b ? &c->pairs.only_b : &c->pairs.neither))++;
	}
	tasks_dispose(&tasks);
	c->tasks = stats_judge_tasks(&c->pairs);
	c->needed = stats_tasks_needed(stats_pairs_churn(&c->pairs), POINTS_WANTED / 100.0);
	c->has_tasks = rc == 0;
	return rc;
}

static int measure(struct compare_options *o, struct comparison *c, struct sl_err *err)
{
	int rc = open_sides(o, err);
	if (rc == 0 && o->text != NULL)
		rc = measure_text(o, c, err);
	for (int i = 0; i < 2; i++) {
		const struct scorer *s = o->sides[i].scorer;
		if (rc == 0) {
			snprintf(c->kv[i], sizeof c->kv[i], "%s", scorer_kv_name(s));
			snprintf(c->weights[i], sizeof c->weights[i], "%s", model_info(scorer_model(s))->weight_types);
		}
		scorer_close(o->sides[i].scorer); /* before an engine loads the same weights */
	}
	return rc == 0 && o->tasks != NULL ? measure_tasks(o, c, err) : rc;
}

/* ---- text ---- */

static uint64_t n_tasks(const struct stats_pairs *p) { return p->both + p->only_a + p->only_b + p->neither; }

static double percent_error(double share, double n) { return 100 * sqrt(share * (1 - share) / n); }

static void print_text(const struct text_comparison *t)
{
	double a = exp(t->loss_a.value), b = exp(t->loss_b.value), ratio = exp(t->difference.value);
	printf("text        %zu positions in %zu %s\n", t->n_positions, t->n_clusters,
	       t->by_document ? "documents" : "blocks");
	printf("perplexity  A %.5g ± %.2g, B %.5g ± %.2g; B / A %.5f ± %.2g\n", a, a * t->loss_a.se, b,
	       b * t->loss_b.se, ratio, ratio * t->difference.se);
	printf("same token  %.3f %% ± %.2g of positions have the same likeliest one\n", 100 * t->agreement.value,
	       100 * t->agreement.se);
	printf("KL(A||B)    mean %.4g ± %.2g, median %.4g, 99 %% %.4g, most %.4g nats\n", t->kl.value, t->kl.se,
	       t->kl_median, t->kl_p99, t->kl_most);
}

static void print_tasks(const struct stats_pairs *p, const struct stats_verdict *v)
{
	double n = (double)n_tasks(p), a = (double)(p->both + p->only_a) / n, b = (double)(p->both + p->only_b) / n;
	printf("tasks       %.0f: right A %.2f %% ± %.2g, B %.2f %% ± %.2g; B - A %.2f points ± %.2g\n", n, 100 * a,
	       percent_error(a, n), 100 * b, percent_error(b, n), 100 * v->difference,
	       100 * (v->high - v->low) / 2 / 1.96);
	printf("            only A right %llu, only B right %llu\n", (unsigned long long)p->only_a,
	       (unsigned long long)p->only_b);
}

static const char *found_name(enum stats_found f)
{
	static const char *const names[] = {"too_few", "identical", "none", "worse", "better"};
	return names[f];
}

static void print_text_verdict(const struct text_comparison *t)
{
	const struct stats_verdict *v = &t->verdict;
	const char *what = t->by_document ? "documents" : "blocks";
	double low = 100 * expm1(v->low), high = 100 * expm1(v->high), by = 100 * expm1(v->difference);
	printf("verdict     ");
	if (v->found == STATS_TOO_FEW)
		printf("text: one %s is too few to tell a difference\n", t->by_document ? "document" : "block");
	else if (v->found == STATS_WORSE || v->found == STATS_BETTER)
		printf("text: B is %s by %.3g %% of perplexity (95 %%: %.3g to %.3g), n = %zu positions in %zu %s\n",
		       found_name(v->found), fabs(by), fmin(fabs(low), fabs(high)), fmax(fabs(low), fabs(high)),
		       t->n_positions, t->n_clusters, what);
	else
		printf("text: no difference found at the 95 %% level, n = %zu positions in %zu %s; ", t->n_positions,
		       t->n_clusters, what);
	if (v->found == STATS_IDENTICAL)
		printf("all are identical\n");
	else if (v->found == STATS_NONE)
		printf("a difference of %.3g %% of perplexity would be found with 95 %% power\n",
		       100 * expm1(v->detectable));
}

static void print_tasks_verdict(const struct comparison *c)
{
	const struct stats_verdict *v = &c->tasks;
	uint64_t n = n_tasks(&c->pairs);
	printf("verdict     ");
	if (v->found == STATS_WORSE || v->found == STATS_BETTER)
		printf("tasks: B is %s by %.2f points (95 %%: %.2f to %.2f), n = %llu", found_name(v->found),
		       100 * fabs(v->difference), 100 * fmin(fabs(v->low), fabs(v->high)),
		       100 * fmax(fabs(v->low), fabs(v->high)), (unsigned long long)n);
	else
		printf("tasks: no difference found at the 95 %% level, n = %llu", (unsigned long long)n);
	if (isfinite(v->detectable))
		printf("; a loss of %.2f points would be found with 95 %% power", 100 * v->detectable);
	else
		printf("; no loss would be found with 95 %% power");
	if (c->needed > 0)
		printf(", one of %d with n = %llu\n", POINTS_WANTED, (unsigned long long)c->needed);
	else
		printf(", one of %d with more than %d tasks\n", POINTS_WANTED, STATS_MOST_TASKS);
}

static void print_side(const struct compare_options *o, const struct comparison *c, int i)
{
	const struct side *s = &o->sides[i];
	printf("%c           %s%s%s: weights %s; keys and values %s\n", "AB"[i], s -> path,
	       s -> adapter != NULL ? " + " : "", s->adapter != NULL ? s->adapter : "", c->weights[i], c->kv[i]);
}

static int print_all(const struct compare_options *o, const struct comparison *c)
{
	print_side(o, c, 0);
	print_side(o, c, 1);
	if (c->has_text)
		print_text(&c->text);
	if (c->has_tasks)
		print_tasks(&c->pairs, &c->tasks);
	if (c->has_text)
		print_text_verdict(&c->text);
	if (c->has_tasks)
		print_tasks_verdict(c);
	return model_finish_output();
}

/* ---- JSON ---- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *estimate(struct estimate e)
{
	return json_pack("{s:o, s:o}", "value", number(e.value), "standard_error", number(e.se));
}

static json_t *verdict(const struct stats_verdict *v)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:o}", "found", found_name(v->found), "difference",
			 number(v->difference), "low", number(v->low), "high", number(v->high), "detectable",
			 number(v->detectable));
}

static json_t *side_json(const struct compare_options *o, const struct comparison *c, int i)
{
	return json_pack("{s:s, s:s*, s:s, s:s}", "path", o->sides[i].path, "adapter", o->sides[i].adapter, "weights",
			 c->weights[i], "kv", c->kv[i]);
}

static json_t *text_json(const struct text_comparison *t)
{
	return json_pack("{s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "positions",
			 (json_int_t)t->n_positions, "clusters", (json_int_t)t->n_clusters, "clustered_by",
			 t->by_document ? "document" : "block", "perplexity_a", number(exp(t->loss_a.value)),
			 "perplexity_b", number(exp(t->loss_b.value)), "loss_a", estimate(t->loss_a), "loss_b",
			 estimate(t->loss_b), "loss_difference", estimate(t->difference), "same_token",
			 estimate(t->agreement), "kl", estimate(t->kl), "kl_p50", number(t->kl_median), "kl_p99",
			 number(t->kl_p99), "kl_max", number(t->kl_most), "verdict", verdict(&t->verdict));
}

static json_t *tasks_json(const struct comparison *c)
{
	const struct stats_pairs *p = &c->pairs;
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I}", "n", (json_int_t)n_tasks(p), "both",
			 (json_int_t)p->both, "only_a", (json_int_t)p->only_a, "only_b", (json_int_t)p->only_b,
			 "neither", (json_int_t)p->neither, "p", number(stats_pairs_probability(p)), "verdict",
			 verdict(&c->tasks), "needed_for_1_point", (json_int_t)c->needed);
}

static int print_json(const struct compare_options *o, const struct comparison *c)
{
	json_t *root = json_pack("{s:o, s:o}", "a", side_json(o, c, 0), "b", side_json(o, c, 1));
	int rc = root == NULL;
	if (rc == 0 && c->has_text)
		rc = json_object_set_new(root, "text", text_json(&c->text));
	if (rc == 0 && c->has_tasks)
		rc = json_object_set_new(root, "tasks", tasks_json(c));
	if (rc != 0) {
		json_decref(root);
		return model_complain(1, "out of memory");
	}
	rc = model_print_json(root);
	return rc != 0 ? rc : model_finish_output();
}

/* ---- options ---- */

static int check_side(const struct side *s, char name)
{
	if (s->quantize != NULL && kn_type_from_name(s->quantize) < 0 && strcasecmp(s->quantize, "fp8") != 0)
		return model_complain(CMD_EXIT_USAGE, "--quantize-%c: no type is named %s", name, s->quantize);
	if (s->kv_type != NULL && strcasecmp(s->kv_type, "auto") != 0 && kn_kv_type_from_name(s->kv_type) < 0)
		return model_complain(CMD_EXIT_USAGE, "--kv-%c: no KV cache type is named %s", name, s->kv_type);
	if (model_kv_rotation_from_name(s->kv_rotation) < 0)
		return model_complain(CMD_EXIT_USAGE, "--kv-rotation-%c is auto, on or off, not %s", name,
				      s->kv_rotation);
	return 0;
}

static int check(const struct compare_options *o)
{
	if (o->sides[0].path == NULL || o->sides[1].path == NULL)
		return model_complain(CMD_EXIT_USAGE, "compare needs two models");
	if (o->text == NULL && o->tasks == NULL)
		return model_complain(CMD_EXIT_USAGE, "compare needs --text or --tasks");
	if (task_match_from_name(o->match) < 0)
		return model_complain(CMD_EXIT_USAGE, "--match is exact, prefix or words, not %s", o->match);
	int rc = check_side(&o->sides[0], 'a');
	return rc != 0 ? rc : check_side(&o->sides[1], 'b');
}

int model_compare(int argc, char **argv)
{
	struct compare_options o = {.match = "exact", .backend = "auto", .block = BLOCK, .tokens = TASK_TOKENS};
	struct side *a = &o.sides[0], *b = &o.sides[1];
	const struct model_option options[] = {
	    {"--text", OPTION_TEXT, &o.text, 0, 0, NULL},
	    {"--tasks", OPTION_TEXT, &o.tasks, 0, 0, NULL},
	    {"--match", OPTION_TEXT, &o.match, 0, 0, NULL},
	    {"--raw", OPTION_FLAG, &o.raw, 0, 0, NULL},
	    {"--tokens", OPTION_U32, &o.tokens, 1, 1 << 20, NULL},
	    {"--block", OPTION_U32, &o.block, 2, 1 << 20, NULL},
	    {"--adapter-a", OPTION_TEXT, &a->adapter, 0, 0, NULL},
	    {"--adapter-b", OPTION_TEXT, &b->adapter, 0, 0, NULL},
	    {"--quantize-a", OPTION_TEXT, &a->quantize, 0, 0, NULL},
	    {"--quantize-b", OPTION_TEXT, &b->quantize, 0, 0, NULL},
	    {"--kv-a", OPTION_TEXT, &a->kv_type, 0, 0, NULL},
	    {"--kv-b", OPTION_TEXT, &b->kv_type, 0, 0, NULL},
	    {"--kv-rotation-a", OPTION_TEXT, &a->kv_rotation, 0, 0, NULL},
	    {"--kv-rotation-b", OPTION_TEXT, &b->kv_rotation, 0, 0, NULL},
	    {"--backend", OPTION_TEXT, &o.backend, 0, 0, NULL},
	    {"--threads", OPTION_U32, &o.n_threads, 0, 1024, NULL},
	    {"--json", OPTION_FLAG, &o.json, 0, 0, NULL},
	};
	const char *paths[2] = {NULL, NULL};
	struct comparison c = {0};
	struct sl_err err = {0};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 2, paths, 2);
	a->path = paths[0];
	b->path = paths[1];
	if (rc == 0)
		rc = check(&o);
	if (rc != 0)
		return rc;
	if (measure(&o, &c, &err) != 0)
		return model_complain(1, "%s", err.text);
	return o.json ? print_json(&o, &c) : print_all(&o, &c);
}
