/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model random` and `sluice model quantize`: arguments, and a line of progress where a person
 * watches. The work is the engine's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/out_file.h"
#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "engine/source/quantize_model.h"
#include "engine/source/random_model.h"

/* ---- progress ---- */

struct meter {
	int percent;
};

static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	int percent = total > 0 ? (int)(100.0 * (double)done / (double)total) : 100;
	if (percent == m->percent)
		return;
	m->percent = percent;
	fprintf(stderr, "\r%3d %% of %.1f MiB", percent, (double)total / 1048576);
	fflush(stderr);
}

static struct convert_progress progress_for(struct meter *m)
{
	m->percent = -1;
	return (struct convert_progress){.report = isatty(STDERR_FILENO) ? show : NULL, .ctx = m};
}

static int report(int rc, const struct meter *m, const char *out, const struct sl_err *err)
{
	if (m->percent >= 0)
		fputs("\r\033[K", stderr);
	if (rc != 0)
		return model_complain(1, "%s", err->text);
	printf("%s\n", out);
	return model_finish_output();
}

/* ---- arguments ---- */

struct arguments {
	const char *paths[2];
	int n_paths;
	const char *shape, *type, *tokenizer, *name;
	uint64_t seed, context, threads;
	bool force;
};

/* Options of both commands; what one does not take, its own check refuses. */
static int parse(int argc, char **argv, struct arguments *a)
{
	const struct {
		const char *name;
		void *at; /* uint64_t, or a pointer to text */
		bool is_number;
		uint64_t least, most;
	} options[] = {
	    {"--shape", &a->shape, false, 0, 0},         {"--type", &a->type, false, 0, 0},
	    {"--tokenizer", &a->tokenizer, false, 0, 0}, {"--name", &a->name, false, 0, 0},
	    {"--seed", &a->seed, true, 0, UINT64_MAX},   {"--context", &a->context, true, 1, 1 << 24},
	    {"--threads", &a->threads, true, 0, 64},
	};
	const size_t n = sizeof options / sizeof *options;
	for (int i = 2; i < argc; i++) {
		const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strncmp(option, "--", 2) != 0) {
			if (a->n_paths == 2)
				return model_complain(CMD_EXIT_USAGE, "%s is one file too many", option);
			a->paths[a->n_paths++] = option;
			continue;
		}
		if (strcmp(option, "--force") == 0) {
			a->force = true;
			continue;
		}
		size_t k = 0;
		while (k < n && strcmp(options[k].name, option) != 0)
			k++;
		if (k == n)
			return model_complain(CMD_EXIT_USAGE, "no option %s", option);
		if (value == NULL ||
		    (options[k].is_number && !model_whole(value, options[k].least, options[k].most, options[k].at)))
			return model_complain(CMD_EXIT_USAGE, "%s: %s is not possible", option,
					      value != NULL ? value : "nothing");
		if (!options[k].is_number)
			*(const char **)options[k].at = value;
		i++;
	}
	return 0;
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
	if (a.n_paths != 1 || a.shape == NULL)
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

int model_quantize(int argc, char **argv)
{
	struct arguments a = {0};
	struct weight_plan plan;
	struct meter meter;
	struct sl_err err = {0};
	int rc = parse(argc, argv, &a);
	if (rc != 0)
		return rc;
	if (a.n_paths != 2 || a.type == NULL || a.shape != NULL || a.tokenizer != NULL || a.context > 0)
		return model_complain(CMD_EXIT_USAGE, "quantize needs a model, --type NAME and a file to write");
	if (weight_plan_parse(a.type, &plan, &err) != 0)
		return model_complain(CMD_EXIT_USAGE, "%s", err.text);
	out_file_on_signals();
	struct convert_progress p = progress_for(&meter);
	return report(quantize_model(a.paths[0], a.paths[1], a.force, &plan, (int)a.threads, &p, &err), &meter,
		      a.paths[1], &err);
}
