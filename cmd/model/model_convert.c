/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model random` and `sluice model quantize`: arguments and a progress line on a terminal. engine/source does
 * the work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/out_file.h"
#include "base/progress.h"
#include "cmd/config/cmd.h"
#include "cmd/model/calibrate.h"
#include "cmd/model/model.h"
#include "engine/source/quantize_model.h"
#include "engine/source/random_model.h"

/* ---- progress ---- */

struct meter {
	struct progress at;
	bool shown;
};

static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	char line[64];
	uint64_t now = clock_now_ns();
	if (!progress_says(&m->at, now))
		return;
	m->shown = true;
	fprintf(stderr, "\r\033[K%s of %.1f MiB", progress_line(&m->at, done, total, now, line, sizeof line),
		(double)total / 1048576);
	fflush(stderr);
}

static struct convert_progress progress_for(struct meter *m)
{
	*m = (struct meter){0};
	return (struct convert_progress){.report = isatty(STDERR_FILENO) ? show : NULL, .ctx = m};
}

static int report(int rc, const struct meter *m, const char *out, const struct sl_err *err)
{
	if (m->shown)
		fputs("\r\033[K", stderr);
	if (rc != 0)
		return model_complain(1, "%s", err->text);
	printf("%s\n", out);
	return model_finish_output();
}

/* ---- arguments ---- */

struct arguments {
	const char *paths[2];
	const char *shape, *type, *tokenizer, *name, *calibrate;
	uint64_t seed;
	uint32_t context, threads;
	bool force, requantize;
};

/* Parses the options of both commands; each command rejects the other's options. */
static int parse(int argc, char **argv, struct arguments *a)
{
	const struct model_option options[] = {
	    {"--force", OPTION_FLAG, &a->force, 0, 0, NULL},
	    {"--requantize", OPTION_FLAG, &a->requantize, 0, 0, NULL},
	    {"--calibrate", OPTION_TEXT, &a->calibrate, 0, 0, NULL},
	    {"--shape", OPTION_TEXT, &a->shape, 0, 0, NULL},
	    {"--type", OPTION_TEXT, &a->type, 0, 0, NULL},
	    {"--tokenizer", OPTION_TEXT, &a->tokenizer, 0, 0, NULL},
	    {"--name", OPTION_TEXT, &a->name, 0, 0, NULL},
	    {"--seed", OPTION_U64, &a->seed, 0, 0, NULL},
	    {"--context", OPTION_U32, &a->context, 1, 1 << 24, NULL},
	    {"--threads", OPTION_U32, &a->threads, 0, 64, NULL},
	};
	return model_options(options, sizeof options / sizeof *options, argc, argv, 2, a->paths, 2);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

int model_random(int argc, char **argv)
{
	struct arguments a = {.type = "q8_0", .seed = 1};
	struct random_model m;
	struct meter meter;
	struct sl_err err = {0};
	int rc = parse(argc, argv, &a);
	if (rc != 0)
		return rc;
	if (a.paths[0] == NULL || a.paths[1] != NULL || a.shape == NULL || a.requantize || a.calibrate != NULL)
		return model_complain(CMD_EXIT_USAGE, "random needs --shape NAME and one file to write");
	m = (struct random_model){.path = a.paths[0],
				  .name = a.name,
				  .tokenizer = a.tokenizer,
				  .seed = a.seed,
				  .n_threads = (int)a.threads,
				  .keep = !a.force};
	char name[128];
	snprintf(name, sizeof name, "%.60s of random weights (seed %llu)", base_name(a.shape),
		 (unsigned long long)a.seed);
	if (m.name == NULL)
		m.name = name;
	if (random_shape_find(a.shape, &m.arch, &err) != 0 || weight_plan_parse(a.type, &m.plan, &err) != 0)
		return model_complain(CMD_EXIT_USAGE, "%s", err.text);
	if (a.context > 0)
		m.arch.n_ctx = (int)a.context;
	out_file_on_signals();
	struct convert_progress p = progress_for(&meter);
	return report(random_model_write(&m, &p, &err), &meter, m.path, &err);
}

static void say_kept(const struct quantize_kept *k, const char *type)
{
	if (k->n > 0)
		fprintf(
		    stderr,
		    "%zu matrices have four bits already and keep them (%s): as %s they would lose %.1f %% (root mean "
		    "square); --requantize converts them\n",
		    k->n, k->types, type, 100 * k->loss);
}

static void show_reading(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	if (!progress_says(&m->at, clock_now_ns()))
		return;
	m->shown = true;
	fprintf(stderr, "\r\033[Kcalibrating: %llu of %llu pieces of text", (unsigned long long)done,
		(unsigned long long)total);
	fflush(stderr);
}

static void say_calibrated(const struct calibration *c, const char *text)
{
	struct calibration_report r = calibration_report(c);
	fprintf(stderr, "%zu matrices rounded for their inputs in %zu tokens of %s, %zu without\n", r.n, r.n_tokens,
		text, r.n_without);
}

static int quantize(const struct arguments *a, const struct quantize_how *asked, struct meter *meter,
		    struct sl_err *err)
{
	struct quantize_how how = *asked;
	struct quantize_kept kept = {0};
	struct calibration *c = NULL;
	struct quantize_inputs inputs;
	bool terminal = isatty(STDERR_FILENO);
	if (a->calibrate != NULL && calibration_open(a->paths[0], a->calibrate, (int)a->threads,
						     terminal ? show_reading : NULL, meter, &c, err) != 0)
		return model_complain(1, "%s", err->text);
	if (c != NULL) {
		inputs = calibration_inputs(c);
		how.inputs = &inputs;
	}
	out_file_on_signals();
	struct convert_progress p = progress_for(meter);
	int rc = report(quantize_model(a->paths[0], a->paths[1], &how, &kept, &p, err), meter, a->paths[1], err);
	if (rc == 0)
		say_kept(&kept, a->type);
	if (rc == 0 && c != NULL)
		say_calibrated(c, a->calibrate);
	calibration_close(c);
	return rc;
}

int model_quantize(int argc, char **argv)
{
	struct arguments a = {0};
	struct quantize_how how;
	struct meter meter = {0};
	struct sl_err err = {0};
	int rc = parse(argc, argv, &a);
	if (rc != 0)
		return rc;
	if (a.paths[1] == NULL || a.type == NULL || a.shape != NULL || a.tokenizer != NULL || a.context > 0)
		return model_complain(CMD_EXIT_USAGE, "quantize needs a model, --type NAME and a file to write");
	how = (struct quantize_how){.replace = a.force, .requantize = a.requantize, .n_threads = (int)a.threads};
	if (weight_plan_parse(a.type, &how.plan, &err) != 0)
		return model_complain(CMD_EXIT_USAGE, "%s", err.text);
	return quantize(&a, &how, &meter, &err);
}
