/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cmd/confine/confine.h"
#include "cmd/serve/core_dump.h"
#include "cmd/serve/recorder.h"
#include "engine/file/map_file.h"
#include "engine/handover/hand_area.h"

/* The supervisor's area, mapped before this process is confined, if it has pages to pass. Without it the engine serves,
 * too. */
static struct hand_area *map_area(const struct cmd_options *o, const struct sluice_config *cfg)
{
	struct hand_area *a = NULL;
	const bool has_pages = !cfg->echo.enabled && !sluice_has_upstream(cfg);
	if (o->kv_fd >= 0 && has_pages && hand_area_map(o->kv_fd, &a) != 0)
		log_warn("no pages pass between this engine and others: their shared memory can't be mapped");
	if (o->kv_fd >= 0)
		(void)close(o->kv_fd);
	return a;
}

static int run_models(const struct sluice_config *cfg, const struct eng_server_config *srv, struct hand_area *area,
		      uint32_t number)
{
	struct eng_config eng;
	struct eng_model_config *models = sl_zalloc_n(cfg->engine.models.n, sizeof(struct eng_model_config));
	if (models == NULL) {
		log_error("no memory");
		return 1;
	}
	sluice_engine_config(cfg, models, &eng);
	eng.hand_area = area;
	eng.hand_number = number;
	eng.beside = srv->takeover;
	int rc = engine_serve(&eng, srv);
	sl_free(models);
	return rc;
}

static int run_remote(const struct sluice_config *cfg, const struct eng_server_config *srv)
{
	struct eng_remote_config remote;
	struct eng_remote_model *models = sl_zalloc_n(sluice_remote_models(cfg) + 1, sizeof *models);
	if (models == NULL) {
		log_error("no memory");
		return 1;
	}
	sluice_remote_config(cfg, models, &remote);
	int rc = engine_serve_remote(&remote, srv);
	sl_free(models);
	return rc;
}

int cmd_engine(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config cfg;
	int rc = cmd_options_parse(&o, argc, argv, false,
				   "an engine alone; --engine NAME: that of `engines`; --echo: without models");
	if (rc == 0)
		rc = cmd_load(&o, "engine", &cfg);
	if (rc != 0)
		return rc;
	struct sl_err err;
	if (engines_pin(&cfg, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		sluice_config_free(&cfg);
		return CMD_EXIT_CONFIG;
	}
	core_dump_settle(cfg.supervisor.core_dumps);
	sluice_load_backends(&cfg);
	struct hand_area *area = map_area(&o, &cfg);
	rc = confine(&o, &cfg,
		     sluice_has_upstream(&cfg)   ? SANDBOX_REMOTE
		     : sluice_wants_device(&cfg) ? SANDBOX_DRIVER
						 : SANDBOX_ENGINE);
	if (rc != 0)
		return rc;
	map_file_guard(); /* before the recorder, which dumps and then hands the signal on to it */
	start_flight_recorder("engine", &cfg);
	struct eng_server_config srv = {
	    .socket_path = cfg.engine.socket,
	    .beat_fd = o.beat_fd,
	    .takeover = o.takeover,
	    .beat_ms = (unsigned)cfg.supervisor.heartbeat_ms,
	    .stale_ms = (unsigned)cfg.supervisor.hang_ms,
	};
	if (cfg.echo.enabled) {
		struct eng_echo_config echo;
		sluice_echo_config(&cfg, &echo);
		rc = engine_serve_echo(&echo, &srv);
	} else if (sluice_has_upstream(&cfg)) {
		rc = run_remote(&cfg, &srv);
	} else {
		rc = run_models(&cfg, &srv, area, engines_number(&cfg, o.engine));
	}
	hand_area_unmap(area);
	sluice_config_free(&cfg);
	return rc;
}
