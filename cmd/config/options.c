/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that all subcommands with a configuration share.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/beside.h"
#include "cmd/config/cmd.h"

/* Without -c: a source tree's; that of an installation in a folder of its own, beside the executable's; the system's.
 */
static const char *const usual_files[] = {"etc/sluice.yaml", "../etc/sluice/sluice.yaml", "/etc/sluice/sluice.yaml"};
enum { N_USUAL = sizeof usual_files / sizeof *usual_files };

enum {
	OPT_SET = 256,
	OPT_STATE,
	OPT_BEAT_FD,
	OPT_HANDOVER_FD,
	OPT_TAKEOVER,
	OPT_SOCKETS_STAY,
	OPT_BROKER_FD,
	OPT_STATE_FD,
	OPT_KV_FD,
	OPT_RUN_AS,
	OPT_ECHO,
	OPT_ENGINE,
	OPT_HELP
};

static void print_help(const char *name, const char *what)
{
	printf("sluice %s: %s\n\n"
	       "  -c, --config FILE   the configuration (default: %s, then PREFIX/etc/sluice/sluice.yaml of\n"
	       "                      an installation, then %s)\n"
	       "      --set KEY=VALUE override one key; may be repeated\n"
	       "      --state DIR     the same as --set state=DIR\n",
	       name, what, usual_files[0], usual_files[N_USUAL - 1]);
}

static int add_set(struct cmd_options *o, const char *set)
{
	if (o->n_sets == CMD_MAX_SETS) {
		fprintf(stderr, "sluice: more than %d times --set\n", CMD_MAX_SETS);
		return CMD_EXIT_USAGE;
	}
	o->sets[o->n_sets++] = set;
	return 0;
}

static int parse_fd(const char *option, const char *text, int *out)
{
	char *end;
	errno = 0;
	long fd = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || fd < 0 || fd > INT_MAX) {
		fprintf(stderr, "sluice: --%s: '%s' is not a descriptor\n", option, text);
		return CMD_EXIT_USAGE;
	}
	*out = (int)fd;
	return 0;
}

static void find_usual(struct cmd_options *o)
{
	for (size_t i = 0; o->path == NULL && i < N_USUAL; i++) {
		const char *path = usual_files[i];
		if (strncmp(path, "../", 3) == 0)
			path = beside_executable(path, o->found, sizeof o->found) ? o->found : NULL;
		if (path != NULL && access(path, R_OK) == 0)
			o->path = path;
	}
}

int cmd_options_parse(struct cmd_options *o, int argc, char **argv, bool takes_word, const char *what)
{
	static const struct option longs[] = {
	    {"config", required_argument, NULL, 'c'},
	    {"set", required_argument, NULL, OPT_SET},
	    {"state", required_argument, NULL, OPT_STATE},
	    {"beat-fd", required_argument, NULL, OPT_BEAT_FD},
	    {"handover-fd", required_argument, NULL, OPT_HANDOVER_FD},
	    {"takeover", no_argument, NULL, OPT_TAKEOVER},
	    {"sockets-stay", no_argument, NULL, OPT_SOCKETS_STAY},
	    {"broker-fd", required_argument, NULL, OPT_BROKER_FD},
	    {"state-fd", required_argument, NULL, OPT_STATE_FD},
	    {"kv-fd", required_argument, NULL, OPT_KV_FD},
	    {"run-as", required_argument, NULL, OPT_RUN_AS},
	    {"engine", required_argument, NULL, OPT_ENGINE},
	    {"echo", no_argument, NULL, OPT_ECHO},
	    {"help", no_argument, NULL, OPT_HELP},
	    {NULL, 0, NULL, 0},
	};
	*o = (struct cmd_options){.beat_fd = -1, .handover_fd = -1, .broker_fd = -1, .state_fd = -1, .kv_fd = -1};
	optind = 1;
	for (;;) {
		int opt = getopt_long(argc, argv, "c:h", longs, NULL);
		int rc = 0;
		if (opt == -1)
			break;
		switch (opt) {
		case 'c': o->path = optarg; break;
		case OPT_SET: rc = add_set(o, optarg); break;
		case OPT_STATE:
			if ((size_t)snprintf(o->state_set, sizeof o->state_set, "state=%s", optarg) >=
			    sizeof o->state_set) {
				fprintf(stderr, "sluice: --state: too long\n");
				return CMD_EXIT_USAGE;
			}
			rc = add_set(o, o->state_set);
			break;
		case OPT_BEAT_FD: rc = parse_fd("beat-fd", optarg, &o->beat_fd); break;
		case OPT_HANDOVER_FD: rc = parse_fd("handover-fd", optarg, &o->handover_fd); break;
		case OPT_TAKEOVER: o->takeover = true; break;
		case OPT_SOCKETS_STAY: o->sockets_stay = true; break;
		case OPT_BROKER_FD: rc = parse_fd("broker-fd", optarg, &o->broker_fd); break;
		case OPT_STATE_FD:
			rc = parse_fd("state-fd", optarg, &o->state_fd);
			sluice_config_state_fd(o->state_fd);
			break;
		case OPT_KV_FD: rc = parse_fd("kv-fd", optarg, &o->kv_fd); break;
		case OPT_RUN_AS: o->run_as = optarg; break;
		case OPT_ENGINE: o->engine = optarg; break;
		case OPT_ECHO: rc = add_set(o, "engine.echo.enabled=true"); break;
		case 'h':
		case OPT_HELP: print_help(argv[0], what); exit(0);
		default: fprintf(stderr, "Try: sluice %s --help\n", argv[0]); return CMD_EXIT_USAGE;
		}
		if (rc != 0)
			return rc;
	}
	if (optind < argc && takes_word)
		o->word = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "sluice %s: unexpected argument '%s'\n", argv[0], argv[optind]);
		return CMD_EXIT_USAGE;
	}
	if (o->path == NULL)
		find_usual(o);
	return 0;
}

int cmd_load(const struct cmd_options *o, const char *name, struct sluice_config *cfg)
{
	struct log_levels levels;
	struct sl_err err;
	if (o->path == NULL) {
		fprintf(stderr, "sluice: no configuration: use -c FILE, or create %s or %s\n", usual_files[0],
			usual_files[N_USUAL - 1]);
		return CMD_EXIT_CONFIG;
	}
	if (sluice_config_load_engine(cfg, o->path, o->sets, o->n_sets, o->engine, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		return CMD_EXIT_CONFIG;
	}
	log_init(name, (enum log_level)cfg->log_level);
	sluice_log_levels(cfg, &levels);
	log_set_levels(&levels);
	log_set_format((enum log_format)cfg->log_format);
	return 0;
}
