/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's I/O thread.
 *
 * One iteration: libevent reports ready bytes and mail of the engine's threads; then one send per connection writes its
 * output, and connections that ended are freed. No callback writes or frees, so a callback may end any
 * connection, including its own.
 *
 * Access: the socket has mode 0600 from its creation, and the peer's uid must be the process's or root's. A socket file
 * left by a dead engine is removed; one that answers is never touched.
 *
 * Succession: one that is to take over (eng_server_config.takeover) binds beside the socket and renames once all its
 * models are READY, so that connections reach either process at any time. The former one gets SIGUSR2, sends LEAVE and
 * ends when its gateways have closed their links.
 *
 * Shutdown: the socket closes first, then every sequence is cancelled, and the loop runs until all ends are sent to the
 * gateways, or until a deadline.
 */
#include "engine/core/server.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/peer.h"

enum {
	SERVER_MAX_CONNS = 256,
	SERVER_BACKLOG = 64,
	READ_BYTES = 64 << 10,
	READS_PER_TURN = 4, /* so that a busy link does not delay the others */
	STATS_MIN_MS = 20,
	STATS_MAX_MS = 250,
	HELLO_MS = 5000,       /* until a new connection sends HELLO */
	LAST_WRITE_MS = 1000,  /* for a BYE */
	STOP_MS = 5000,        /* for the last events when the engine stops */
	ACCEPT_PAUSE_MS = 100, /* out of descriptors */
	N_SIGNALS = 3,
};

_Static_assert((int)READ_BYTES <= (int)LINK_KEEP, "link_feed takes one read at a time");

struct conn {
	struct list in_server;
	struct server *s;
	struct eng_link *link;
	int fd;
	struct event *read_ev, *write_ev;
	bool blocked;         /* the socket buffer is full: write_ev is pending */
	bool gone;            /* the peer closed or the socket failed */
	uint64_t deadline_ns; /* for HELLO, then for the last bytes; 0: none */
};

struct server {
	struct eng_server_config cfg;
	struct sockaddr_un addr;
	struct stat bound; /* the socket file that is ours */
	int listen_fd;     /* -1: no longer accepting */
	struct event_base *base;
	struct event *accept_ev, *resume_ev, *mail_ev, *tick_ev, *signal_ev[N_SIGNALS];
	struct link_hub hub;
	struct list conns;
	int n_conns;
	uint64_t stats_at_ns; /* of the last STATS */
	uint64_t tick_at_ns;  /* when tick_ev fires; UINT64_MAX: it does not */
	uint64_t stop_at_ns;  /* stopping: the deadline; 0: serving */
	atomic_bool stop_asked, failed, leave_asked;
	bool beside; /* it has not taken the socket over yet */
	bool ready;
	bool settled; /* every model has been READY or FAILED */
	int beat_slot;
	uint8_t in[READ_BYTES];
};

/* ---- the socket ---- */

/* Whether another engine listens there; a peer too busy to accept counts. */
static bool is_served(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return true;
	int rc = connect(fd, (const struct sockaddr *)addr, sizeof *addr);
	bool dead = rc != 0 && (errno == ECONNREFUSED || errno == ENOENT);
	close(fd);
	return !dead;
}

static int bind_private(int fd, const struct sockaddr_un *addr)
{
	mode_t before = umask(0177);
	int rc = bind(fd, (const struct sockaddr *)addr, sizeof *addr);
	int saved = errno;
	umask(before);
	errno = saved;
	return rc;
}

/* Where one listens that is to take over. */
static int beside(const char *path, char *out, size_t size)
{
	int n = snprintf(out, size, "%s.next", path);
	return n > 0 && (size_t)n < size ? 0 : SL_EINVAL;
}

static int open_socket(struct server *s, struct sl_err *err)
{
	char next[sizeof s->addr.sun_path];
	const char *path = s->cfg.socket_path;
	s->beside = s->cfg.takeover;
	if (s->beside && beside(path, next, sizeof next) != 0)
		return sl_errf(err, SL_EINVAL, "%s: too long for a second socket beside it", path);
	path = s->beside ? next : path;
	size_t n = strlen(path);
	if (n == 0 || n >= sizeof s->addr.sun_path)
		return sl_errf(err, SL_EINVAL, "%s: a socket path must have 1 to %zu bytes", path,
			       sizeof s->addr.sun_path - 1);
	s->addr.sun_family = AF_UNIX;
	memcpy(s->addr.sun_path, path, n + 1);
	s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->listen_fd < 0)
		return sl_errf(err, SL_EIO, "no socket: %s", strerror(errno));
	int rc = bind_private(s->listen_fd, &s->addr);
	if (rc != 0 && errno == EADDRINUSE) {
		struct stat st;
		if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
			return sl_errf(err, SL_EINVAL, "%s exists and is not a socket", path);
		if (is_served(&s->addr))
			return sl_errf(err, SL_ELIMIT, "another engine serves on %s", path);
		unlink(path);
		rc = bind_private(s->listen_fd, &s->addr);
	}
	if (rc != 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	if (lstat(path, &s->bound) != 0 || listen(s->listen_fd, SERVER_BACKLOG) != 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	return 0;
}

static bool is_ours(const struct server *s, const char *path)
{
	struct stat st;
	return s->bound.st_ino != 0 && lstat(path, &st) == 0 && st.st_ino == s->bound.st_ino &&
	       st.st_dev == s->bound.st_dev;
}

/* From here on connections come to this process. */
static int take_over(struct server *s)
{
	const char *path = s->cfg.socket_path;
	if (rename(s->addr.sun_path, path) != 0) {
		log_error("%s: can't take it over: %s", path, strerror(errno));
		return SL_EIO;
	}
	memcpy(s->addr.sun_path, path, strlen(path) + 1);
	s->beside = false;
	log_info("this process serves on %s now", path);
	return 0;
}

/* Removes only our own file: another engine may have replaced it. */
static void close_socket(struct server *s)
{
	if (s->listen_fd < 0)
		return;
	close(s->listen_fd);
	s->listen_fd = -1;
	if (is_ours(s, s->addr.sun_path))
		unlink(s->addr.sun_path);
}

static bool may_connect(int fd)
{
	uid_t uid;
	bool trusted = peer_is_trusted(fd, &uid);
	if (!trusted)
		log_warn("connection by uid %d refused", (int)uid);
	return trusted;
}

/* ---- connections ---- */

static void free_event(struct event *ev)
{
	if (ev != NULL)
		event_free(ev);
}

static void conn_free(struct conn *c)
{
	list_remove(&c->in_server);
	c->s->n_conns--;
	if (c->link != NULL)
		link_destroy(c->link);
	free_event(c->read_ev);
	free_event(c->write_ev);
	close(c->fd);
	sl_free(c);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	(void)what;
	for (int i = 0; i < READS_PER_TURN && !c->gone && !c->link->finished; i++) {
		ssize_t n = fault_hit(FAULT_READ) ? (errno = ECONNRESET, -1) : read(fd, c->s->in, sizeof c->s->in);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		c->gone = n <= 0;
		if (n > 0)
			link_feed(c->link, c->s->in, (size_t)n);
		if (n < (ssize_t)sizeof c->s->in)
			return;
	}
}

static void conn_flush(struct conn *c)
{
	struct sl_buf *out = &c->link->out;
	while (!c->gone && !c->blocked && out->len > 0) {
		ssize_t n = fault_hit(FAULT_WRITE) ? (errno = ECONNRESET, -1)
						   : send(c->fd, buf_data(out), out->len, MSG_NOSIGNAL);
		if (n >= 0) {
			buf_consume(out, (size_t)n);
		} else if (errno == EAGAIN) {
			c->blocked = true;
			event_add(c->write_ev, NULL);
		} else if (errno != EINTR) {
			c->gone = true;
		}
	}
	if (out->len == 0)
		buf_clear(out, LINK_KEEP);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	(void)fd;
	(void)what;
	c->blocked = false; /* the end of the turn writes */
}

/* End of a turn: writes the output of c; frees it if it has ended. */
static void conn_settle(struct conn *c, uint64_t now)
{
	struct eng_link *l = c->link;
	if (l->greeted && !l->finished)
		c->deadline_ns = 0;
	if (!l->overflow)
		conn_flush(c);
	bool ended = c->gone || l->overflow || (l->finished && l->out.len == 0);
	if (l->finished && !ended && c->deadline_ns == 0)
		c->deadline_ns = now + LAST_WRITE_MS * NS_PER_MS;
	if (c->deadline_ns != 0 && now >= c->deadline_ns)
		ended = true;
	if (ended)
		conn_free(c);
}

static void conn_open(struct server *s, int fd)
{
	bool refused = s->n_conns >= SERVER_MAX_CONNS || !may_connect(fd);
	struct conn *c = refused ? NULL : sl_zalloc(sizeof *c);
	if (c == NULL) {
		close(fd);
		return;
	}
	c->s = s;
	c->fd = fd;
	c->deadline_ns = clock_now_ns() + HELLO_MS * NS_PER_MS;
	list_push_back(&s->conns, &c->in_server);
	s->n_conns++;
	c->read_ev = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
	c->write_ev = event_new(s->base, fd, EV_WRITE, on_writable, c);
	if (c->read_ev == NULL || c->write_ev == NULL || link_create(&s->hub, &c->link) != 0 ||
	    event_add(c->read_ev, NULL) != 0)
		conn_free(c);
}

static void on_acceptable(evutil_socket_t fd, short what, void *ctx)
{
	struct server *s = ctx;
	(void)what;
	int got =
	    fault_hit(FAULT_ACCEPT) ? (errno = EMFILE, -1) : accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (got >= 0) {
		conn_open(s, got);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		/* The listener stays readable, so without a pause the loop would spin. */
		const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
		log_warn("accepting connections pauses: %s", strerror(errno));
		event_del(s->accept_ev);
		event_add(s->resume_ev, &pause);
	}
}

static void on_resume(evutil_socket_t fd, short what, void *ctx)
{
	struct server *s = ctx;
	(void)fd;
	(void)what;
	if (s->listen_fd >= 0)
		event_add(s->accept_ev, NULL);
}

/* ---- the loop ---- */

static void on_mail(evutil_socket_t fd, short what, void *ctx)
{
	struct server *s = ctx;
	(void)fd;
	(void)what;
	hub_deliver(&s->hub);
}

/* The end of an idle period: the end of the turn does the rest. */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct server *s = ctx;
	(void)fd;
	(void)what;
	s->tick_at_ns = UINT64_MAX;
}

static void on_signal(evutil_socket_t sig, short what, void *ctx)
{
	struct server *s = ctx;
	(void)what;
	atomic_store(sig == SIGUSR2 ? &s->leave_asked : &s->stop_asked, true);
}

static void arm_tick(struct server *s, uint64_t now)
{
	unsigned beat_ms = s->cfg.beat_ms;
	uint64_t in_ms = beat_ms > 0 && beat_ms < STATS_MAX_MS ? beat_ms : STATS_MAX_MS;
	uint64_t at = now + in_ms * NS_PER_MS;
	if (s->hub.changed && s->stats_at_ns + STATS_MIN_MS * NS_PER_MS < at)
		at = s->stats_at_ns + STATS_MIN_MS * NS_PER_MS;
	if (s->tick_at_ns <= at) /* it fires early, and looks again */
		return;
	s->tick_at_ns = at;
	uint64_t in_us = at > now ? (at - now) / 1000 + 1 : 1;
	struct timeval tv = {.tv_sec = (time_t)(in_us / 1000000), .tv_usec = (suseconds_t)(in_us % 1000000)};
	event_add(s->tick_ev, &tv);
}

/* Whether no model is loading. The engine reports readiness to the supervisor only then; gateways serve each model as
 * soon as it is READY. */
static bool settled(struct server *s)
{
	struct proto_model m;
	for (int i = 0; !s->settled && i < s->hub.backend->n_models(s->hub.be); i++) {
		s->hub.backend->model_info(s->hub.be, i, &m);
		if (m.state == PROTO_MODEL_LOADING)
			return false;
	}
	s->settled = true;
	return true;
}

/* The name of a model that has failed is in *out. */
static bool any_failed(struct server *s, struct proto_model *out)
{
	for (int i = 0; i < s->hub.backend->n_models(s->hub.be); i++) {
		s->hub.backend->model_info(s->hub.be, i, out);
		if (out->state == PROTO_MODEL_FAILED)
			return true;
	}
	return false;
}

/* Once no model is loading: takes over, or gives up. True: gateways reach this process. */
static bool succeeds(struct server *s)
{
	struct proto_model m;
	bool fails = s->beside && any_failed(s, &m);
	if (fails)
		log_error("model %.*s: %.*s; the running engine continues", (int)m.name.n, m.name.at, (int)m.reason.n,
			  m.reason.at);
	if (fails || (s->beside && s->hub.n_ready > 0 && take_over(s) != 0))
		server_fail(s);
	return !s->beside && s->hub.n_ready > 0;
}

static void end_of_turn(struct server *s)
{
	uint64_t now = clock_now_ns();
	beat_touch(s->beat_slot);
	uint64_t since = now - s->stats_at_ns;
	if (since >= STATS_MAX_MS * NS_PER_MS || (s->hub.changed && since >= STATS_MIN_MS * NS_PER_MS)) {
		s->stats_at_ns = now;
		hub_send_stats(&s->hub);
	}
	do { /* a connection that ends cancels its sequences */
		if (s->hub.posted_here)
			hub_deliver(&s->hub);
		list_each_safe(it, tmp, &s->conns)
			conn_settle(list_entry(it, struct conn, in_server), now);
	} while (s->hub.posted_here);
	bool ready = s->stop_at_ns == 0 && (s->hub.n_ready > 0 || s->beside) && settled(s) && succeeds(s);
	if (ready != s->ready) {
		s->ready = ready;
		beat_ready(ready);
	}
	arm_tick(s, now);
}

static void begin_stop(struct server *s, uint64_t now)
{
	log_info("stopping with %zu open requests", hub_n_live(&s->hub));
	event_del(s->accept_ev);
	event_del(s->resume_ev);
	close_socket(s);
	hub_close(&s->hub);
	s->stop_at_ns = now + STOP_MS * NS_PER_MS;
}

/* Asked by the supervisor, whose new process has the socket. Otherwise gateways would come back here. */
static void begin_leave(struct server *s)
{
	atomic_store(&s->leave_asked, false);
	if (s->hub.leaving || s->listen_fd < 0 || is_ours(s, s->cfg.socket_path))
		return;
	log_info("another process takes over: %zu open requests end here", hub_n_live(&s->hub));
	hub_leave(&s->hub);
}

void server_run(struct server *s)
{
	s->beat_slot = beat_slot("engine i/o");
	s->stats_at_ns = clock_now_ns();
	hub_deliver(&s->hub);
	end_of_turn(s);
	bool bye_sent = false;
	for (;;) {
		if (event_base_loop(s->base, EVLOOP_ONCE) < 0) {
			log_error("the event loop failed");
			break;
		}
		uint64_t now = clock_now_ns();
		if (s->stop_at_ns == 0 && atomic_load(&s->leave_asked))
			begin_leave(s);
		bool left = s->hub.leaving && s->n_conns == 0;
		if (s->stop_at_ns == 0 && (left || atomic_load(&s->stop_asked)))
			begin_stop(s, now);
		bool over = s->stop_at_ns != 0 && (hub_n_live(&s->hub) == 0 || now >= s->stop_at_ns);
		if (over && !bye_sent) {
			hub_bye(&s->hub, "the engine is shutting down");
			bye_sent = true;
		}
		end_of_turn(s);
		if (over && (s->n_conns == 0 || now >= s->stop_at_ns))
			break;
	}
	while (!list_empty(&s->conns))
		conn_free(list_entry(s->conns.next, struct conn, in_server));
	close_socket(s);
	beat_slot_close(s->beat_slot);
}

void server_stop(struct server *s)
{
	atomic_store(&s->stop_asked, true);
	mailbox_nudge(&s->hub.box);
}

void server_fail(struct server *s)
{
	atomic_store(&s->failed, true);
	server_stop(s);
}

bool server_failed(struct server *s) { return atomic_load(&s->failed); }

/* ---- life ---- */

struct link_hub *server_hub(struct server *s) { return &s->hub; }

struct event_base *server_base(struct server *s) { return s->base; }

int server_catch_signals(struct server *s)
{
	static const int sigs[N_SIGNALS] = {SIGTERM, SIGINT, SIGUSR2};
	for (int i = 0; i < N_SIGNALS; i++) {
		s->signal_ev[i] = evsignal_new(s->base, sigs[i], on_signal, s);
		if (s->signal_ev[i] == NULL || event_add(s->signal_ev[i], NULL) != 0)
			return SL_EIO;
	}
	return 0;
}

static int make_loop(struct server *s, struct sl_err *err)
{
	/* The echo engine paces tokens finer than a millisecond. That sets a timer of the kernel's in each turn. */
	struct event_config *cfg = event_config_new();
	if (cfg != NULL) {
		if (!s->cfg.coarse_timers)
			event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
		s->base = event_base_new_with_config(cfg);
		event_config_free(cfg);
	}
	if (s->base == NULL)
		return sl_errf(err, SL_ENOMEM, "no event loop");
	s->accept_ev = event_new(s->base, s->listen_fd, EV_READ | EV_PERSIST, on_acceptable, s);
	s->resume_ev = event_new(s->base, -1, 0, on_resume, s);
	s->mail_ev = event_new(s->base, s->hub.box.wake_fd, EV_READ | EV_PERSIST, on_mail, s);
	s->tick_ev = event_new(s->base, -1, 0, on_tick, s);
	s->tick_at_ns = UINT64_MAX;
	if (s->accept_ev == NULL || s->resume_ev == NULL || s->mail_ev == NULL || s->tick_ev == NULL ||
	    event_add(s->accept_ev, NULL) != 0 || event_add(s->mail_ev, NULL) != 0)
		return sl_errf(err, SL_ENOMEM, "no event loop");
	return 0;
}

int server_create(const struct eng_server_config *cfg, struct server **out, struct sl_err *err)
{
	struct server *s = sl_zalloc(sizeof *s);
	int rc = s != NULL ? hub_init(&s->hub, (uint64_t)clock_unix_s() << 20 ^ clock_now_ns()) : SL_ENOMEM;
	if (rc != 0) {
		sl_free(s);
		return sl_errf(err, rc, "%s", sl_code_name(rc));
	}
	s->cfg = *cfg;
	s->listen_fd = -1;
	s->beat_slot = -1;
	list_init(&s->conns);
	s->cfg.socket_path = sl_strdup(cfg->socket_path);
	rc = s->cfg.socket_path != NULL ? open_socket(s, err) : sl_errf(err, SL_ENOMEM, "out of memory");
	if (rc == 0)
		rc = make_loop(s, err);
	if (rc != 0) {
		server_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void server_destroy(struct server *s)
{
	struct event *const all[] = {s->accept_ev, s->resume_ev, s->mail_ev, s->tick_ev};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free_event(all[i]);
	for (int i = 0; i < N_SIGNALS; i++)
		free_event(s->signal_ev[i]);
	if (s->base != NULL)
		event_base_free(s->base);
	close_socket(s);
	hub_dispose(&s->hub);
	sl_free((char *)s->cfg.socket_path);
	sl_free(s);
}

static int serve(struct server *s, const struct server_backend *b, const void *cfg)
{
	struct sl_err err = {0};
	void *be = NULL;
	int rc = server_catch_signals(s);
	if (rc == 0)
		rc = beat_start(s->cfg.beat_fd, s->cfg.beat_ms, s->cfg.stale_ms);
	if (rc == 0)
		rc = b->create(cfg, s, &be, &err);
	if (rc == 0) {
		log_info("%s on %s", b->what, s->cfg.socket_path);
		server_run(s);
		b->destroy(be);
	} else {
		log_error("%s", err.text[0] != '\0' ? err.text : sl_code_name(rc));
	}
	beat_stop();
	if (rc == 0)
		return server_failed(s) ? 1 : 0;
	return rc == SL_EINVAL || rc == SL_EUNSUPPORTED ? SERVER_EXIT_CONFIG : 1;
}

int server_serve(const struct eng_server_config *srv, const struct server_backend *b, const void *cfg)
{
	struct sl_err err = {0};
	struct server *s;
	int rc = server_create(srv, &s, &err);
	if (rc != 0) {
		log_error("%s", err.text);
		return rc == SL_ENOMEM || rc == SL_EIO ? 1 : SERVER_EXIT_CONFIG;
	}
	int status = serve(s, b, cfg);
	server_destroy(s);
	return status;
}
