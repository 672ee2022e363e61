/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket that no listener serves would accept connections that nobody answers, so it is an error.
 *
 * The manager keeps its own copies of the sockets: neither a restart of the whole service nor its end closes the queue
 * of connections, and the files of unix sockets stay (struct gw_config's sockets_stay).
 */
#include "cmd/serve/activation.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cmd/serve/grant.h"
#include "cmd/serve/reload.h"

enum { FIRST_FD = 3, ADDRESS_TEXT = 128 };

/* ---- taking ---- */

/* All digits, 0 to most; otherwise negative. */
static long read_number(const char *text, long most)
{
	char *end;
	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	long n = strtol(text, &end, 10);
	return errno == 0 && *end == '\0' && n <= most ? n : -1;
}

/* One name for each socket; without the variable all are "unknown", as in sd_listen_fds_with_names(3). */
static int read_names(struct activation *a, const char *text, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = text != NULL ? strcspn(text, ":") : 0;
		if (text == NULL) {
			snprintf(a->names[i], ACTIVATION_NAME, "unknown");
			continue;
		}
		if (len >= ACTIVATION_NAME)
			return sl_errf(err, SL_EINVAL, "LISTEN_FDNAMES: a name has more than %d bytes",
				       ACTIVATION_NAME - 1);
		memcpy(a->names[i], text, len);
		a->names[i][len] = '\0';
		text += len;
		if ((*text == ':') != (i + 1 < n))
			return sl_errf(err, SL_EINVAL, "LISTEN_FDNAMES does not have %zu names", n);
		text += *text == ':';
	}
	return 0;
}

static int get_option(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof value;
	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static bool can_serve(int fd)
{
	int family = get_option(fd, SO_DOMAIN);
	return (family == AF_INET || family == AF_INET6 || family == AF_UNIX) &&
	       get_option(fd, SO_TYPE) == SOCK_STREAM && get_option(fd, SO_ACCEPTCONN) == 1;
}

static int take_sockets(struct activation *a, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int fd = FIRST_FD + (int)i, flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
			return sl_errf(err, SL_EINVAL, "LISTEN_FDS: descriptor %d: %s", fd, strerror(errno));
		a->sockets.fds[a->sockets.n++] = fd;
		if (!can_serve(fd))
			return sl_errf(err, SL_EINVAL,
				       "LISTEN_FDS: descriptor %d (%.60s) is no listening stream socket (Accept=no, "
				       "ListenStream= in a socket unit)",
				       fd, a->names[i]);
	}
	return 0;
}

static int read_environment(struct activation *a, struct sl_err *err)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	if (pid == NULL || count == NULL)
		return 0;
	long whose = read_number(pid, INT_MAX), n = read_number(count, INT_MAX - FIRST_FD);
	if (whose <= 0)
		return sl_errf(err, SL_EINVAL, "LISTEN_PID: '%.40s' is not a process", pid);
	if (whose != getpid())
		return 0;
	if (n < 0)
		return sl_errf(err, SL_EINVAL, "LISTEN_FDS: '%.40s' is not a number of sockets", count);
	if (n > ACTIVATION_MAX)
		return sl_errf(err, SL_ELIMIT, "LISTEN_FDS: more than %d sockets", ACTIVATION_MAX);
	int rc = n > 0 ? read_names(a, getenv("LISTEN_FDNAMES"), (size_t)n, err) : 0;
	return rc == 0 ? take_sockets(a, (size_t)n, err) : rc;
}

int activation_take(struct activation *a, struct sl_err *err)
{
	a->sockets.n = a->n_sets = 0;
	int rc = read_environment(a, err);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return rc;
}

void activation_dispose(struct activation *a) { fd_pass_set_dispose(&a->sockets); }

/* ---- assigning ---- */

struct address {
	struct sockaddr_storage sa;
	socklen_t len;
};

static int get_address(int fd, struct address *out)
{
	*out = (struct address){.len = sizeof out->sa};
	return getsockname(fd, (struct sockaddr *)&out->sa, &out->len) == 0 ? 0 : -1;
}

static uint16_t port_of(const struct address *a)
{
	return ntohs(a->sa.ss_family == AF_INET ? ((const struct sockaddr_in *)&a->sa)->sin_port
						: ((const struct sockaddr_in6 *)&a->sa)->sin6_port);
}

/* As in the configuration: an address and port, or a unix socket's path. False: it has none. */
static bool put_address(const struct address *a, char out[ADDRESS_TEXT])
{
	char host[INET6_ADDRSTRLEN];
	const struct sockaddr_un *un = (const void *)&a->sa;
	const struct sockaddr_in6 *v6 = (const void *)&a->sa;
	const struct sockaddr_in *v4 = (const void *)&a->sa;
	if (a->sa.ss_family == AF_UNIX) {
		snprintf(out, ADDRESS_TEXT, "%.*s", (int)sizeof un->sun_path, un->sun_path);
		return a->len > offsetof(struct sockaddr_un, sun_path) && un->sun_path[0] == '/';
	}
	bool is_v4 = a->sa.ss_family == AF_INET;
	const void *bytes = is_v4 ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
	if (inet_ntop(a->sa.ss_family, bytes, host, sizeof host) == NULL)
		return false;
	snprintf(out, ADDRESS_TEXT, is_v4 ? "%s:%u" : "[%s]:%u", host, (unsigned)port_of(a));
	return is_v4 || v6->sin6_scope_id == 0;
}

/* A listener, by the name its sockets have. */
struct target {
	const char *name;
	const struct conf_address *address;
	const char *unix_path; /* of gateway.listeners; else NULL */
};

static size_t list_targets(const struct sluice_config *cfg, struct target *out, size_t most)
{
	const struct gw_config *g = &cfg->gateway;
	const struct gw_listener_config *l = g->listeners.items;
	size_t n = 0;
	out[n++] = (struct target){.name = "http", .address = &g->http};
	out[n++] = (struct target){.name = "https", .address = &g->https};
	for (size_t i = 0; i < g->listeners.n && n < most; i++)
		out[n++] = (struct target){.name = l[i].name, .address = &l[i].address, .unix_path = l[i].unix_path};
	return n;
}

static bool covers(const struct target *t, const struct address *a)
{
	char text[ADDRESS_TEXT];
	if (a->sa.ss_family == AF_UNIX)
		return t->unix_path != NULL && put_address(a, text) && strcmp(t->unix_path, text) == 0;
	return grant_covers(t->address, &a->sa, a->len);
}

/* The listener of that name, else the one with that address; n: none. */
static size_t find_target(const struct target *all, size_t n, const char *name, const struct address *a)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].name, name) == 0)
			return i;
	for (size_t i = 0; i < n; i++)
		if (covers(&all[i], a))
			return i;
	return n;
}

static bool is_host(const struct address *a, const char *v4, const char *v6)
{
	char text[ADDRESS_TEXT], wanted[ADDRESS_TEXT];
	bool is_v4 = a->sa.ss_family == AF_INET;
	snprintf(wanted, sizeof wanted, is_v4 ? "%s:%u" : "[%s]:%u", is_v4 ? v4 : v6, (unsigned)port_of(a));
	return put_address(a, text) && strcmp(text, wanted) == 0;
}

/* Both loopbacks, or both wildcards, on one port: one address of the configuration. */
static bool put_pair(const struct address *a, const struct address *b, char out[ADDRESS_TEXT])
{
	if (a->sa.ss_family == b->sa.ss_family || a->sa.ss_family == AF_UNIX || b->sa.ss_family == AF_UNIX ||
	    port_of(a) != port_of(b))
		return false;
	bool loopback = is_host(a, "127.0.0.1", "::1") && is_host(b, "127.0.0.1", "::1");
	bool any = is_host(a, "0.0.0.0", "::") && is_host(b, "0.0.0.0", "::");
	snprintf(out, ADDRESS_TEXT, "%s:%u", loopback ? "localhost" : "*", (unsigned)port_of(a));
	return loopback || any;
}

static int add_set(struct activation *a, struct cmd_options *o, const struct target *t, bool is_unix, const char *text,
		   struct sl_err *err)
{
	if (o->n_sets == CMD_MAX_SETS || a->n_sets == ACTIVATION_MAX)
		return sl_errf(err, SL_ELIMIT, "too many --set for the addresses of the inherited sockets");
	char *set = a->sets[a->n_sets];
	if (t->unix_path == NULL)
		snprintf(set, sizeof a->sets[0], "gateway.%s=%s", t->name, text);
	else
		snprintf(set, sizeof a->sets[0], "gateway.listeners.%s.%s=%s", t->name, is_unix ? "unix" : "address",
			 text);
	a->n_sets++;
	o->sets[o->n_sets++] = set;
	return 0;
}

/* The first of n addresses that differs from the first; NULL: none. False: they have more than two, or one has none. */
static bool find_second(const struct address *at, size_t n, const struct address **second)
{
	char first[ADDRESS_TEXT], other[ADDRESS_TEXT] = "", one[ADDRESS_TEXT];
	*second = NULL;
	if (!put_address(&at[0], first))
		return false;
	for (size_t i = 1; i < n; i++) {
		if (!put_address(&at[i], one))
			return false;
		if (strcmp(one, first) == 0 || strcmp(one, other) == 0)
			continue;
		if (*second != NULL)
			return false;
		*second = &at[i];
		memcpy(other, one, sizeof other);
	}
	return true;
}

/* The n sockets of one listener. */
static int follow(struct activation *a, struct cmd_options *o, const struct target *t, const struct address *at,
		  size_t n, struct sl_err *err)
{
	char text[ADDRESS_TEXT] = "";
	const struct address *second;
	bool covered = true, is_unix = at[0].sa.ss_family == AF_UNIX;
	bool good = find_second(at, n, &second) && !(is_unix && t->unix_path == NULL);
	for (size_t i = 0; i < n; i++)
		covered = covered && covers(t, &at[i]);
	if (good && !covered)
		good = second == NULL ? put_address(&at[0], text) : put_pair(&at[0], second, text);
	if (!good)
		return sl_errf(err, SL_EINVAL,
			       "the inherited sockets %.60s have addresses that one listener can't have", t->name);
	return covered ? 0 : add_set(a, o, t, is_unix, text, err);
}

int activation_assign(struct activation *a, const struct sluice_config *cfg, struct cmd_options *o, struct sl_err *err)
{
	struct target all[2 + ACTIVATION_MAX];
	struct address at[ACTIVATION_MAX], its[ACTIVATION_MAX];
	size_t of[ACTIVATION_MAX] = {0}, n = list_targets(cfg, all, sizeof all / sizeof *all);
	char text[ADDRESS_TEXT];
	for (size_t i = 0; i < a->sockets.n; i++) {
		bool known = get_address(a->sockets.fds[i], &at[i]) == 0;
		of[i] = known ? find_target(all, n, a->names[i], &at[i]) : n;
		if (of[i] == n)
			return sl_errf(
			    err, SL_EINVAL,
			    "the inherited socket %.60s (%s) is no listener's: name it http, https or as one of "
			    "gateway.listeners (FileDescriptorName=), or configure its address",
			    a->names[i], known && put_address(&at[i], text) ? text : "no usable address");
	}
	for (size_t t = 0; t < n; t++) {
		size_t k = 0;
		for (size_t i = 0; i < a->sockets.n; i++)
			if (of[i] == t)
				its[k++] = at[i];
		int rc = k > 0 ? follow(a, o, &all[t], its, k, err) : 0;
		if (rc != 0)
			return rc;
	}
	return 0;
}

int activation_config(struct activation *a, struct cmd_options *o, struct sluice_config **cfg)
{
	struct sl_err err;
	int rc = reload_config_first(o, "sluice", cfg);
	if (rc != 0 || a->sockets.n == 0)
		return rc;
	if (activation_assign(a, *cfg, o, &err) != 0) {
		fprintf(stderr, "sluice: %s\n", err.text);
		return CMD_EXIT_CONFIG;
	}
	log_info("%zu inherited sockets", a->sockets.n);
	if (a->n_sets == 0)
		return 0;
	reload_config_free(*cfg);
	*cfg = NULL;
	return reload_config_first(o, "sluice", cfg);
}
