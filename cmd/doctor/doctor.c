/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice doctor`: its options, which are those of the commands with a configuration and of the clients, and the order
 * of the checks.
 */
#include "cmd/doctor/doctor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cmd/client/client.h"
#include "cmd/config/cmd.h"

enum { QUIET_S = 12, QUIET_MOST_S = 120 };

static const char usage[] =
    "usage: sluice doctor [-c FILE] [--set KEY=VALUE] [--state DIR] [--json]\n"
    "       sluice doctor URL [--quiet-seconds N] [--json]\n"
    "\n"
    "Without a URL, examines this machine and the configuration: limits, ports, certificates, the\n"
    "store, the state folder, models, memory, kernels. With a URL, examines the way to that server by\n"
    "timed streams: what refuses, buffers, compresses, times out, hides the client's address or its\n"
    "disconnect. Each fault comes with the line to change. The exit status is 1 if there is one.\n"
    "\n"
    "  -c, --config FILE the configuration, as for `sluice serve`\n"
    "  --set KEY=VALUE   overrides one key; may be repeated\n"
    "  --state DIR       the same as --set state=DIR\n"
    "  --quiet-seconds N how long one stream is silent, more than gateway.heartbeat (12); 0: none is\n"
    "  --json            one JSON object instead of lines\n" CLIENT_USAGE;

struct arguments {
	char **config, **client; /* argv of each kind; owned */
	int n_config, n_client;
	bool has_url;
};

/* Options of the configuration have a value each, in the next argument or after an equals sign. */
static bool is_config_option(const char *arg, bool *alone)
{
	static const char *const names[] = {"-c", "--config", "--set", "--state"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t n = strlen(names[i]);
		if (strncmp(arg, names[i], n) != 0)
			continue;
		*alone = arg[n] == '\0';
		if (*alone || arg[n] == '=')
			return true;
	}
	return false;
}

static int split(struct arguments *a, int argc, char **argv)
{
	size_t room = (size_t)argc + 1;
	*a = (struct arguments){.config = sl_zalloc_n(room, sizeof(char *)),
				.client = sl_zalloc_n(room, sizeof(char *))};
	if (a->config == NULL || a->client == NULL)
		return SL_ENOMEM;
	a->config[a->n_config++] = a->client[a->n_client++] = argv[0];
	for (int i = 1; i < argc; i++) {
		bool alone;
		if (is_config_option(argv[i], &alone)) {
			a->config[a->n_config++] = argv[i];
			if (alone && i + 1 < argc)
				a->config[a->n_config++] = argv[++i];
			continue;
		}
		a->has_url = a->has_url || strcmp(argv[i], "--url") == 0;
		a->client[a->n_client++] = argv[i];
	}
	return 0;
}

/* ---- this machine ---- */

/* NULL: it was reported why not. */
static struct sluice_config *read_config(struct report *r, const struct cmd_options *o, struct sluice_config *cfg)
{
	struct sl_err err = {0};
	if (o->path == NULL) {
		report_add(r, REPORT_FAIL, "config", "there is no configuration");
		report_change(r, "-c FILE; or create /etc/sluice/sluice.yaml");
		return NULL;
	}
	if (sluice_config_load(cfg, o->path, o->sets, o->n_sets, &err) != 0) {
		report_add(r, REPORT_FAIL, "config", "%s", err.text);
		if (strncmp(err.text, "--set:", 6) == 0)
			report_change(r, "the --set option named above");
		else
			report_change(r, "%s: the line and key named above", o->path);
		return NULL;
	}
	report_add(r, REPORT_OK, "config", "%s", o->path);
	return cfg;
}

static void examine_here(struct report *r, const struct cmd_options *o)
{
	static void (*const checks[])(struct report * r, const struct sluice_config *cfg) = {
	    check_ports, check_certificates, check_store, check_state, check_kv_disk, check_models, check_kernels};
	struct sluice_config here, *cfg = read_config(r, o, &here);
	check_machine(r, cfg);
	for (size_t i = 0; cfg != NULL && i < sizeof checks / sizeof *checks; i++) {
		report_progress(r, "examining this machine");
		checks[i](r, cfg);
	}
	if (cfg != NULL)
		sluice_config_free(cfg);
}

/* ---- the command ---- */

static int read_options(struct arguments *a, struct cmd_options *o, struct client_options *client, uint32_t *quiet_s,
			bool *json)
{
	const struct client_option own[] = {
	    {"--quiet-seconds", CLIENT_UINT, quiet_s, 0, QUIET_MOST_S},
	    {"--json", CLIENT_FLAG, json, 0, 0},
	};
	const char *url = NULL;
	int rc = client_options_read(client, own, sizeof own / sizeof *own, a->n_client, a->client, usage, &url);
	if (rc == 0)
		rc = cmd_options_parse(o, a->n_config, a->config, false, "");
	if (rc != 0 || url == NULL)
		return rc;
	a->has_url = true;
	if ((size_t)snprintf(client->url, sizeof client->url, "%s", url) >= sizeof client->url) {
		fprintf(stderr, "sluice doctor: %.60s…: too long\n", url);
		return CMD_EXIT_USAGE;
	}
	size_t n = strlen(client->url);
	if (n > 0 && client->url[n - 1] == '/')
		client->url[n - 1] = '\0';
	return 0;
}

static int examine(const struct arguments *a, const struct cmd_options *o, const struct client_options *client,
		   uint32_t quiet_s, bool json)
{
	struct report r = {.shows = isatty(STDERR_FILENO) && !json};
	if (json && (r.checks = json_array()) == NULL) {
		fputs("sluice doctor: no memory\n", stderr);
		return 1;
	}
	if (a->has_url)
		check_way(&r, &client->server, quiet_s);
	else
		examine_here(&r, o);
	return report_end(&r);
}

int cmd_doctor(int argc, char **argv)
{
	struct arguments a;
	struct cmd_options *o = sl_zalloc(sizeof *o);
	struct client_options *client = sl_zalloc(sizeof *client);
	uint32_t quiet_s = QUIET_S;
	bool json = false;
	signal(SIGPIPE, SIG_IGN); /* connections break */
	int rc = split(&a, argc, argv) == 0 && o != NULL && client != NULL
		     ? read_options(&a, o, client, &quiet_s, &json)
		     : 1;
	if (rc == 0)
		rc = examine(&a, o, client, quiet_s, json);
	sl_free(a.config);
	sl_free(a.client);
	sl_free(o);
	sl_free(client);
	return rc;
}
