/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are compared with those in the configuration byte by byte, without normalisation or patterns, except for the
 * parts of a split model and the files of a model's folder.
 *
 * Opening never blocks, and the file must be regular. The state folder belongs to the requesting user, who could have
 * put a link to anything there. So in it no link is followed, no name leads out of it, files with another hard link are
 * refused, and files are renamed with the user's rights.
 */
#include "cmd/serve/grant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "gateway/transport/unix_listen.h"

enum { REFUSALS_LOGGED = 20 };

/* ---- what is named ---- */

static bool same(const char *a, const char *b) { return a != NULL && a[0] != '\0' && strcmp(a, b) == 0; }

/* MODEL-00001-of-00003.gguf: a path that differs from it in the first number only. */
static bool is_part(const char *model, const char *path)
{
	static const char form[] = "-00000-of-00000.gguf";
	size_t n = strlen(model), m = sizeof form - 1;
	if (n < m || strlen(path) != n)
		return false;
	for (size_t i = 0; i < m; i++) {
		char c = model[n - m + i], p = path[n - m + i];
		bool digit = form[i] == '0';
		if (digit ? c < '0' || c > '9' || p < '0' || p > '9' : c != form[i] || p != form[i])
			return false;
	}
	return strncmp(model, path, n - m) == 0 && strcmp(model + n - m + 6, path + n - m + 6) == 0;
}

/* A file directly in the folder. */
static bool is_in_folder(const char *folder, const char *path)
{
	size_t n = strlen(folder);
	if (n == 0 || strncmp(folder, path, n) != 0 || (folder[n - 1] != '/' && path[n] != '/'))
		return false;
	const char *name = path + n + strspn(path + n, "/");
	return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool engine_reads(const struct sluice_config *c, int engine, const char *path)
{
	if ((size_t)engine > c->engines.n) /* of another configuration */
		return false;
	const struct engine_upstream u = engines_upstream(c, engine);
	if (u.url[0] != '\0')
		return same(u.key_file, path) || same(u.ca_file, path);
	const struct model_settings *m = c->engine.models.items;
	for (size_t i = 0; i < c->engine.models.n; i++)
		if (same(m[i].path, path) || same(m[i].head, path) || is_part(m[i].path, path) ||
		    is_in_folder(m[i].path, path))
			return true;
	const struct adapter_settings *a = c->engine.adapters.items;
	for (size_t i = 0; i < c->engine.adapters.n; i++)
		if (same(a[i].path, path) || is_in_folder(a[i].path, path))
			return true;
	return false;
}

static bool gateway_reads(const struct sluice_config *c, const char *path)
{
	const struct gw_config *g = &c->gateway;
	const struct gw_cert_config *more = g->certificates.items;
	for (size_t i = 0; i < g->certificates.n; i++)
		if (same(more[i].cert_file, path) || same(more[i].key_file, path))
			return true;
	return same(g->cert_file, path) || same(g->key_file, path) || same(g->client_ca, path) ||
	       same(g->store.password_file, path) || same(g->store.sentinel_password_file, path) ||
	       same(c->cascade.weights, path);
}

static bool is_log(const struct sluice_config *c, const char *path)
{
	return same(c->gateway.cascade_log, path) || same(c->gateway.requests.to, path);
}

static const struct gw_listener_config *find_listener(const struct sluice_config *c, const char *path)
{
	const struct gw_listener_config *l = c->gateway.listeners.items;
	for (size_t i = 0; i < c->gateway.listeners.n; i++)
		if (same(l[i].unix_path, path))
			return &l[i];
	return NULL;
}

/* Is the configured host the requested address? */
static bool is_host(const char *host, const void *asked, int family)
{
	char text[INET6_ADDRSTRLEN] = "";
	uint8_t bytes[16];
	inet_ntop(family, asked, text, sizeof text);
	if (host[0] == '\0')
		return strcmp(text, "0.0.0.0") == 0 || strcmp(text, "::") == 0;
	if (strcmp(host, "localhost") == 0)
		return strcmp(text, "127.0.0.1") == 0 || strcmp(text, "::1") == 0;
	return inet_pton(family, host, bytes) == 1 && memcmp(bytes, asked, family == AF_INET ? 4 : 16) == 0;
}

bool grant_covers(const struct conf_address *a, const struct sockaddr_storage *sa, socklen_t len)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;
	if (a->off || a->port == 0)
		return false;
	if (sa->ss_family == AF_INET && len == sizeof *v4)
		return ntohs(v4->sin_port) == a->port && is_host(a->host, &v4->sin_addr, AF_INET);
	return sa->ss_family == AF_INET6 && len == sizeof *v6 && ntohs(v6->sin6_port) == a->port &&
	       is_host(a->host, &v6->sin6_addr, AF_INET6);
}

static bool is_address(const struct conf_address *a, const struct broker_asked *q)
{
	return grant_covers(a, &q->sa, q->sa_len);
}

static bool binds(const struct sluice_config *c, const struct broker_asked *q)
{
	const struct gw_listener_config *l = c->gateway.listeners.items;
	for (size_t i = 0; i < c->gateway.listeners.n; i++)
		if (is_address(&l[i].address, q))
			return true;
	return is_address(&c->gateway.https, q) || is_address(&c->gateway.http, q);
}

static bool is_granted(const struct grants *g, const struct sluice_config *c, enum grant_role role,
		       const struct broker_asked *q)
{
	if (c == NULL || q->op == BROKER_MALFORMED)
		return false;
	if (role == GRANT_ENGINE)
		return (q->op == BROKER_OPEN || q->op == BROKER_LOOK) && engine_reads(c, g->engine, q->path);
	switch (q->op) {
	case BROKER_OPEN: return gateway_reads(c, q->path);
	case BROKER_LOOK: return gateway_reads(c, q->path) || is_log(c, q->path);
	case BROKER_APPEND:
	case BROKER_ROTATE: return is_log(c, q->path);
	case BROKER_BIND: return binds(c, q);
	case BROKER_LISTEN:
	case BROKER_ADOPT:
	case BROKER_REMOVE: return find_listener(c, q->path) != NULL;
	default: return false;
	}
}

/* ---- opening ---- */

/* rest: the path below the state folder; false: it is not below it. */
static bool is_in_state(const struct grants *g, const char *path, char rest[PATH_MAX])
{
	char self[32], folder[PATH_MAX], real[PATH_MAX], state[PATH_MAX];
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	size_t n = strlen(g->now->state);
	if (strncmp(path, g->now->state, n) == 0 && path[n] == '/') {
		snprintf(rest, PATH_MAX, "%s", path + n + strspn(path + n, "/"));
		return true;
	}
	snprintf(self, sizeof self, "/proc/self/fd/%d", g->state_fd);
	file_folder(path, folder, sizeof folder);
	if (realpath(folder, real) == NULL || realpath(self, state) == NULL)
		return false;
	n = strlen(state);
	if (strncmp(real, state, n) != 0 || (real[n] != '/' && real[n] != '\0'))
		return false;
	const char *inner = real + n + strspn(real + n, "/");
	return (size_t)snprintf(rest, PATH_MAX, "%s%s%s", inner, inner[0] != '\0' ? "/" : "", name) < PATH_MAX;
}

static int open_in_state(const struct grants *g, const char *rest, int flags)
{
	struct open_how how = {.flags = (uint64_t)(unsigned)flags,
			       .mode = flags & O_CREAT ? 0640 : 0,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, g->state_fd, rest, &how, sizeof how);
}

/* Links are followed to what is read, as certbot has its files. A log is written with more rights than the asker has,
 * and its folder may be the asker's: no link may name another file there. */
static int open_path(const struct grants *g, const char *path, int flags)
{
	char rest[PATH_MAX];
	struct stat st;
	bool inside = is_in_state(g, path, rest);
	flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (flags & O_CREAT ? O_NOFOLLOW : 0);
	int fd = inside ? open_in_state(g, rest, flags) : open(path, flags, 0640), rc = 0;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0)
		rc = -errno;
	else if (!S_ISREG(st.st_mode))
		rc = -EINVAL;
	else if ((inside || flags & O_CREAT) && st.st_nlink != 1)
		rc = -EPERM;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static void describe(const struct stat *st, struct broker_file *out)
{
	*out = (struct broker_file){
	    .mode = st->st_mode, .bytes = (uint64_t)st->st_size, .dev = st->st_dev, .ino = st->st_ino};
}

static int look_at(const struct grants *g, const char *path, struct broker_file *out)
{
	char rest[PATH_MAX];
	struct stat st;
	int rc = 0;
	if (is_in_state(g, path, rest)) {
		int fd = open_in_state(g, rest, O_PATH | O_CLOEXEC);
		rc = fd < 0 ? -1 : fstat(fd, &st);
		if (fd >= 0)
			close(fd);
	} else {
		rc = stat(path, &st);
	}
	if (rc != 0)
		return -errno;
	describe(&st, out);
	return 0;
}

static int rotate(const struct grants *g, const char *path)
{
	char rest[PATH_MAX], before[PATH_MAX + 2];
	bool inside = is_in_state(g, path, rest);
	const char *from = inside ? rest : path;
	snprintf(before, sizeof before, "%s.1", from);
	if (inside)
		privileges_as_user(g->user);
	int rc =
	    renameat(inside ? g->state_fd : AT_FDCWD, from, inside ? g->state_fd : AT_FDCWD, before) == 0 ? 0 : -errno;
	if (inside)
		privileges_as_before(g->user);
	return rc;
}

/* ---- sockets ---- */

static int to_errno(const struct sl_err *err) { return err->code == SL_ENOMEM ? -ENOMEM : -EADDRINUSE; }

static int listen_at(const struct sluice_config *c, const char *path, struct broker_file *out)
{
	struct sl_err err = {0};
	struct stat st;
	mode_t mode;
	if (!unix_mode_parse(find_listener(c, path)->unix_mode, &mode))
		return -EINVAL;
	if (access(path, F_OK) != 0 && errno != ENOENT)
		return -errno;
	int fd = unix_listen_open(path, mode, -1, &err);
	if (fd < 0) {
		log_error("%s", err.text);
		return to_errno(&err);
	}
	if (lstat(path, &st) == 0)
		describe(&st, out);
	unix_listen_release(path, true);
	return fd;
}

static int adopt(const struct sluice_config *c, const char *path, struct broker_file *out)
{
	struct stat st;
	mode_t mode;
	if (!unix_mode_parse(find_listener(c, path)->unix_mode, &mode) || unix_listen_mode(path, mode, &st) != 0)
		return -EINVAL;
	describe(&st, out);
	return 0;
}

static int remove_socket(const struct broker_asked *q)
{
	struct stat st;
	if (lstat(q->path, &st) != 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode) || st.st_dev != q->dev || st.st_ino != q->ino)
		return -EPERM;
	return unlink(q->path) == 0 ? 0 : -errno;
}

/* ---- answering ---- */

static int carry_out(const struct grants *g, const struct sluice_config *c, const struct broker_asked *q,
		     struct broker_file *file)
{
	switch (q->op) {
	case BROKER_OPEN: return open_path(g, q->path, O_RDONLY);
	case BROKER_LOOK: return look_at(g, q->path, file);
	case BROKER_APPEND: return open_path(g, q->path, O_WRONLY | O_APPEND | O_CREAT);
	case BROKER_ROTATE: return rotate(g, q->path);
	case BROKER_BIND: return bind(q->sock, (const struct sockaddr *)&q->sa, q->sa_len) == 0 ? 0 : -errno;
	case BROKER_LISTEN: return listen_at(c, q->path, file);
	case BROKER_ADOPT: return adopt(c, q->path, file);
	case BROKER_REMOVE: return remove_socket(q);
	default: return -EINVAL;
	}
}

/* A bounded number of times. The path may hold any bytes, so it is printed only if it is plain. */
static void log_refused(enum grant_role role, const struct broker_asked *q)
{
	static int logged;
	bool plain = q->path[0] != '\0';
	for (const char *c = q->path; *c != '\0'; c++)
		plain = plain && *c > ' ' && *c < 0x7f;
	if (logged < REFUSALS_LOGGED)
		log_warn("the %s requested a file that the configuration does not name (request %d): %.200s",
			 role == GRANT_ENGINE ? "engine" : "gateway", (int)q->op, plain ? q->path : "no plain name");
	logged += logged < REFUSALS_LOGGED;
}

int grant_one(const struct grants *g, enum grant_role role, int fd)
{
	struct broker_asked q;
	struct broker_file file = {0};
	int rc = broker_receive(fd, &q);
	if (rc <= 0)
		return rc;
	/* During an upgrade both configurations count. */
	const struct sluice_config *c = is_granted(g, g->now, role, &q)    ? g->now
					: is_granted(g, g->next, role, &q) ? g->next
									   : NULL;
	int result = c != NULL ? carry_out(g, c, &q, &file) : -EPERM;
	if (c == NULL)
		log_refused(role, &q);
	bool passes = q.op == BROKER_OPEN || q.op == BROKER_APPEND || q.op == BROKER_LISTEN;
	broker_answer(fd, &q, result, &file);
	if (passes && result >= 0)
		close(result);
	return 1;
}
