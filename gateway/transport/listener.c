/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets: binding, and accepting without starving the loop or spinning.
 *
 * Each thread has its own sockets. Several threads share a port through SO_REUSEPORT, and the kernel spreads
 * connections among them. Inherited sockets (handover.h) are used before any new one is bound. Each of them is accepted
 * on by a thread, and a thread left without one shares another's.
 *
 * TCP_NODELAY, TCP_NOTSENT_LOWAT, keep-alive and TCP_USER_TIMEOUT are set on the listener. Linux copies them to
 * accepted sockets, which saves two system calls per connection. With the last two the kernel drops a peer that
 * vanished without closing after limits.stall, also while no output is pending.
 *
 * Out of descriptors a listener stays readable, so the loop would spin. One descriptor is kept in reserve. It is closed
 * to accept one waiting connection, which is closed at once so that its client fails quickly. Then the reserve is
 * reopened and accepting pauses for a moment.
 */
#include "gateway/transport/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/broker.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/metrics.h"
#include "gateway/transport/client_limits.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/handover.h"
#include "gateway/transport/unix_listen.h"

enum {
	BACKLOG = 1024,
	ACCEPTS_PER_TURN = 64,
	NOTSENT_LOWAT = 131072, /* unsent bytes that the kernel may hold; the rest waits as tokens, not as bytes */
	ADDRESSES_MAX = 2,
};
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS)

METRIC(rejected_fds, METRIC_COUNTER, "sluice_http_connections_rejected_total", "reason=\"descriptors\"",
       "Connections closed before their first byte was read.");

struct bind_address {
	struct sockaddr_storage sa;
	socklen_t len;
	bool optional; /* the machine may lack IPv6 */
};

static bool parse_address(const char *host, uint16_t port, struct bind_address *out)
{
	struct sockaddr_in *v4 = (void *)&out->sa;
	struct sockaddr_in6 *v6 = (void *)&out->sa;
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		out->len = sizeof *v4;
		return true;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		out->len = sizeof *v6;
		return true;
	}
	return false;
}

/* Names are not resolved; only "localhost" and "" (every address) are accepted. */
static int resolve(const struct conf_address *addr, struct bind_address out[ADDRESSES_MAX], struct sl_err *err)
{
	bool both = strcmp(addr->host, "localhost") == 0, any = addr->host[0] == '\0';
	if (!both && !any)
		return parse_address(addr->host, addr->port, &out[0])
			   ? 1
			   : sl_errf(err, SL_EINVAL, "%s: not an IP address or localhost", addr->text);
	parse_address(both ? "127.0.0.1" : "0.0.0.0", addr->port, &out[0]);
	parse_address(both ? "::1" : "::", addr->port, &out[1]);
	out[1].optional = true;
	return 2;
}

/* Detects half-open connections, whose peer vanished without closing. */
static void set_keepalive(int fd, uint64_t after_ms)
{
	int one = 1, probes = 3;
	unsigned ms = after_ms < UINT_MAX ? (unsigned)after_ms : UINT_MAX;
	int every = ms / 1000 < 4 ? 1 : ms / 1000 > 4 * 3600 ? 3600 : (int)(ms / 4000);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void set_options(int fd, const struct gw_config *cfg)
{
	int one = 1, lowat = NOTSENT_LOWAT;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
	set_keepalive(fd, cfg->limits.stall_ms);
}

/* 0 or errno. The supervisor binds a port that only root may bind. */
static int bind_address(int fd, const struct bind_address *a)
{
	const struct sockaddr *sa = (const struct sockaddr *)&a->sa;
	if (bind(fd, sa, a->len) == 0)
		return 0;
	int e = errno, rc = e == EACCES && broker_there() ? broker_bind(fd, sa, a->len) : -EPERM;
	return rc == -EPERM ? e : -rc;
}

/* Reports why an address can't be listened on. */
static int listen_error(const char *text, int error, struct sl_err *err)
{
	if (error == EADDRINUSE)
		return sl_errf(err, SL_EIO, "%s: the port is in use by another program", text);
	return sl_errf(err, SL_EIO, "%s: cannot listen: %s", text, strerror(error));
}

/* A bound socket or SL_EIO; *unavailable: this machine does not have that address. */
static int bind_socket(const struct bind_address *a, const struct gw_config *cfg, bool share, const char *text,
		       bool *unavailable, struct sl_err *err)
{
	*unavailable = false;
	int one = 1;
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		*unavailable = errno == EAFNOSUPPORT;
		return sl_errf(err, SL_EIO, "%s: can't create a socket: %s", text, strerror(errno));
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (share)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	if (a->sa.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	set_options(fd, cfg);
	int e = bind_address(fd, a);
	if (e != 0) {
		close(fd);
		*unavailable = e == EADDRNOTAVAIL;
		return listen_error(text, e, err);
	}
	return fd;
}

static int check_address(const struct gw_config *cfg, const struct conf_address *addr, struct sl_err *err)
{
	struct bind_address at[ADDRESSES_MAX];
	if (addr->off || addr->port == 0)
		return 0;
	int n = resolve(addr, at, err);
	for (int i = 0; i < n; i++) {
		bool unavailable;
		if (handover_count((const struct sockaddr *)&at[i].sa) > 0)
			continue; /* inherited */
		int fd = bind_socket(&at[i], cfg, false, addr->text, &unavailable, err);
		if (fd < 0 && !(unavailable && at[i].optional))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return n < 0 ? n : 0;
}

static size_t count_given_path(const char *path)
{
	struct sockaddr_un sa;
	return unix_address(path, &sa) ? handover_count((const struct sockaddr *)&sa) : 0;
}

int transport_check_ports(const struct gw_config *cfg, struct sl_err *err)
{
	const struct gw_listener_config *more = cfg->listeners.items;
	int rc = check_address(cfg, &cfg->https, err);
	if (rc == 0)
		rc = check_address(cfg, &cfg->http, err);
	for (size_t i = 0; rc == 0 && i < cfg->listeners.n; i++) {
		if (more[i].unix_path[0] == '\0')
			rc = check_address(cfg, &more[i].address, err);
		else if (count_given_path(more[i].unix_path) == 0)
			rc = unix_listen_check(more[i].unix_path, err);
	}
	return rc;
}

/* ---- accepting ---- */

static void pause_accepting(struct gw_transport *tr)
{
	if (tr->accept_after_ns == 0)
		list_each(it, &tr->listeners)
			event_del(&list_entry(it, struct listener, node)->ev);
	tr->accept_after_ns = clock_now_ns() + ACCEPT_PAUSE_NS;
}

static int take_reserve(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

static void out_of_descriptors(struct listener *l)
{
	struct gw_transport *tr = l->tr;
	if (tr->reserve_fd >= 0) {
		close(tr->reserve_fd);
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			close(fd);
			metric_add(&rejected_fds, 1);
		}
	}
	tr->reserve_fd = take_reserve();
	pause_accepting(tr);
}

static void on_acceptable(evutil_socket_t lfd, short what, void *arg)
{
	(void)what;
	struct listener *l = arg;
	struct gw_transport *tr = l->tr;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof sa;
		int fd = -1;
		if (fault_hit(FAULT_ACCEPT))
			errno = EMFILE;
		else
			fd = accept4(lfd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
				out_of_descriptors(l);
			else if (errno == EINTR || errno == ECONNABORTED)
				continue;
			return;
		}
		if (!admit_socket(tr)) {
			close(fd);
			continue;
		}
		struct net_addr peer;
		net_addr_from_sockaddr(&sa, &peer);
		conn_accept(tr, fd, &l->options, &peer);
	}
}

void listeners_tick(struct gw_transport *tr, uint64_t now_ns)
{
	if (tr->accept_after_ns == 0 || now_ns < tr->accept_after_ns)
		return;
	tr->accept_after_ns = 0;
	if (tr->reserve_fd < 0)
		tr->reserve_fd = take_reserve();
	list_each(it, &tr->listeners)
		event_add(&list_entry(it, struct listener, node)->ev, NULL);
}

/* Takes fd, which listens, and unix_path. */
static int add_listener(struct gw_transport *tr, int fd, char *unix_path, const char *text,
			const struct listener_options *o, struct sl_err *err)
{
	struct sockaddr_in6 sa = {0}; /* the port has the same offset in both families */
	socklen_t len = sizeof sa;
	struct listener *l = sl_zalloc(sizeof *l);
	if (l == NULL) {
		close(fd);
		if (unix_path != NULL)
			unix_listen_release(unix_path, false);
		sl_free(unix_path);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", text);
	}
	if (unix_path == NULL && getsockname(fd, (struct sockaddr *)&sa, &len) == 0)
		l->port = ntohs(sa.sin6_port);
	l->tr = tr;
	l->fd = fd;
	l->unix_path = unix_path;
	l->options = *o;
	event_assign(&l->ev, tr->t->base, fd, EV_READ | EV_PERSIST, on_acceptable, l);
	list_push_back(&tr->listeners, &l->node);
	return 0;
}

static int open_one(struct gw_transport *tr, const struct bind_address *a, const struct conf_address *addr,
		    const struct listener_options *o, struct sl_err *err)
{
	bool unavailable;
	int fd = bind_socket(a, tr->t->cfg, tr->t->cfg->threads > 1, addr->text, &unavailable, err);
	if (fd < 0)
		return unavailable && a->optional ? 0 : fd;
	if (listen(fd, BACKLOG) != 0) {
		int e = errno;
		close(fd);
		return listen_error(addr->text, e, err);
	}
	handover_note(fd);
	return add_listener(tr, fd, NULL, addr->text, o, err);
}

/* Listens on this thread's share of n inherited sockets. */
static int take_given(struct gw_transport *tr, const struct bind_address *a, size_t n, const struct conf_address *addr,
		      const struct listener_options *o, struct sl_err *err)
{
	size_t threads = (size_t)tr->t->cfg->threads, most = threads > n ? threads : n;
	for (size_t i = (size_t)tr->t->index; i < most; i += threads) {
		int fd = handover_take((const struct sockaddr *)&a->sa, i % n);
		if (fd < 0)
			return sl_errf(err, SL_EIO, "%s: can't take over the socket", addr->text);
		set_options(fd, tr->t->cfg); /* a service manager's has none of them */
		int rc = add_listener(tr, fd, NULL, addr->text, o, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static void open_reserve(struct gw_transport *tr)
{
	if (tr->reserve_fd < 0)
		tr->reserve_fd = take_reserve();
}

int listeners_open(struct gw_transport *tr, const struct conf_address *addr, const struct listener_options *o,
		   struct sl_err *err)
{
	struct bind_address at[ADDRESSES_MAX];
	if (addr->off)
		return 0;
	open_reserve(tr);
	int n = resolve(addr, at, err);
	for (int i = 0; i < n; i++) {
		size_t given = handover_count((const struct sockaddr *)&at[i].sa);
		int rc = given > 0 ? take_given(tr, &at[i], given, addr, o, err) : open_one(tr, &at[i], addr, o, err);
		if (rc != 0)
			return rc;
	}
	return n < 0 ? n : 0;
}

int listeners_open_config(struct gw_transport *tr, const struct gw_listener_config *l, struct sl_err *err)
{
	const struct listener_options o = {.tls = l->tls, .proxy = l->proxy, .client_certs = l->client_certs};
	mode_t mode;
	if (l->unix_path[0] == '\0')
		return listeners_open(tr, &l->address, &o, err);
	if (!unix_mode_parse(l->unix_mode, &mode))
		return sl_errf(err, SL_EINVAL, "%s: '%s' is not a file mode", l->unix_path, l->unix_mode);
	open_reserve(tr);
	char *path = sl_strdup(l->unix_path);
	if (path == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", l->unix_path);
	struct sockaddr_un sa;
	int given = SL_EIO;
	if (count_given_path(path) > 0 && unix_address(path, &sa))
		given = handover_take((const struct sockaddr *)&sa, 0);
	int fd = unix_listen_open(path, mode, given, err);
	if (fd < 0) {
		sl_free(path);
		return fd;
	}
	if (given < 0)
		handover_note(fd);
	return add_listener(tr, fd, path, l->unix_path, &o, err);
}

int transport_accept(struct gw_transport *tr)
{
	int rc = 0;
	if (tr->accepting)
		return 0;
	tr->accepting = true;
	list_each(it, &tr->listeners) {
		if (event_add(&list_entry(it, struct listener, node)->ev, NULL) != 0)
			rc = SL_EIO;
	}
	return rc;
}

void listeners_close(struct gw_transport *tr)
{
	/* A process that has not taken over must not remove the socket files: another process listens on them. */
	bool stays = tr->replaced || tr->t->cfg->sockets_stay || (tr->t->cfg->takeover && !tr->accepting);
	tr->accepting = false;
	list_each_safe(it, tmp, &tr->listeners) {
		struct listener *l = list_entry(it, struct listener, node);
		event_del(&l->ev);
		close(l->fd);
		if (l->unix_path != NULL)
			unix_listen_release(l->unix_path, stays);
		sl_free(l->unix_path);
		list_remove(&l->node);
		sl_free(l);
	}
	if (tr->reserve_fd >= 0)
		close(tr->reserve_fd);
	tr->reserve_fd = -1;
	tr->accept_after_ns = 0;
}

uint16_t transport_port(const struct gw_transport *tr, bool tls)
{
	list_each(it, &tr->listeners) {
		const struct listener *l = list_entry(it, struct listener, node);
		if (l->options.tls == tls && l->port != 0)
			return l->port;
	}
	return 0;
}
