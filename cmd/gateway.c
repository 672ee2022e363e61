/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

int cmd_gateway(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config cfg;
	int rc = cmd_options_parse(&o, argc, argv, false, "the gateway alone, in front of an engine");
	if (rc == 0)
		rc = cmd_load(&o, "gateway", &cfg);
	if (rc != 0)
		return rc;
	struct sl_err err;
	if (cmd_state_ensure(cfg.state, &err) != 0) {
		log_error("%s", err.text);
		return CMD_EXIT_CONFIG;
	}
	cfg.gateway.beat_fd = o.beat_fd;
	rc = gateway_run(&cfg.gateway);
	sluice_config_free(&cfg);
	return rc;
}
