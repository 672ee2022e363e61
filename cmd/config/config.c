/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cmd/config/cmd.h"

static const char *restart_note(const char *key)
{
	switch (sluice_config_restart(key)) {
	case RESTART_NOT: break;
	case RESTART_ENGINE: return "a change starts new engines, which take over";
	case RESTART_GATEWAY: return "a change needs an upgrade or a restart";
	case RESTART_ALL: return "a change needs a restart";
	}
	return NULL;
}

static int show(const struct sluice_config *cfg)
{
	struct sl_buf text;
	buf_init(&text, 4 << 20);
	int rc = conf_show(cfg->conf, restart_note, &text);
	if (rc == 0)
		fwrite(buf_data(&text), 1, text.len, stdout);
	else
		fprintf(stderr, "sluice: %s\n", sl_code_name(rc));
	buf_dispose(&text);
	return rc == 0 ? 0 : 1;
}

int cmd_config(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config cfg;
	int rc = cmd_options_parse(&o, argc, argv, true,
				   "check or show the configuration\n\n"
				   "usage: sluice config check|show [options]\n\n"
				   "check reports errors of a configuration, show prints all values and where they "
				   "come from");
	if (rc != 0)
		return rc;
	bool check = o.word != NULL && strcmp(o.word, "check") == 0;
	if (!check && (o.word == NULL || strcmp(o.word, "show") != 0)) {
		fprintf(stderr, "usage: sluice config check|show [-c FILE] [--set KEY=VALUE]\n");
		return CMD_EXIT_USAGE;
	}
	rc = cmd_load(&o, "config", &cfg);
	if (rc != 0)
		return rc;
	if (check)
		printf("%s: good\n", o.path);
	else
		rc = show(&cfg);
	sluice_config_free(&cfg);
	return rc;
}
