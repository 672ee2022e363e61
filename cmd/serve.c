/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice serve`: everything that happens once around the supervisor. The configuration is read and
 * checked here first, so that a wrong one is told before anything starts; the children read the
 * same file with the same overrides again and need nothing but their arguments.
 *
 * The state folder is locked for as long as the supervisor lives: the kernel lets go of the lock
 * however the process ends, and children do not inherit it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/private_redis.h"
#include "cmd/supervise.h"
#include "engine/model.h"

enum { FIRST_BEAT_MS = 10000, HEALTHY_MS = 10000 };

struct serving {
	const struct sluice_config *cfg;
	struct gw_dev_keys keys;
	bool own_redis; /* one is started, and the gateway is told its address */
	struct private_redis redis;
	char address_set[192];
};

/* Every address is served on this machine too. */
static void print_host(const struct conf_address *a)
{
	if (a->host[0] == '\0' || strcmp(a->host, "0.0.0.0") == 0 ||
	    strcmp(a->host, "127.0.0.1") == 0 || strcmp(a->host, "::") == 0)
		printf("localhost:%u", (unsigned)a->port);
	else if (strchr(a->host, ':') != NULL)
		printf("[%s]:%u", a->host, (unsigned)a->port);
	else
		printf("%s:%u", a->host, (unsigned)a->port);
}

static void print_url(const struct gw_config *g)
{
	printf("%s://", g->http.off ? "https" : "http");
	print_host(g->http.off ? &g->https : &g->http);
}

static void on_ready(void *ctx)
{
	const struct serving *s = ctx;
	const struct gw_config *g = &s->cfg->gateway;
	printf("page ");
	print_url(g);
	if (g->dev_keys)
		printf("/#free=%s&paid=%s\nkey-free %s\nkey-paid %s\nkey-admin %s\n",
		       s->keys.key[GW_DEV_FREE], s->keys.key[GW_DEV_PAID], s->keys.key[GW_DEV_FREE],
		       s->keys.key[GW_DEV_PAID], s->keys.key[GW_DEV_ADMIN]);
	else
		printf("/\n");
	printf("curl -N%s ", g->http.off && g->cert_file[0] == '\0' ? "k" : "");
	print_url(g);
	printf("/v1/chat/completions -H 'Authorization: Bearer %s' "
	       "-H 'Content-Type: application/json' "
	       "-d '{\"model\":\"default\",\"stream\":true,"
	       "\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'\n",
	       g->dev_keys ? s->keys.key[GW_DEV_FREE] : "YOUR-KEY");
	printf("ready\n");
	fflush(stdout);
}

/* The lock's descriptor, or -1 with *err filled. */
static int lock_state(const char *state, struct sl_err *err)
{
	char path[4200], pid[32];
	snprintf(path, sizeof path, "%s/run/lock", state);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		sl_errf(err, SL_EIO, "%s: can't be opened: %s", path, strerror(errno));
		return -1;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		sl_errf(err, SL_EIO, "%s is in use by the sluice process %s; end that one, or give "
			"this one its own folder (--state DIR)",
			state, pid);
		close(fd);
		return -1;
	}
	int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n) {
		sl_errf(err, SL_EIO, "%s: can't be written: %s", path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static bool is_loopback(const struct conf_address *a)
{
	return a->off || strncmp(a->host, "127.", 4) == 0 || strcmp(a->host, "::1") == 0;
}

static void warn_of_exposure(const struct gw_config *g)
{
	if (g->dev_keys && !(is_loopback(&g->http) && is_loopback(&g->https)))
		log_warn("gateway.dev_keys is on and the gateway listens beyond this machine");
	if (!is_loopback(&g->http))
		log_warn("gateway.http listens beyond this machine without TLS");
}

/* A model that can't be loaded is FAILED alone while others serve; when none can be, nothing is
 * started and the first one's reason is the answer. */
static int check_models(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct model_settings *models = cfg->engine.models.items;
	struct sl_err other;
	int first = 0;
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		int rc = model_check(models[i].path, cfg->engine.max_model_memory,
				     first == 0 ? err : &other);
		if (rc == 0 || rc == SL_ENOMEM)
			return 0;
		first = first == 0 ? rc : first;
	}
	return first;
}

/* Where the store is, said in one line. */
static int choose_store(struct serving *s, struct sl_err *err)
{
	const struct gw_store_settings *c = &s->cfg->gateway.store;
	if (c->kind == GW_STORE_MEMORY) {
		log_info("store: memory, lost when the gateway ends");
		return 0;
	}
	if (c->address[0] != '\0') {
		log_info("store: Redis at %s", c->address);
		return 0;
	}
	if (!private_redis_find(&s->redis, s->cfg->state, c->server_memory)) {
		if (c->kind == GW_STORE_REDIS)
			return sl_errf(err, SL_ENOTFOUND,
				       "cache.store: redis, but cache.address is empty and no redis-server is installed");
		log_info("store: memory, lost when the gateway ends (redis-server is not installed)");
		return 0;
	}
	int rc = private_redis_prepare(&s->redis, err);
	if (rc != 0)
		return rc;
	s->own_redis = true;
	snprintf(s->address_set, sizeof s->address_set, "cache.address=%s", s->redis.address);
	log_info("store: a redis-server of its own in %s", s->redis.dir);
	return 0;
}

/* What must be there before the children start, and what would keep them from it: found here, it is
 * one line and nothing else. */
static int prepare(struct serving *s, struct sl_err *err)
{
	const struct gw_config *g = &s->cfg->gateway;
	int rc = gateway_check(g, err);
	if (rc == 0 && !s->cfg->echo.enabled)
		rc = check_models(s->cfg, err);
	if (rc == 0 && gateway_wants_dev_cert(g))
		rc = gw_dev_cert_ensure(s->cfg->state, err);
	if (rc == 0 && g->dev_keys)
		rc = gw_dev_keys_ensure(s->cfg->state, &s->keys, err);
	if (rc == 0)
		rc = choose_store(s, err);
	return rc;
}

/* argv of a child: `sluice NAME -c FILE --set …`. more: one override of our own, or NULL. */
static void child_argv(const struct cmd_options *o, const char *name, const char *more,
		       const char *argv[SUPERVISE_MAX_ARGS])
{
	size_t n = 0;
	argv[n++] = "sluice";
	argv[n++] = name;
	argv[n++] = "-c";
	argv[n++] = o->path;
	for (size_t i = 0; i < o->n_sets; i++) {
		argv[n++] = "--set";
		argv[n++] = o->sets[i];
	}
	if (more != NULL) {
		argv[n++] = "--set";
		argv[n++] = more;
	}
	argv[n] = NULL;
}

static int run(const struct cmd_options *o, struct serving *s)
{
	_Static_assert(2 * CMD_MAX_SETS + 7 < SUPERVISE_MAX_ARGS, "room for every override");
	const struct supervisor_settings *v = &s->cfg->supervisor;
	const char *engine[SUPERVISE_MAX_ARGS], *gateway[SUPERVISE_MAX_ARGS];
	child_argv(o, "engine", NULL, engine);
	child_argv(o, "gateway", s->own_redis ? s->address_set : NULL, gateway);
	/* Redis outlives a restart of the others. */
	const struct supervise_child children[] = {
	    {"redis", s->redis.argv, s->redis.exe}, {"engine", engine, NULL}, {"gateway", gateway, NULL}};
	int skip = s->own_redis ? 0 : 1;
	const struct supervise_config sup = {
	    .exe = "/proc/self/exe",
	    .children = children + skip,
	    .n_children = 3 - skip,
	    .hang_ms = v->hang_ms,
	    .first_beat_ms = v->hang_ms > FIRST_BEAT_MS ? v->hang_ms : FIRST_BEAT_MS,
	    .backoff_min_ms = v->backoff_min_ms,
	    .backoff_max_ms = v->backoff_max_ms,
	    .healthy_ms = HEALTHY_MS,
	    .drain_ms = v->drain_ms,
	    .on_ready = on_ready,
	    .ctx = s,
	};
	int rc = supervise(&sup);
	/* They remove their sockets themselves unless they were killed. */
	unlink(s->cfg->engine.socket);
	if (s->own_redis)
		unlink(s->redis.socket);
	return rc;
}

int cmd_serve(int argc, char **argv)
{
	struct cmd_options o;
	struct sluice_config cfg;
	int rc = cmd_options_parse(&o, argc, argv, false,
				   "start the engine and the gateway, and watch them");
	if (rc == 0)
		rc = cmd_load(&o, "sluice", &cfg);
	if (rc != 0)
		return rc;

	signal(SIGPIPE, SIG_IGN); /* a closed standard output must not end the service */
	struct serving s = {.cfg = &cfg};
	struct sl_err err;
	int lock = -1;
	rc = cmd_state_ensure(cfg.state, &err);
	if (rc == 0) {
		lock = lock_state(cfg.state, &err);
		rc = lock < 0 ? SL_EIO : prepare(&s, &err);
	}
	if (rc == 0 && s.own_redis && o.n_sets == CMD_MAX_SETS)
		rc = sl_errf(&err, SL_ELIMIT, "one --set too many: the gateway needs one for its store");
	if (rc == 0) {
		warn_of_exposure(&cfg.gateway);
		rc = run(&o, &s);
	} else {
		fprintf(stderr, "sluice: %s\n", err.text);
		rc = CMD_EXIT_CONFIG;
	}
	if (lock >= 0)
		close(lock);
	sluice_config_free(&cfg);
	return rc;
}
