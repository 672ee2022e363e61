/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of this room's subcommands.
 */
#ifndef CMD_HUB_OPTIONS_H
#define CMD_HUB_OPTIONS_H

#include "cmd/config/cmd.h"

#define HUB_COMMON_USAGE                                                                                           \
	"\n"                                                                                                       \
	"OPTIONS:\n"                                                                                               \
	"  -c, --config FILE      the configuration (default: as for `sluice serve`; without one, the defaults)\n" \
	"      --set KEY=VALUE    override one key; may be repeated: --set hub.endpoint=https://MIRROR\n"          \
	"      --state DIR        the same as --set state=DIR\n"                                                   \
	"      --folder DIR       the same as --set hub.folder=DIR: where models lie\n"

struct hub_folder;

struct hub_options {
	struct cmd_options common;
	char folder_set[4200];
	const char *name, *token_file, *sha256;
	bool list, rm;
	const char *port; /* of `run` */
	const char *word; /* NULL: none */
};

/* 0, or the exit status after printing an error (--help ends the process). o must not move afterwards. */
int hub_options_parse(struct hub_options *o, int argc, char **argv, const char *usage);
/* Reads the configuration; without a file, the defaults. */
int hub_options_load(const struct hub_options *o, struct sluice_config *cfg);
/* Runs `run` with the configuration and the folder of models open. Its exit status, or one after printing an error. */
int hub_with_folder(const struct hub_options *o,
		    int (*run)(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o,
			       void *ctx),
		    void *ctx);

#endif
