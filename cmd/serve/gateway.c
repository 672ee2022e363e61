/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice gateway`. A configuration belongs to its snapshot and is freed with the last request that began under it.
 */
#include "cmd/confine/confine.h"
#include "cmd/serve/core_dump.h"
#include "cmd/serve/recorder.h"
#include "cmd/serve/reload.h"
#include "gateway/server/gateway.h"
#include "gateway/auth/snapshot.h"

/* The supervisor has logged the same changes already. */
static bool is_child(const struct cmd_options *o) { return o->beat_fd >= 0; }

static int load(void *ctx, const struct gw_snapshot *now, struct gw_snapshot **out, struct sl_err *err)
{
	const struct cmd_options *o = ctx;
	struct sluice_config *cfg;
	int rc = reload_config(o, now->owner, KEPT_IN_RELOAD, !is_child(o), NULL, &cfg, err);
	if (rc != 0)
		return rc;
	const int format = cfg->log_format;
	struct log_levels levels;
	sluice_log_levels(cfg, &levels);
	cfg->gateway.sockets_stay = o->sockets_stay;
	rc = gw_snapshot_create(&cfg->gateway, cfg, reload_config_free, out);
	if (rc != 0)
		return sl_errf(err, rc, "no memory for the configuration");
	log_set_levels(&levels);
	log_set_format((enum log_format)format);
	return 0;
}

int cmd_gateway(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config *cfg;
	struct gw_snapshot *first;
	const struct gw_reload reload = {load, &o};
	int rc = cmd_options_parse(&o, argc, argv, false, "the gateway alone, in front of an engine");
	if (rc == 0)
		rc = reload_config_first(&o, "gateway", &cfg);
	if (rc != 0)
		return rc;
	core_dump_settle(cfg->supervisor.core_dumps);
	rc = confine(&o, cfg, SANDBOX_GATEWAY);
	if (rc != 0) {
		reload_config_free(cfg);
		return rc;
	}
	start_flight_recorder("gateway", cfg);
	cfg->gateway.beat_fd = o.beat_fd;
	cfg->gateway.handover_fd = o.handover_fd;
	cfg->gateway.takeover = o.takeover;
	cfg->gateway.sockets_stay = o.sockets_stay;
	if (gw_snapshot_create(&cfg->gateway, cfg, reload_config_free, &first) != 0) {
		log_error("no memory");
		return 1;
	}
	return gateway_run(first, &reload);
}
