/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice serve`: what happens once around the supervisor (supervise.h). The configuration is read and checked here
 * first, so that an error is reported before anything starts; children read the same file with the same overrides.
 * A reload or an upgrade reads it again; keys that must not change under running processes are pinned to their values
 * by further overrides ("pins"), which every child started later gets.
 *
 * Children read a copy of the file as it was when it passed the checks: a file that is being edited, or was refused,
 * cannot prevent the restart of a crashed child.
 *
 * The state folder is locked while the supervisor lives; the kernel releases the lock however the process ends, and
 * children do not inherit it. One thread; called from main only.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cmd/config/cmd.h"
#include "cmd/serve/activation.h"
#include "cmd/serve/core_dump.h"
#include "cmd/serve/grant.h"
#include "cmd/state/private_redis.h"
#include "cmd/state/privileges.h"
#include "cmd/serve/reload.h"
#include "cmd/confine/sandbox.h"
#include "cmd/state/state.h"
#include "cmd/serve/supervise.h"
#include "engine/core/backend_choice.h"
#include "engine/handover/hand_area.h"
#include "engine/model/model.h"
#include "gateway/server/dev_cert.h"
#include "gateway/auth/dev_keys.h"
#include "gateway/server/gateway.h"
#include "gateway/transport/handover.h"
#include "kernels/kv_type.h"

enum {
	FIRST_BEAT_MS = 10000,
	HEALTHY_MS = 10000,
	RETIRED_SLACK_MS = 5000, /* for a replaced gateway to end by itself */
	DISK_LEAST = 1 << 20,
	CONFIG_MOST = 1 << 20,
	ENGINE_CHARS = sizeof "engine " - 1,
};

struct serving {
	struct cmd_options *o;
	struct sluice_config *cfg;
	struct activation inherited;
	bool activated; /* there were sockets */
	struct notify notify;
	struct gw_dev_keys keys;
	/* The supervisor reads these whenever it starts a child. */
	const char *engines[GW_MAX_ENGINES][SUPERVISE_MAX_ARGS], *gateway[SUPERVISE_MAX_ARGS];
	char engine_names[GW_MAX_ENGINES][40]; /* "engine", "engine b"; the configuration's names follow "engine " */
	int n_engines;                         /* which never change under a supervisor */
	int first_engine;                      /* among the supervisor's children */
	struct reload_pins pins; /* overrides for keys that a running process can't change; argv borrows them */
	bool own_redis;          /* we start one and pass its address to the gateway */
	struct private_redis redis;
	char address_set[192];
	struct run_user user; /* of the engine, the gateway and Redis */
	char run_as[32];
	/* The state folder: this descriptor, its number, and its path for every process that has the descriptor. The
	 * configured path may lead through folders that the user cannot enter. */
	int state_fd;
	char state_fd_text[16], state[32];
	int kv_fd; /* the area in which prompts' pages pass between engines; 0: none */
	char kv_fd_text[16];
	uint32_t kv_users; /* engines that get it, a bit for each number */
	struct supervise_child children[2 + GW_MAX_ENGINES];
	struct supervise_config sup;
	/* Copies of the configuration in STATE/run: the one that children read, and the next upgrade's. */
	char accepted[2][PATH_MAX];
	int which, next_which;
	char exe[PATH_MAX];   /* what is executed in an upgrade: the path this process was started from */
	uint64_t model_files; /* as the engines have them (reload_model_files) */
	/* The upgrade, or the succession of engines, in progress. */
	struct sluice_config *next_cfg;
	const char *next[SUPERVISE_MAX_ARGS], *next_engines[GW_MAX_ENGINES][SUPERVISE_MAX_ARGS];
	uint64_t next_model_files;
	struct reload_pins next_pins;
};

/* localhost stands for wildcard addresses, too. */
static void print_host(const struct conf_address *a)
{
	if (a->host[0] == '\0' || strcmp(a->host, "0.0.0.0") == 0 || strcmp(a->host, "127.0.0.1") == 0 ||
	    strcmp(a->host, "::") == 0)
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
		printf("/#free=%s&paid=%s\nkey-free %s\nkey-paid %s\nkey-admin %s\n", s->keys.key[GW_DEV_FREE],
		       s->keys.key[GW_DEV_PAID], s->keys.key[GW_DEV_FREE], s->keys.key[GW_DEV_PAID],
		       s->keys.key[GW_DEV_ADMIN]);
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

/* The lock's descriptor, or -1 with *err filled. name: the folder's, for messages. */
static int lock_state(const char *state, const char *name, struct sl_err *err)
{
	char path[64], pid[32];
	snprintf(path, sizeof path, "%s/run/lock", state);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		sl_errf(err, SL_EIO, "%s/run/lock: can't open it: %s", name, strerror(errno));
		return -1;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		sl_errf(err, SL_EIO,
			"%s is in use by the sluice process %s; stop that process, or use "
			"another folder (--state DIR)",
			name, pid);
		close(fd);
		return -1;
	}
	int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n) {
		sl_errf(err, SL_EIO, "%s/run/lock: can't write it: %s", name, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static bool is_accepted(const char *path, const struct sl_buf *bytes)
{
	struct sl_buf there;
	bool same = file_read(path, CONFIG_MOST, &there, NULL) == 0 && there.len == bytes->len &&
		    (bytes->len == 0 || memcmp(buf_data(&there), buf_data(bytes), bytes->len) == 0);
	buf_dispose(&there);
	return same;
}

static bool write_all(int fd, const struct sl_buf *bytes)
{
	for (size_t at = 0; at < bytes->len;) {
		ssize_t n = write(fd, buf_data(bytes) + at, bytes->len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return fsync(fd) == 0;
}

/* Written beside path, flushed, then renamed: atomic, and a failure leaves no file. */
static int put_file(const char *state, const char *path, const struct sl_buf *bytes, struct sl_err *err)
{
	char part[PATH_MAX + 8];
	snprintf(part, sizeof part, "%s.new", path);
	int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	bool good = fd >= 0 && write_all(fd, bytes);
	int why = errno;
	if (fd >= 0)
		close(fd);
	if (good && rename(part, path) != 0) {
		why = errno;
		good = false;
	}
	if (!good && fd >= 0)
		unlink(part);
	return good ? 0
		    : sl_errf(err, SL_EIO, "can't write %s/run/%s: %s", state, strrchr(path, '/') + 1, strerror(why));
}

/* Copies the configuration file to accepted[*which]. If the current copy is identical, *which becomes that one: a
 * reload or an upgrade without changes needs no disk space. */
static int accept_file(struct serving *s, int *which, struct sl_err *err)
{
	struct sl_buf bytes;
	struct sl_err why = {0};
	bool serves = s->sup.children != NULL;
	int rc = file_read(s->o->path, CONFIG_MOST, &bytes, &why);
	if (rc != 0)
		sl_errf(err, rc, "%s: %s", s->o->path, why.text);
	else if (serves && bytes.len == 0)
		/* It would mean all defaults; editors leave one when the disk is full. */
		rc = sl_errf(err, SL_EINVAL, "%s: the file is empty", s->o->path);
	if (rc == 0) {
		privileges_as_user(&s->user);
		if (serves && is_accepted(s->accepted[s->which], &bytes))
			*which = s->which;
		else
			rc = put_file(s->cfg->state, s->accepted[*which], &bytes, err);
		privileges_as_before(&s->user);
	}
	buf_dispose(&bytes);
	return rc;
}

static bool is_loopback(const struct conf_address *a)
{
	return a->off || strncmp(a->host, "127.", 4) == 0 || strcmp(a->host, "::1") == 0;
}

static void warn_of_exposure(const struct gw_config *g)
{
	if (g->dev_keys && !(is_loopback(&g->http) && is_loopback(&g->https)))
		log_warn("gateway.dev_keys is on and the gateway listens beyond this machine");
	if (g->anonymous[0] != '\0' && !(is_loopback(&g->http) && is_loopback(&g->https)))
		log_warn("gateway.anonymous: requests without a key are answered beyond this machine");
	if (!is_loopback(&g->http))
		log_warn("gateway.http listens beyond this machine without TLS");
}

/* Whether the CPU backend supports a model's type of keys and values. Only the engine opens backends that are shared
 * objects; there the model reports the error. */
static int check_kv_type(const struct eng_config *engine, const struct eng_model_config *m, struct sl_err *err)
{
	const char *name = m->kv_type != NULL ? m->kv_type : engine->kv_type;
	struct sl_err none;
	char can[64];
	bool device = strcmp(engine->backend, "auto") == 0 && backend_device_plausible();
	if (device || strncmp(engine->backend, "cuda", 4) == 0 || strcmp(name, "auto") == 0)
		return 0;
	const struct kn_ops *ops = kn_select(engine->backend, &none);
	if (ops == NULL || ops->kv_type(kn_kv_type_from_name(name)))
		return 0;
	return sl_errf(err, SL_EUNSUPPORTED, "engine.models.%s: kv_type %s is not possible with the backend %s, but %s",
		       m->name, name, ops->name, kn_kv_types_of(ops, can, sizeof can));
}

/* A model that can't be loaded becomes FAILED while others serve. If none can be loaded, nothing starts and the first
 * model's error is reported. */
static int check_models(const struct sluice_config *cfg, struct sl_err *err)
{
	struct eng_model_config models[PROTO_MAX_MODELS];
	struct eng_config engine;
	struct sl_err other = {0};
	int first = 0;
	sluice_engine_config(cfg, models, &engine);
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		struct sl_err *why = first == 0 ? err : &other;
		int rc = check_kv_type(&engine, &models[i], why);
		if (rc == 0)
			rc = model_check(models[i].path, models[i].head, cfg->engine.max_model_memory, why);
		if (rc == 0 || rc == SL_ENOMEM)
			return 0;
		first = first == 0 ? rc : first;
	}
	return first;
}

/* Engines that take over need every model. */
static int check_all_models(const struct sluice_config *cfg, struct sl_err *err)
{
	struct eng_model_config models[PROTO_MAX_MODELS];
	struct eng_config engine;
	int rc = 0;
	if (cfg->echo.enabled || sluice_has_upstream(cfg))
		return 0;
	sluice_engine_config(cfg, models, &engine);
	for (size_t i = 0; rc == 0 && i < cfg->engine.models.n; i++) {
		rc = check_kv_type(&engine, &models[i], err);
		if (rc == 0)
			rc = model_check(models[i].path, models[i].head, cfg->engine.max_model_memory, err);
	}
	return rc;
}

/* Logs the choice in one line. */
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
	if (!private_redis_find(&s->redis, s->state, c->server_memory)) {
		if (c->kind == GW_STORE_REDIS)
			return sl_errf(
			    err, SL_ENOTFOUND,
			    "cache.store: redis, but cache.address is empty and no redis-server is installed");
		log_info("store: memory, lost when the gateway ends (redis-server is not installed)");
		return 0;
	}
	int rc = private_redis_prepare(&s->redis, err);
	if (rc != 0)
		return rc;
	private_redis_starts_in_state(&s->redis);
	s->own_redis = true;
	snprintf(s->address_set, sizeof s->address_set, "cache.address=%s", s->redis.address);
	log_info("store: a redis-server of its own in %s/redis", s->cfg->state);
	return 0;
}

static int prepare_state(struct serving *s, struct sl_err *err)
{
	const struct gw_config *g = &s->cfg->gateway;
	int rc = 0;
	privileges_as_user(&s->user);
	if (gateway_wants_dev_cert(g))
		rc = gw_dev_cert_ensure(s->state, err);
	if (rc == 0 && g->dev_keys)
		rc = gw_dev_keys_ensure(s->state, &s->keys, err);
	if (rc == 0)
		rc = choose_store(s, err);
	privileges_as_before(&s->user);
	return rc;
}

/* Everything that would prevent the children's start is found here and reported in one line. */
static int prepare(struct serving *s, struct sl_err *err)
{
	const struct gw_config *g = &s->cfg->gateway;
	int rc = handover_hold(s->inherited.sockets.fds, s->inherited.sockets.n);
	rc = rc == 0 ? gateway_check(g, err) : sl_errf(err, rc, "no descriptors for the inherited sockets");
	handover_close();
	if (rc == 0 && !s->cfg->echo.enabled && !sluice_has_upstream(s->cfg))
		rc = check_models(s->cfg, err);
	if (rc == 0)
		rc = prepare_state(s, err);
	for (int i = 0; i < 2; i++)
		snprintf(s->accepted[i], sizeof s->accepted[i], "%s/run/sluice-%d.yaml", s->state, i);
	return rc == 0 ? accept_file(s, &s->which, err) : rc;
}

/* `sluice NAME -c FILE --set …`. engine: its number; -1: the gateway. more: one override of our own, above all others;
 * or NULL. */
static void set_arguments(const char **argv, const struct serving *s, int which, int engine,
			  const struct reload_pins *pins, const char *more)
{
	const struct cmd_options *o = s->o;
	_Static_assert(2 * CMD_MAX_SETS + 16 < SUPERVISE_MAX_ARGS, "room for every override");
	const char *name = s->engine_names[engine > 0 ? engine : 0] + ENGINE_CHARS;
	size_t n = 0;
	argv[n++] = "sluice";
	argv[n++] = engine >= 0 ? "engine" : "gateway";
	if (engine > 0) {
		argv[n++] = "--engine";
		argv[n++] = name;
	}
	argv[n++] = "-c";
	argv[n++] = s->accepted[which];
	argv[n++] = "--state-fd";
	argv[n++] = s->state_fd_text;
	if (engine >= 0 && (s->kv_users >> engine & 1) != 0) {
		argv[n++] = "--kv-fd";
		argv[n++] = s->kv_fd_text;
	}
	if (geteuid() == 0) {
		argv[n++] = "--run-as";
		argv[n++] = s->run_as;
	}
	if (s->activated)
		argv[n++] = "--sockets-stay";
	for (size_t i = 0; i < o->n_sets; i++) {
		argv[n++] = "--set";
		argv[n++] = o->sets[i];
	}
	for (size_t i = 0; i < pins->n; i++) {
		argv[n++] = "--set";
		argv[n++] = pins->sets[i];
	}
	if (more != NULL) {
		argv[n++] = "--set";
		argv[n++] = more;
	}
	argv[n] = NULL;
}

static const char *store_override(const struct serving *s) { return s->own_redis ? s->address_set : NULL; }

/* What children are started with from now on. Takes pins. */
static void set_children(struct serving *s, struct reload_pins pins)
{
	reload_pins_dispose(&s->pins);
	s->pins = pins;
	for (int i = 0; i < s->n_engines; i++)
		set_arguments(s->engines[i], s, s->which, i, &s->pins, NULL);
	set_arguments(s->gateway, s, s->which, -1, &s->pins, store_override(s));
}

static void set_times(struct serving *s)
{
	const struct supervisor_settings *v = &s->cfg->supervisor;
	struct supervise_config *to = &s->sup;
	to->hang_ms = v->hang_ms;
	to->first_beat_ms = v->hang_ms > FIRST_BEAT_MS ? v->hang_ms : FIRST_BEAT_MS;
	to->backoff_min_ms = v->backoff_min_ms;
	to->backoff_max_ms = v->backoff_max_ms;
	to->healthy_ms = HEALTHY_MS;
	to->drain_ms = v->drain_ms;
	to->takeover_ms = v->takeover_ms;
	to->retired_ms = s->cfg->gateway.upgrade_drain_ms + RETIRED_SLACK_MS;
}

static void adopt(struct serving *s, struct sluice_config *fresh)
{
	struct log_levels levels;
	reload_config_free(s->cfg);
	s->cfg = fresh;
	set_times(s);
	sluice_log_levels(fresh, &levels);
	log_set_levels(&levels);
	log_set_format((enum log_format)fresh->log_format);
	warn_of_exposure(&fresh->gateway);
}

/* Engines whose prompts' pages pass through shared memory write there by their numbers, which two processes can't
 * share. */
static enum reload_kept kept_in_reload(const struct serving *s)
{
	return s->kv_users != 0 ? KEPT_BY_ALL : KEPT_IN_RELOAD;
}

static bool wants_engines(const struct serving *s, const struct sluice_config *fresh, uint64_t model_files)
{
	if (s->kv_users != 0)
		return false;
	return reload_touches_engines(s->cfg, fresh) || model_files != s->model_files;
}

static void forget_next(struct serving *s)
{
	reload_pins_dispose(&s->next_pins);
	reload_config_free(s->next_cfg);
	s->next_cfg = NULL;
}

/* The whole reload waits for the engines: it is taken once all of them serve, or not at all. Takes fresh and pins.
 * Positive: the engines, as on_reload of supervise.h. */
static int begin_succession(struct serving *s, struct sluice_config *fresh, struct reload_pins pins, struct sl_err *err)
{
	unsigned engines = 0;
	s->next_cfg = fresh;
	s->next_pins = pins;
	s->next_which = !s->which;
	int rc = check_all_models(fresh, err);
	if (rc == 0)
		rc = accept_file(s, &s->next_which, err);
	if (rc != 0) {
		forget_next(s);
		return rc;
	}
	for (int i = 0; i < s->n_engines; i++) {
		set_arguments(s->next_engines[i], s, s->next_which, i, &s->next_pins, NULL);
		engines |= 1u << (s->first_engine + i);
	}
	return (int)engines;
}

/* SIGHUP: the file is read and checked here first; a wrong one never reaches the gateway. */
static int on_reload(void *ctx, struct sl_err *err)
{
	struct serving *s = ctx;
	struct sluice_config *fresh;
	struct reload_pins pins = {.n = 0};
	int rc = reload_config(s->o, s->cfg, kept_in_reload(s), true, &pins, &fresh, err);
	if (rc != 0)
		return rc;
	s->next_model_files = reload_model_files(fresh);
	if (wants_engines(s, fresh, s->next_model_files))
		return begin_succession(s, fresh, pins, err);
	rc = accept_file(s, &s->which, err);
	if (rc != 0) {
		reload_config_free(fresh);
		reload_pins_dispose(&pins);
		return rc;
	}
	set_children(s, pins);
	adopt(s, fresh);
	log_info("reloaded");
	return 0;
}

/* SIGUSR2: the new gateway takes the newest configuration, except keys that the engine and the supervisor keep. */
static int on_upgrade(void *ctx, const char **exe, const char *const **argv, struct sl_err *err)
{
	struct serving *s = ctx;
	int rc = reload_config(s->o, s->cfg, KEPT_IN_UPGRADE, true, &s->next_pins, &s->next_cfg, err);
	if (rc != 0)
		return rc;
	s->next_which = !s->which;
	rc = accept_file(s, &s->next_which, err);
	if (rc != 0) {
		forget_next(s);
		return rc;
	}
	set_arguments(s->next, s, s->next_which, -1, &s->next_pins, store_override(s));
	*exe = s->exe;
	*argv = s->next;
	return 0;
}

/* path: in the state folder. */
static void remove_own(const struct serving *s, const char *path)
{
	privileges_as_user(&s->user);
	unlink(path);
	privileges_as_before(&s->user);
}

static void on_upgraded(void *ctx, bool done)
{
	struct serving *s = ctx;
	if (done) {
		s->which = s->next_which;
		set_children(s, s->next_pins);
		s->next_pins = (struct reload_pins){.n = 0};
		adopt(s, s->next_cfg);
		s->next_cfg = NULL;
	} else {
		forget_next(s);
	}
	remove_own(s, s->accepted[!s->which]);
}

static void on_succeeded(void *ctx, bool done)
{
	struct serving *s = ctx;
	if (done)
		s->model_files = s->next_model_files;
	on_upgraded(s, done);
	if (done)
		log_info("reloaded");
}

/* The state folder, where children write sockets, the store's log and copies, has no space. */
static bool disk_is_full(void *ctx)
{
	const struct serving *s = ctx;
	struct statvfs v;
	if (fstatvfs(s->state_fd, &v) != 0)
		return false;
	return (uint64_t)v.f_bavail * v.f_frsize < DISK_LEAST || (v.f_files > 0 && v.f_favail == 0);
}

static int on_asked(void *ctx, const struct supervise_child *what, int fd)
{
	const struct serving *s = ctx;
	struct grants g = {.now = s->cfg, .next = s->next_cfg, .state_fd = s->state_fd, .user = &s->user};
	while (g.engine < GW_MAX_ENGINES - 1 && what->argv != s->engines[g.engine])
		g.engine++;
	return grant_one(&g, what->argv == s->gateway || what->replaceable ? GRANT_GATEWAY : GRANT_ENGINE, fd);
}

/* Redis: the same user, in the state folder. */
static int before_redis(void *ctx)
{
	const struct serving *s = ctx;
	if (fchdir(s->state_fd) != 0)
		return -1;
	int rc = privileges_drop(&s->user);
	errno = -rc;
	return rc;
}

/* Children that were killed leave their sockets behind. */
static void remove_sockets(const struct serving *s, const char *engine_socket)
{
	char own[128];
	snprintf(own, sizeof own, "%s/run/engine.sock", s->state);
	char next[sizeof own + 8];
	if (engine_socket == NULL)
		remove_own(s, own);
	else
		unlink(engine_socket);
	for (int i = 0; i < s->n_engines; i++) {
		if (i > 0)
			snprintf(own, sizeof own, "%s/run/engine-%.32s.sock", s->state,
				 s->engine_names[i] + ENGINE_CHARS);
		snprintf(next, sizeof next, "%s.next", own); /* of a successor that was killed */
		remove_own(s, next);
		if (i > 0)
			remove_own(s, own);
	}
	if (s->own_redis)
		remove_own(s, s->redis.socket);
	remove_own(s, s->accepted[s->which]);
}

static void name_engines(struct serving *s)
{
	snprintf(s->engine_names[0], sizeof s->engine_names[0], "engine");
	s->n_engines = 1 + s->cfg->gateway.n_engines;
	for (int i = 1; i < s->n_engines; i++)
		snprintf(s->engine_names[i], sizeof s->engine_names[i], "engine %.32s",
			 s->cfg->gateway.engines[i - 1].name);
}

/* Makes the area in which prompts' pages pass between engines, where some of them compute for others. */
static int make_kv_area(struct serving *s, struct sl_err *err)
{
	uint32_t writers = engines_prefill(s->cfg);
	int rc = writers != 0 ? hand_area_make(s->cfg->handover_memory, writers, &s->kv_fd) : 0;
	if (rc != 0)
		return sl_errf(err, rc, "handover.memory: no shared memory of %llu bytes: %s",
			       (unsigned long long)s->cfg->handover_memory,
			       rc == SL_EINVAL ? "too small for the engines of roles prefill and auto"
					       : strerror(errno));
	if (writers != 0)
		s->kv_users = writers | engines_of_role(s->cfg, GW_ENGINE_DECODE);
	snprintf(s->kv_fd_text, sizeof s->kv_fd_text, "%d", s->kv_fd);
	return 0;
}

static int run(struct serving *s)
{
	int skip = s->own_redis ? 0 : 1;
	s->first_engine = 1 - skip;
	s->model_files = reload_model_files(s->cfg);
	name_engines(s);
	set_children(s, (struct reload_pins){.n = 0});
	/* Redis outlives a restart of the others. */
	s->children[0] = (struct supervise_child){.name = "redis", .argv = s->redis.argv, .foreign_exe = s->redis.exe};
	for (int i = 0; i < s->n_engines; i++)
		s->children[1 + i] = (struct supervise_child){.name = s->engine_names[i],
							      .argv = s->engines[i],
							      .next_argv = s->next_engines[i],
							      .kept_fd = s->kv_users >> i & 1 ? s->kv_fd : 0};
	s->children[1 + s->n_engines] =
	    (struct supervise_child){.name = "gateway", .argv = s->gateway, .replaceable = true};
	s->sup = (struct supervise_config){
	    .exe = "/proc/self/exe",
	    .children = s->children + skip,
	    .n_children = 2 + s->n_engines - skip,
	    .on_ready = on_ready,
	    .on_reload = on_reload,
	    .on_upgrade = on_upgrade,
	    .on_upgraded = on_upgraded,
	    .on_succeeded = on_succeeded,
	    .starved = disk_is_full,
	    .on_asked = on_asked,
	    .before_foreign = before_redis,
	    .kept_fd = s->state_fd,
	    .notify = &s->notify,
	    .sockets = s->activated ? &s->inherited.sockets : NULL,
	    .ctx = s,
	};
	set_times(s);
	ssize_t n = readlink("/proc/self/exe", s->exe, sizeof s->exe - 1);
	s->exe[n > 0 ? n : 0] = '\0';
	/* state and the engine's socket never change under a supervisor. */
	char *socket = s->cfg->engine.socket == s->cfg->default_socket ? NULL : sl_strdup(s->cfg->engine.socket);
	int rc = supervise(&s->sup);
	remove_sockets(s, socket);
	sl_free(socket);
	reload_pins_dispose(&s->pins);
	return rc;
}

/* The confinement of the engine and the gateway; Redis has only the first half. */
static void log_confinement(const struct serving *s)
{
	char what[160];
	const char *rights = geteuid() == 0 ? " without capabilities" : "";
	sandbox_describe(what, sizeof what);
	if (s->cfg->supervisor.sandbox)
		log_info("confined: uid %u%s, no new privileges, %s", (unsigned)s->user.uid, rights, what);
	else
		log_warn(
		    "confined: uid %u%s, no new privileges; supervisor.sandbox is off: neither seccomp nor Landlock",
		    (unsigned)s->user.uid, rights);
}

/* Chooses the children's user, opens the state folder and locks it. The lock's descriptor, or negative. */
static int take_state(struct serving *s, struct sl_err *err)
{
	const char *name = s->cfg->state;
	int rc = privileges_user(s->cfg->supervisor.user, &s->user, err);
	if (rc != 0)
		return rc;
	privileges_keep_few();
	privileges_user_put(&s->user, s->run_as, sizeof s->run_as);
	s->state_fd = state_open(name, &s->user, err);
	if (s->state_fd < 0)
		return s->state_fd;
	snprintf(s->state_fd_text, sizeof s->state_fd_text, "%d", s->state_fd);
	snprintf(s->state, sizeof s->state, "/proc/self/fd/%d", s->state_fd);
	privileges_as_user(&s->user);
	int lock = lock_state(s->state, name, err);
	privileges_as_before(&s->user);
	return lock < 0 ? SL_EIO : lock;
}

/* What a service manager has passed in the environment. 0 or an exit status. */
static int take_environment(struct serving *s)
{
	struct sl_err err;
	int rc = activation_take(&s->inherited, &err);
	if (rc == 0)
		rc = notify_open(&s->notify, &err);
	s->activated = s->inherited.sockets.n > 0;
	if (rc != 0)
		fprintf(stderr, "sluice: %s\n", err.text);
	return rc == 0 ? 0 : CMD_EXIT_CONFIG;
}

static void give_up_environment(struct serving *s)
{
	activation_dispose(&s->inherited);
	notify_close(&s->notify);
}

int cmd_serve(int argc, char **argv)
{
	struct cmd_options o;
	struct serving s = {.o = &o, .state_fd = -1, .notify = {.fd = -1}};
	int rc = cmd_options_parse(&o, argc, argv, false, "start and supervise the engine and the gateway");
	if (rc != 0)
		return rc;
	rc = take_environment(&s);
	if (rc == 0)
		rc = activation_config(&s.inherited, &o, &s.cfg);
	if (rc != 0) {
		give_up_environment(&s);
		reload_config_free(s.cfg);
		return rc;
	}

	core_dump_settle(s.cfg->supervisor.core_dumps);
	signal(SIGPIPE, SIG_IGN); /* a closed standard output must not end the service */
	struct sl_err err;
	int lock = take_state(&s, &err);
	rc = lock < 0 ? lock : prepare(&s, &err);
	if (rc == 0 && s.own_redis && o.n_sets == CMD_MAX_SETS)
		rc = sl_errf(&err, SL_ELIMIT, "one --set too many: the gateway needs one for its store");
	if (rc == 0)
		rc = make_kv_area(&s, &err);
	if (rc == 0) {
		log_confinement(&s);
		warn_of_exposure(&s.cfg->gateway);
		rc = run(&s);
	} else {
		fprintf(stderr, "sluice: %s\n", err.text);
		rc = CMD_EXIT_CONFIG;
	}
	if (lock >= 0)
		close(lock);
	if (s.state_fd >= 0)
		close(s.state_fd);
	if (s.kv_fd > 0)
		close(s.kv_fd);
	give_up_environment(&s);
	reload_config_free(s.cfg);
	return rc;
}
