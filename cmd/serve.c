/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice serve`: checks the configuration, takes the state folder, starts the engine and the gateway
 * under the supervisor, and says on standard output how to reach them. Logs go to standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/supervise.h"
#include "gateway/gateway.h"

enum { HEALTHY_MS = 10000, FIRST_BEAT_MS = 20000 };

struct announcement {
	const struct sluice_config *cfg;
	struct gw_dev_keys keys;
};

/* One supervisor for a state folder. The lock lives as long as the descriptor. */
static int lock_state(const char *state, struct sl_err *err)
{
	char path[4096], pid[32];
	snprintf(path, sizeof path, "%s/run/lock", state);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		ssize_t n = read(fd, pid, sizeof pid - 1);
		pid[n > 0 ? n : 0] = '\0';
		close(fd);
		return sl_errf(err, SL_ELIMIT, "%s: in use by another sluice (process %s); --state DIR gives this one its own",
			       state, n > 0 ? pid : "unknown");
	}
	int n = snprintf(pid, sizeof pid, "%ld", (long)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	return 0;
}

/* "http://localhost:8080": what a browser on this machine opens without a warning. */
static void page_address(const struct gw_config *gw, char *out, size_t room)
{
	const struct conf_address *a = gw->http.off ? &gw->https : &gw->http;
	const char *host = a->host;
	bool local = host[0] == '\0' || strcmp(host, "127.0.0.1") == 0 || strcmp(host, "0.0.0.0") == 0;
	bool v6 = strchr(host, ':') != NULL;
	snprintf(out, room, "%s://%s%s%s:%u", gw->http.off ? "https" : "http", v6 ? "[" : "",
		 local ? "localhost" : host, v6 ? "]" : "", a->port);
}

static void on_ready(void *ctx)
{
	const struct announcement *a = ctx;
	const struct gw_config *gw = &a->cfg->gateway;
	char page[128];
	page_address(gw, page, sizeof page);
	if (gw->dev_keys) {
		const char *free_key = a->keys.key[GW_DEV_FREE];
		printf("page %s/#free=%s&paid=%s\n", page, free_key, a->keys.key[GW_DEV_PAID]);
		printf("key-free %s\nkey-paid %s\nkey-admin %s\n", free_key, a->keys.key[GW_DEV_PAID],
		       a->keys.key[GW_DEV_ADMIN]);
		printf("curl -N%s %s/v1/chat/completions -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' "
		       "-d '{\"model\":\"default\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]}'\n",
		       gw->http.off ? "k" : "", page, free_key);
	} else {
		printf("page %s/\n", page);
	}
	printf("ready\n");
	fflush(stdout);
}

/* sluice NAME [-c FILE] [--set KEY=VALUE]… */
static void child_argv(const struct cmd_options *o, const char *name, const char **argv)
{
	size_t n = 0;
	argv[n++] = "sluice";
	argv[n++] = name;
	if (o->path != NULL) {
		argv[n++] = "-c";
		argv[n++] = o->path;
	}
	for (size_t i = 0; i < o->n_sets; i++) {
		argv[n++] = "--set";
		argv[n++] = o->sets[i];
	}
	argv[n] = NULL;
}

static int run(const struct cmd_options *o, const struct sluice_config *cfg)
{
	static const char *engine_argv[SUPERVISE_MAX_ARGS], *gateway_argv[SUPERVISE_MAX_ARGS];
	struct announcement announcement = {.cfg = cfg};
	struct sl_err err;
	if (cmd_state_ensure(cfg->state, &err) != 0 || lock_state(cfg->state, &err) != 0 ||
	    (cfg->gateway.dev_keys && gw_dev_keys_ensure(cfg->gateway.state_dir, &announcement.keys, &err) != 0)) {
		log_error("%s", err.text);
		return CMD_EXIT_CONFIG;
	}
	child_argv(o, "engine", engine_argv);
	child_argv(o, "gateway", gateway_argv);
	const struct supervise_child children[] = {{"engine", engine_argv}, {"gateway", gateway_argv}};
	const struct supervise_config sup = {
	    .exe = "/proc/self/exe",
	    .children = children,
	    .n_children = 2,
	    .hang_ms = cfg->supervisor.hang_ms,
	    .first_beat_ms = FIRST_BEAT_MS,
	    .backoff_min_ms = cfg->supervisor.backoff_min_ms,
	    .backoff_max_ms = cfg->supervisor.backoff_max_ms,
	    .healthy_ms = HEALTHY_MS,
	    .drain_ms = cfg->supervisor.drain_ms,
	    .on_ready = on_ready,
	    .ctx = &announcement,
	};
	return supervise(&sup);
}

int cmd_serve(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config cfg;
	int rc = cmd_options_parse(&o, argc, argv, false, "start the engine and the gateway, and watch them");
	if (rc == 0)
		rc = cmd_load(&o, "sluice", &cfg);
	if (rc != 0)
		return rc;
	rc = run(&o, &cfg);
	sluice_config_free(&cfg);
	return rc;
}
