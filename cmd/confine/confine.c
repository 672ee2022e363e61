/* SPDX-License-Identifier: Apache-2.0
 *
 * Under `sluice serve` a process starts as root, because the executable may be readable by root only; here it changes
 * to its user. It may read the system's folders and write the state folder; the broker opens everything else that the
 * configuration names.
 *
 * A process started by hand has no broker: it keeps its user and may read everything that this user may. It still
 * writes only what the configuration names, and makes no system calls that it does not need.
 */
#include "cmd/confine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/file.h"
#include "base/peer.h"
#include "cmd/state/privileges.h"
#include "cmd/state/state.h"

enum { MOST_PATHS = 128, TEXT = 4096 };

struct paths {
	struct sandbox_path all[MOST_PATHS];
	char texts[MOST_PATHS][TEXT];
	size_t n;
};

static void add(struct paths *p, unsigned access, const char *path, size_t n)
{
	if (n == 0 || n >= TEXT || p->n == MOST_PATHS)
		return;
	memcpy(p->texts[p->n], path, n);
	p->texts[p->n][n] = '\0';
	p->all[p->n] = (struct sandbox_path){p->texts[p->n], access};
	p->n++;
}

static void add_path(struct paths *p, unsigned access, const char *path) { add(p, access, path, strlen(path)); }

/* Adds the folder of a file that is created. */
static void add_folder_of(struct paths *p, const char *path)
{
	char folder[TEXT];
	file_folder(path, folder, sizeof folder);
	if (path[0] != '\0')
		add_path(p, SANDBOX_WRITE, folder);
}

/* A device's driver may be in LD_LIBRARY_PATH. */
static void add_library_path(struct paths *p)
{
	const char *at = getenv("LD_LIBRARY_PATH");
	while (at != NULL && *at != '\0') {
		size_t n = strcspn(at, ":");
		add(p, SANDBOX_READ, at, n);
		at += n + (at[n] == ':');
	}
}

/* A device's nodes, and the names of threads: the driver sets those of its own, and fails if it can't ("OS call
 * failed"). */
static void add_driver(struct paths *p)
{
	static const char *const nodes[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset",
					    "nvidia-caps"};
	char path[64];
	for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
		snprintf(path, sizeof path, "/dev/%s", nodes[i]);
		add_path(p, SANDBOX_DEVICE, path);
	}
	for (int i = 0; i < 16; i++) {
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		if (access(path, F_OK) == 0)
			add_path(p, SANDBOX_DEVICE, path);
	}
	add_path(p, SANDBOX_WRITE, "/dev/shm");
	const char *threads = sandbox_threads();
	if (threads != NULL)
		add_path(p, SANDBOX_WRITE, threads);
}

static void add_system(struct paths *p)
{
	static const char *const folders[] = {
	    "/etc", "/usr", "/lib", "/lib64", "/lib32", "/opt", "/proc", "/sys", "/var/lib/sss",
	    /* targets of /etc/resolv.conf */
	    "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/netconfig"};
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		add_path(p, SANDBOX_READ, folders[i]);
	add_path(p, SANDBOX_DEVICE, "/dev/null");
	add_path(p, SANDBOX_READ, "/dev/urandom");
	add_path(p, SANDBOX_READ, "/dev/random");
	add_library_path(p);
}

static void add_gateway(struct paths *p, const struct sluice_config *cfg)
{
	const struct gw_listener_config *l = cfg->gateway.listeners.items;
	add_folder_of(p, cfg->gateway.cascade_log);
	if (strcmp(cfg->gateway.requests.to, "off") != 0 && strcmp(cfg->gateway.requests.to, "stderr") != 0)
		add_folder_of(p, cfg->gateway.requests.to);
	for (size_t i = 0; i < cfg->gateway.listeners.n; i++)
		add_folder_of(p, l[i].unix_path);
}

static void add_engine(struct paths *p, const struct sluice_config *cfg)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(exe, '/');
	if (slash != NULL) { /* backends are beside the executable */
		*slash = '\0';
		add_path(p, SANDBOX_READ, exe);
	}
	add_folder_of(p, cfg->engine.socket);
	add_path(p, SANDBOX_WRITE, cfg->engine.weight_cache);
	if (cfg->engine.kv_disk_bytes > 0)
		add_path(p, SANDBOX_WRITE, cfg->engine.kv_disk);
	for (size_t i = 0; i < cfg->engine.adapter_folders.n; i++)
		add_path(p, SANDBOX_READ, cfg->adapter_folders[i].path);
}

static int limit_files(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind)
{
	struct paths *p = calloc(1, sizeof *p);
	if (p == NULL)
		return SL_ENOMEM;
	add_path(p, SANDBOX_WRITE, cfg->state);
	add_system(p);
	if (kind == SANDBOX_GATEWAY)
		add_gateway(p, cfg);
	else if (kind == SANDBOX_REMOTE)
		add_folder_of(p, cfg->engine.socket);
	else
		add_engine(p, cfg);
	if (kind == SANDBOX_DRIVER)
		add_driver(p);
	if (o->broker_fd < 0)
		add_path(p, SANDBOX_READ, "/");
	int rc = sandbox_files(p->all, p->n);
	free(p);
	return rc;
}

/* Renews the signal at the supervisor's death, which a change of the user resets. */
static int die_with(pid_t parent, int signal)
{
	if (signal == 0)
		return 0;
	prctl(PR_SET_PDEATHSIG, signal);
	return getppid() == parent ? 0 : -1;
}

static void no_tracing(const struct sluice_config *cfg)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	prctl(PR_SET_DUMPABLE, cfg->supervisor.core_dumps);
#else
	(void)cfg; /* the leak checker traces */
	prctl(PR_SET_DUMPABLE, 1);
#endif
}

static int drop(const struct cmd_options *o, const struct sluice_config *cfg)
{
	struct run_user u;
	int signal = 0, rc = 0;
	pid_t parent = getppid();
	prctl(PR_GET_PDEATHSIG, &signal);
	if (o->run_as != NULL) {
		if (privileges_user_parse(o->run_as, &u) != 0)
			return -EINVAL;
		rc = privileges_drop(&u);
	}
	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		rc = -errno;
	no_tracing(cfg);
	return rc == 0 ? die_with(parent, signal) : rc;
}

static int limit(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind)
{
	char what[160];
	sandbox_describe(what, sizeof what);
	int files = limit_files(o, cfg, kind);
	int calls = files >= 0 ? sandbox_calls(kind) : 0;
	if (files < 0 || calls < 0) {
		log_error("supervisor.sandbox: %s failed: %s", files < 0 ? "Landlock" : "seccomp",
			  strerror(files < 0 ? -files : -calls));
		return CMD_EXIT_CONFIG;
	}
	if (o->beat_fd < 0) /* the supervisor logs this line itself */
		log_info("confined: uid %u, no new privileges, %s", (unsigned)geteuid(), what);
	return 0;
}

/* Makes and checks the state folder for a process started by hand, which keeps its user. */
static int look_at_state(const struct cmd_options *o, const struct sluice_config *cfg, struct sl_err *err)
{
	struct run_user u;
	int rc = 0;
	if (o->run_as != NULL)
		rc = privileges_user_parse(o->run_as, &u);
	else
		rc = privileges_user(cfg->supervisor.user, &u, err);
	u.change = false;
	if (rc != 0)
		return rc;
	peer_trust(u.uid);
	int fd = state_open(cfg->state, &u, err);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

int confine(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind)
{
	struct sl_err err = {.text = "--run-as: UID:GID is wanted"};
	if (look_at_state(o, cfg, &err) != 0) {
		log_error("%s", err.text);
		return CMD_EXIT_CONFIG;
	}
	if (o->broker_fd >= 0) {
		fcntl(o->broker_fd, F_SETFD, FD_CLOEXEC);
		broker_use(o->broker_fd);
	}
	if (o->state_fd >= 0)
		fcntl(o->state_fd, F_SETFD, FD_CLOEXEC);
	int rc = drop(o, cfg);
	if (rc != 0) {
		log_error("this process can't change to user %s: %s", o->run_as != NULL ? o->run_as : "(none)",
			  strerror(-rc));
		return CMD_EXIT_CONFIG;
	}
	if (cfg->supervisor.sandbox)
		return limit(o, cfg, kind);
	if (o->beat_fd < 0)
		log_warn("supervisor.sandbox is off: neither seccomp nor Landlock");
	return 0;
}
