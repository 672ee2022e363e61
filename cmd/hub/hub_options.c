/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hub/hub.h"

struct value {
	const char *option;
	const char **to;
};

/* Options of our own go to *o, all others to rest[]: the ones that all subcommands share. */
static int sort_one(struct hub_options *o, int argc, char **argv, int *i, char **rest, int *n)
{
	const struct value values[] = {
	    {"--name", &o->name}, {"--token-file", &o->token_file}, {"--sha256", &o->sha256}, {"--port", &o->port}};
	const char *arg = argv[*i], *folder = NULL;
	for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
		if (strcmp(arg, values[k].option) != 0)
			continue;
		if (*i + 1 == argc)
			return hub_complain(CMD_EXIT_USAGE, "%s: a value is missing", arg);
		*values[k].to = argv[++*i];
		return 0;
	}
	if (strcmp(arg, "--list") == 0) {
		o->list = true;
	} else if (strcmp(arg, "--rm") == 0) {
		o->rm = true;
	} else if (strcmp(arg, "--folder") == 0) {
		folder = *i + 1 < argc ? argv[++*i] : "";
		if (folder[0] == '\0' || (size_t)snprintf(o->folder_set, sizeof o->folder_set, "hub.folder=%s",
							  folder) >= sizeof o->folder_set)
			return hub_complain(CMD_EXIT_USAGE, "--folder: a folder is wanted");
	} else {
		rest[(*n)++] = argv[*i];
	}
	return 0;
}

int hub_options_parse(struct hub_options *o, int argc, char **argv, const char *usage)
{
	char **rest = calloc((size_t)argc + 1, sizeof *rest);
	int n = 0, rc = rest != NULL ? 0 : 1;
	*o = (struct hub_options){.list = false};
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			exit(0);
		}
	if (rc == 0)
		rest[n++] = argv[0];
	for (int i = 1; rc == 0 && i < argc; i++)
		rc = sort_one(o, argc, argv, &i, rest, &n);
	if (rc == 0)
		rc = cmd_options_parse(&o->common, n, rest, true, "");
	free(rest);
	if (rc != 0)
		return rc;
	o->word = o->common.word;
	if (o->folder_set[0] == '\0')
		return 0;
	if (o->common.n_sets == CMD_MAX_SETS)
		return hub_complain(CMD_EXIT_USAGE, "more than %d times --set", CMD_MAX_SETS);
	o->common.sets[o->common.n_sets++] = o->folder_set;
	return 0;
}

int hub_options_load(const struct hub_options *o, struct sluice_config *cfg)
{
	struct sl_err err;
	if (sluice_config_load(cfg, o->common.path, o->common.sets, o->common.n_sets, &err) != 0)
		return hub_complain(CMD_EXIT_CONFIG, "%s", err.text);
	log_init("sluice", LOG_WARN);
	return 0;
}

int hub_with_folder(const struct hub_options *o,
		    int (*run)(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o,
			       void *ctx),
		    void *ctx)
{
	struct sluice_config cfg;
	struct hub_folder f = {.fd = -1};
	struct sl_err err;
	int rc = hub_options_load(o, &cfg);
	if (rc != 0)
		return rc;
	rc = hub_folder_open(&cfg, &f, &err) == 0 ? run(&cfg, &f, o, ctx) : hub_complain(1, "%s", err.text);
	hub_folder_close(&f);
	sluice_config_free(&cfg);
	return rc;
}
