/* SPDX-License-Identifier: Apache-2.0
 *
 * The load client's connections and its loop.
 *
 *   CLOSED ──connect──► CONNECTING ──► HANDSHAKE (TLS) ──► UP ──broken, or used up──► CLOSED
 *
 * A connection accepts requests in any state; they wait in its protocol until it is UP. Output is gathered: one write
 * at the end of a turn sends all of the turn's output, so a thousand requests cost no more packets than they fill. Flow
 * control windows have their maximum size: the client never holds a server back.
 *
 * Over TLS a turn first moves the input of every connection from the sockets into OpenSSL and records its time (which
 * decrypts the first record of each), and only then reads it. So parsing one connection's input does not make another's
 * look late.
 *
 * A connection that ends is reset to CLOSED before on_end of its calls, so on_end may start them again at once, even on
 * that connection. Nothing here outlives load_client_destroy.
 */
#include "cmd/load/load_client.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/http/http1_read.h"

enum {
	READ_BYTES = 128 << 10,
	READS_PER_TURN = 8,
	OUT_MAX = 64 << 20,
	FILL_BYTES = 256 << 10,
	OUT_KEEP = 4096,
	LOOKS_PER_TURN = 4,
	WIDE_WINDOW = 0x7fffffff,
	WHY_BYTES = 200,
	H1_LINES_MAX = 64 << 10, /* bytes of a reply's head */
};

enum conn_state { CONN_CLOSED, CONN_CONNECTING, CONN_HANDSHAKE, CONN_UP };

struct load_conn {
	struct load_client *c;
	enum conn_state state;
	int fd;
	SSL *ssl;
	struct event *readable, *writable;
	bool want_write;
	bool inside; /* within an nghttp2 call: the session must not be freed */
	struct sl_buf out;
	struct list calls;
	struct list dirty; /* in load_client.dirty: has output */
	struct list came;  /* in load_client.came: has bytes from the socket, read at came_ns */
	uint64_t came_ns;
	nghttp2_session *session;
	struct http1_read *reply; /* NULL: HTTP/2 */
	bool ends;                /* after its reply: the connection is not used again */
};

struct load_client {
	struct load_target target;
	struct event_base *base;
	struct event *timer;
	SSL_CTX *ssl;
	nghttp2_session_callbacks *callbacks;
	struct list dirty, came;
	struct load_conn *conns;
	int n_conns, n_up;
	int n_readable;  /* sockets that became readable in this pass of the loop */
	uint64_t now_ns; /* arrival time of the bytes being read */
	char why[WHY_BYTES];
	uint8_t read[READ_BYTES];
};

/* ---- targets ---- */

static int resolve(const char *port, struct load_target *t, struct sl_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	int rc = getaddrinfo(t->host, port, &hints, &found);
	if (rc != 0)
		return sl_errf(err, SL_EIO, "%s: %s", t->host, gai_strerror(rc));
	memcpy(&t->addr, found->ai_addr, found->ai_addrlen);
	t->addr_bytes = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static bool is_loopback(const struct load_target *t)
{
	if (t->addr.ss_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, &t->addr, sizeof in);
		return ntohl(in.sin_addr.s_addr) >> 24 == 127;
	}
	struct sockaddr_in6 in6;
	memcpy(&in6, &t->addr, sizeof in6);
	return t->addr.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

int load_target_parse(const char *url, struct load_target *out, struct sl_err *err)
{
	*out = (struct load_target){.tls = strncmp(url, "https://", 8) == 0};
	if (!out->tls && strncmp(url, "http://", 7) != 0)
		return sl_errf(err, SL_EINVAL, "%s: must begin with http:// or https://", url);
	const char *at = url + (out->tls ? 8 : 7), *slash = at + strcspn(at, "/?#");
	size_t n = (size_t)(slash - at), n_path = strlen(slash);
	while (n_path > 0 && slash[n_path - 1] == '/')
		n_path--;
	if (n == 0 || n >= sizeof out->authority || n_path >= sizeof out->path || strpbrk(at, "?#@") != NULL)
		return sl_errf(err, SL_EINVAL, "%s: not an address such as https://localhost:8443", url);
	memcpy(out->authority, at, n);
	memcpy(out->path, slash, n_path);
	char port[16];
	snprintf(port, sizeof port, "%s", out->tls ? "443" : "80");
	bool bracket = at[0] == '[';
	const char *end = bracket ? memchr(at, ']', n) : memchr(at, ':', n);
	size_t n_host = end != NULL ? (size_t)(end - at) : n;
	const char *colon = end != NULL ? end + (bracket ? 1 : 0) : slash;
	if (n_host - (bracket ? 1u : 0u) >= sizeof out->host || (bracket && end == NULL) ||
	    (colon < slash && *colon != ':') || (colon < slash && (size_t)(slash - colon) >= sizeof port))
		return sl_errf(err, SL_EINVAL, "%s: not an address such as https://localhost:8443", url);
	memcpy(out->host, at + (bracket ? 1 : 0), n_host - (bracket ? 1 : 0));
	if (colon < slash)
		snprintf(port, sizeof port, "%.*s", (int)(slash - colon - 1), colon + 1);
	int rc = resolve(port, out, err);
	out->verify = rc == 0 && !is_loopback(out);
	return rc;
}

/* ---- a connection's end ---- */

static void schedule(struct load_conn *k)
{
	if (list_empty(&k->dirty))
		list_push_back(&k->c->dirty, &k->dirty);
}

/* Closes the connection and frees its state. Its calls move to *orphans; NULL: they are dropped. */
static void reset(struct load_conn *k, struct list *orphans)
{
	struct load_client *c = k->c;
	c->n_up -= k->state == CONN_UP;
	k->state = CONN_CLOSED;
	list_remove(&k->dirty);
	list_remove(&k->came);
	if (k->readable != NULL)
		event_free(k->readable);
	if (k->writable != NULL)
		event_free(k->writable);
	k->readable = k->writable = NULL;
	k->want_write = false;
	SSL_free(k->ssl);
	k->ssl = NULL;
	nghttp2_session_del(k->session);
	k->session = NULL;
	if (k->reply != NULL)
		http1_read_dispose(k->reply);
	sl_free(k->reply);
	k->reply = NULL;
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
	buf_clear(&k->out, 0);
	while (!list_empty(&k->calls)) {
		struct load_call *call = list_entry(k->calls.next, struct load_call, node);
		list_remove(&call->node);
		call->conn = NULL;
		if (orphans != NULL)
			list_push_back(orphans, &call->node);
	}
}

static void broken(struct load_conn *k, const char *why)
{
	struct list orphans;
	struct load_client *c = k->c;
	list_init(&orphans);
	if (why != NULL)
		snprintf(c->why, sizeof c->why, "%s", why);
	reset(k, &orphans);
	while (!list_empty(&orphans)) {
		struct load_call *call = list_entry(orphans.next, struct load_call, node);
		list_remove(&call->node);
		call->ops->on_end(call, LOAD_LOST, clock_now_ns());
	}
}

static void call_end(struct load_call *call, enum load_end how)
{
	uint64_t now = call->conn->c->now_ns;
	list_remove(&call->node);
	call->conn = NULL;
	call->ops->on_end(call, how, now);
}

/* ---- HTTP/2 ---- */

static struct load_call *call_of(nghttp2_session *session, int32_t stream)
{
	return stream == 0 ? NULL : nghttp2_session_get_stream_user_data(session, stream);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
		     const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
	(void)flags;
	struct load_conn *k = user;
	struct load_call *call = call_of(session, frame->hd.stream_id);
	if (call != NULL && n_name == 7 && memcmp(name, ":status", 7) == 0 && n_value == 3 && value[0] != '1')
		call->ops->on_head(call, (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0'),
				   k->c->now_ns);
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t n,
			 void *user)
{
	(void)flags;
	struct load_conn *k = user;
	struct load_call *call = call_of(session, stream);
	if (call != NULL)
		call->ops->on_data(call, data, n, k->c->now_ns);
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
	(void)user;
	struct load_call *call = call_of(session, stream);
	if (call != NULL)
		call_end(call, code == NGHTTP2_NO_ERROR ? LOAD_DONE : LOAD_RESET);
	return 0;
}

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *dst, size_t room, uint32_t *flags,
			 nghttp2_data_source *source, void *user)
{
	(void)session, (void)stream, (void)user;
	struct load_call *call = source->ptr;
	size_t n = call->n_body - call->body_at < room ? call->n_body - call->body_at : room;
	if (n > 0)
		memcpy(dst, call->body + call->body_at, n);
	call->body_at += n;
	if (call->body_at == call->n_body)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static int h2_open(struct load_conn *k)
{
	static const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WIDE_WINDOW},
	};
	int rc = nghttp2_session_client_new(&k->session, k->c->callbacks, k);
	if (rc == 0)
		rc = nghttp2_submit_settings(k->session, NGHTTP2_FLAG_NONE, settings, 2);
	if (rc == 0)
		rc = nghttp2_session_set_local_window_size(k->session, NGHTTP2_FLAG_NONE, 0, WIDE_WINDOW);
	return rc == 0 ? 0 : SL_ENOMEM;
}

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
			    NGHTTP2_NV_FLAG_NONE};
}

static int h2_start(struct load_conn *k, struct load_call *call, const char *path, const char *bearer)
{
	const struct load_target *t = &k->c->target;
	char length[24];
	snprintf(length, sizeof length, "%zu", call->n_body);
	const nghttp2_nv nv[] = {field(":method", "POST"),
				 field(":scheme", t->tls ? "https" : "http"),
				 field(":authority", t->authority),
				 field(":path", path),
				 field("content-type", "application/json"),
				 field("content-length", length),
				 field("user-agent", "sluice-bench"),
				 field("authorization", bearer)};
	size_t n = sizeof nv / sizeof *nv - (bearer[0] == '\0' ? 1 : 0);
	nghttp2_data_provider body = {.source.ptr = call, .read_callback = read_body};
	call->stream = nghttp2_submit_request(k->session, NULL, nv, n, &body, call);
	return call->stream > 0 ? 0 : call->stream == NGHTTP2_ERR_NOMEM ? SL_ENOMEM : SL_ECLOSED;
}

/* False: the connection has ended. */
static bool h2_input(struct load_conn *k, const uint8_t *bytes, size_t n)
{
	k->inside = true;
	ssize_t used = nghttp2_session_mem_recv(k->session, bytes, n);
	k->inside = false;
	if (used < 0)
		broken(k, "the reply is not HTTP/2");
	return used >= 0;
}

/* ---- HTTP/1.1 ---- */

static int h1_start(struct load_conn *k, const struct load_call *call, const char *path, const char *bearer)
{
	int rc = buf_printf(&k->out,
			    "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
			    "User-Agent: sluice-bench\r\n%s%s%s\r\n",
			    path, k->c->target.authority, call->n_body, bearer[0] ? "Authorization: " : "", bearer,
			    bearer[0] ? "\r\n" : "");
	if (rc == 0)
		rc = buf_append(&k->out, call->body, call->n_body);
	http1_read_begin(k->reply);
	k->ends = false;
	return rc;
}

static struct load_call *only_call(const struct load_conn *k)
{
	return list_empty(&k->calls) ? NULL : list_entry(k->calls.next, struct load_call, node);
}

/* Of the head; an interim one (1xx) is none. */
static bool h1_line(void *ctx, const char *line, size_t n)
{
	struct load_conn *k = ctx;
	struct load_call *call = only_call(k);
	bool blank = line[0] == '\n' || (n == 2 && line[0] == '\r');
	if (blank && k->reply->status >= 200)
		call->ops->on_head(call, k->reply->status, k->c->now_ns);
	return true;
}

static bool h1_body(void *ctx, const char *bytes, size_t n)
{
	struct load_conn *k = ctx;
	struct load_call *call = only_call(k);
	call->ops->on_data(call, (const uint8_t *)bytes, n, k->c->now_ns);
	return true;
}

static int h1_open(struct load_conn *k)
{
	k->reply = sl_zalloc(sizeof *k->reply);
	if (k->reply == NULL)
		return SL_ENOMEM;
	http1_read_init(k->reply, H1_LINES_MAX);
	k->reply->on_line = h1_line;
	k->reply->on_body = h1_body;
	k->reply->ctx = k;
	return 0;
}

/* Ends the call of a complete reply. The connection is free or closed before on_end. */
static void h1_finish(struct load_conn *k)
{
	struct load_call *call = only_call(k);
	list_remove(&call->node);
	call->conn = NULL;
	uint64_t now = k->c->now_ns;
	if (k->ends)
		reset(k, NULL);
	call->ops->on_end(call, LOAD_DONE, now);
}

/* False: the connection has ended; k may already be in use again. */
static bool h1_input(struct load_conn *k, const uint8_t *bytes, size_t n)
{
	size_t used;
	if (only_call(k) == NULL) {
		broken(k, "the server sent data without a request");
		return false;
	}
	enum http1_result r = http1_read_feed(k->reply, (const char *)bytes, n, &used);
	if (r == HTTP1_READ_MORE)
		return true;
	if (r != HTTP1_READ_DONE) {
		broken(k, "the reply is not HTTP/1.1");
		return false;
	}
	bool keep = http1_read_keeps(k->reply) && used == n;
	k->ends = !keep;
	h1_finish(k);
	return keep;
}

/* ---- input and output ---- */

static void want_write(struct load_conn *k, bool on)
{
	if (on == k->want_write)
		return;
	k->want_write = on;
	if (on)
		event_add(k->writable, NULL);
	else
		event_del(k->writable);
}

/* Bytes written; 0: the socket is full; negative: it is broken. */
static ssize_t write_some(struct load_conn *k)
{
	size_t n = 0;
	if (k->ssl != NULL) {
		ERR_clear_error();
		if (SSL_write_ex(k->ssl, buf_data(&k->out), k->out.len, &n) == 1)
			return (ssize_t)n;
		int e = SSL_get_error(k->ssl, 0);
		return e == SSL_ERROR_WANT_WRITE || e == SSL_ERROR_WANT_READ ? 0 : -1;
	}
	ssize_t put = send(k->fd, buf_data(&k->out), k->out.len, MSG_NOSIGNAL);
	return put >= 0 ? put : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* Moves the session's output to k->out. False: the session failed. */
static bool fill(struct load_conn *k)
{
	while (k->session != NULL && k->out.len < FILL_BYTES) {
		const uint8_t *data;
		k->inside = true;
		ssize_t n = nghttp2_session_mem_send(k->session, &data);
		k->inside = false;
		if (n == 0)
			break;
		if (n < 0 || buf_append(&k->out, data, (size_t)n) != 0)
			return false;
	}
	return true;
}

static void flush(struct load_conn *k)
{
	list_remove(&k->dirty);
	if (k->state != CONN_UP)
		return;
	for (;;) {
		if (!fill(k)) {
			broken(k, "the protocol failed");
			return;
		}
		if (k->out.len == 0)
			break;
		ssize_t n = write_some(k);
		if (n < 0) {
			broken(k, "the connection was closed while a request was written");
			return;
		}
		if (n == 0) {
			want_write(k, true);
			return;
		}
		buf_consume(&k->out, (size_t)n);
	}
	buf_clear(&k->out, OUT_KEEP);
	want_write(k, false);
	if (k->session != NULL && !nghttp2_session_want_read(k->session) && !nghttp2_session_want_write(k->session))
		broken(k, "the server ended the session");
}

/* Bytes read; 0: none available; negative: the connection ended, for the reason *why. */
static ssize_t read_some(struct load_conn *k, const char **why)
{
	*why = "the connection was closed";
	if (k->ssl != NULL) {
		size_t n = 0;
		ERR_clear_error();
		if (SSL_read_ex(k->ssl, k->c->read, READ_BYTES, &n) == 1)
			return (ssize_t)n;
		int e = SSL_get_error(k->ssl, 0);
		return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE ? 0 : -1;
	}
	ssize_t n = recv(k->fd, k->c->read, READ_BYTES, 0);
	if (n > 0)
		return n;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		*why = strerror(errno);
	return -1;
}

static void on_eof(struct load_conn *k, const char *why)
{
	if (k->reply != NULL && only_call(k) != NULL && http1_read_closed(k->reply)) {
		k->ends = true;
		h1_finish(k);
		return;
	}
	broken(k, why);
}

/* Moves input from the socket into OpenSSL. An error is ignored here: read_all gets it again. */
static void take(struct load_conn *k)
{
	uint8_t first;
	size_t n;
	if (!list_empty(&k->came))
		return;
	ERR_clear_error();
	SSL_peek_ex(k->ssl, &first, 1, &n);
	k->came_ns = clock_now_ns();
	list_push_back(&k->c->came, &k->came);
	k->c->n_readable++;
}

static void read_all(struct load_conn *k)
{
	struct load_client *c = k->c;
	/* TLS: reads all that OpenSSL holds, because no event would announce the rest. */
	for (int i = 0; i < READS_PER_TURN || (k->ssl != NULL && SSL_has_pending(k->ssl)); i++) {
		const char *why;
		bool taken = k->ssl != NULL && SSL_has_pending(k->ssl);
		ssize_t n = read_some(k, &why);
		c->now_ns = taken ? k->came_ns : clock_now_ns();
		if (n < 0) {
			on_eof(k, why);
			return;
		}
		if (n == 0)
			break;
		if (!(k->session == NULL ? h1_input(k, c->read, (size_t)n) : h2_input(k, c->read, (size_t)n)))
			return;
		if (k->ssl == NULL && n < READ_BYTES)
			break;
	}
	schedule(k);
}

/* ---- connecting ---- */

static void up(struct load_conn *k)
{
	k->state = CONN_UP;
	k->c->n_up++;
	want_write(k, false);
	event_add(k->readable, NULL);
	schedule(k);
}

static bool chose_h2(const SSL *ssl)
{
	const unsigned char *name;
	unsigned n;
	SSL_get0_alpn_selected(ssl, &name, &n);
	return n == 2 && memcmp(name, "h2", 2) == 0;
}

static void handshake(struct load_conn *k)
{
	ERR_clear_error();
	int r = SSL_do_handshake(k->ssl);
	int e = r == 1 ? SSL_ERROR_NONE : SSL_get_error(k->ssl, r);
	if (r == 1 && !k->c->target.http1 && !chose_h2(k->ssl)) {
		broken(k, "the server does not speak HTTP/2 over TLS");
	} else if (r == 1) {
		up(k);
	} else if (e == SSL_ERROR_WANT_READ) {
		want_write(k, false);
		event_add(k->readable, NULL);
	} else if (e == SSL_ERROR_WANT_WRITE) {
		want_write(k, true);
	} else {
		const char *reason = ERR_reason_error_string(ERR_peek_error());
		char why[WHY_BYTES];
		snprintf(why, sizeof why, "TLS: %.150s", reason != NULL ? reason : "the connection was closed");
		broken(k, why);
	}
}

static void connected(struct load_conn *k)
{
	int e = 0;
	socklen_t n = sizeof e;
	getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &e, &n);
	if (e != 0) {
		broken(k, strerror(e));
	} else if (k->ssl != NULL) {
		k->state = CONN_HANDSHAKE;
		handshake(k);
	} else {
		up(k);
	}
}

static void on_socket(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	struct load_conn *k = ctx;
	if (k->state == CONN_CONNECTING)
		connected(k);
	else if (k->state == CONN_HANDSHAKE)
		handshake(k);
	else if (what & EV_READ && k->ssl != NULL)
		take(k);
	else if (what & EV_READ)
		read_all(k);
	else
		schedule(k);
}

static int open_tls(struct load_conn *k)
{
	const struct load_target *t = &k->c->target;
	k->ssl = SSL_new(k->c->ssl);
	if (k->ssl == NULL || SSL_set_fd(k->ssl, k->fd) != 1)
		return SL_ENOMEM;
	SSL_set_connect_state(k->ssl);
	SSL_set_tlsext_host_name(k->ssl, t->host);
	return SSL_set1_host(k->ssl, t->host) == 1 ? 0 : SL_ENOMEM;
}

/* CLOSED → CONNECTING. The next turn reports even an immediate refusal. */
static int open_conn(struct load_conn *k)
{
	struct load_client *c = k->c;
	const int one = 1;
	k->fd = socket(c->target.addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (k->fd < 0)
		return SL_EIO;
	setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	k->state = CONN_CONNECTING;
	int rc = c->target.tls ? open_tls(k) : 0;
	if (rc == 0 && !c->target.http1)
		rc = h2_open(k);
	if (rc == 0 && c->target.http1)
		rc = h1_open(k);
	k->readable = event_new(c->base, k->fd, EV_READ | EV_PERSIST, on_socket, k);
	k->writable = event_new(c->base, k->fd, EV_WRITE | EV_PERSIST, on_socket, k);
	if (k->readable == NULL || k->writable == NULL)
		rc = SL_ENOMEM;
	if (rc == 0 && connect(k->fd, (const struct sockaddr *)&c->target.addr, c->target.addr_bytes) != 0 &&
	    errno != EINPROGRESS) {
		snprintf(c->why, sizeof c->why, "%s", strerror(errno));
		rc = SL_EIO;
	}
	if (rc != 0)
		reset(k, NULL);
	else
		want_write(k, true);
	return rc;
}

/* ---- the client ---- */

static SSL_CTX *make_tls(const struct load_target *t, struct sl_err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	if (ctx == NULL)
		return NULL;
	static const unsigned char h2[] = "\x02h2", h1[] = "\x08http/1.1";
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, 64 << 10);
	SSL_CTX_set_alpn_protos(ctx, t->http1 ? h1 : h2, t->http1 ? sizeof h1 - 1 : sizeof h2 - 1);
	if (!t->verify)
		return ctx;
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	int ok = t->ca_file != NULL ? SSL_CTX_load_verify_locations(ctx, t->ca_file, NULL)
				    : SSL_CTX_set_default_verify_paths(ctx);
	if (ok == 1)
		return ctx;
	sl_errf(err, SL_EIO, "%s: no usable certificates", t->ca_file != NULL ? t->ca_file : "the system's store");
	SSL_CTX_free(ctx);
	return NULL;
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what, (void)ctx; /* the event only ends the wait */
}

static int make_loop(struct load_client *c)
{
	struct event_config *cfg = event_config_new();
	if (cfg == NULL)
		return SL_ENOMEM;
	event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
	c->base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	c->timer = c->base != NULL ? evtimer_new(c->base, on_timer, c) : NULL;
	return c->timer != NULL ? 0 : SL_ENOMEM;
}

int load_client_create(const struct load_target *target, int n_conns, struct load_client **out, struct sl_err *err)
{
	struct load_client *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	c->target = *target;
	list_init(&c->dirty);
	list_init(&c->came);
	sl_errf(err, SL_ENOMEM, "out of memory");
	c->conns = sl_zalloc_n((size_t)n_conns, sizeof *c->conns);
	if (c->conns == NULL || make_loop(c) != 0 || nghttp2_session_callbacks_new(&c->callbacks) != 0 ||
	    (target->tls && (c->ssl = make_tls(target, err)) == NULL)) {
		load_client_destroy(c);
		return SL_ENOMEM;
	}
	nghttp2_session_callbacks_set_on_header_callback(c->callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c->callbacks, on_data_chunk);
	nghttp2_session_callbacks_set_on_stream_close_callback(c->callbacks, on_stream_close);
	c->n_conns = n_conns;
	for (int i = 0; i < n_conns; i++) {
		struct load_conn *k = &c->conns[i];
		k->c = c;
		k->fd = -1;
		list_init(&k->calls);
		list_init(&k->dirty);
		list_init(&k->came);
		buf_init(&k->out, OUT_MAX);
	}
	*out = c;
	return 0;
}

void load_client_destroy(struct load_client *c)
{
	if (c == NULL)
		return;
	for (int i = 0; i < c->n_conns; i++) {
		reset(&c->conns[i], NULL);
		buf_dispose(&c->conns[i].out);
	}
	if (c->timer != NULL)
		event_free(c->timer);
	if (c->base != NULL)
		event_base_free(c->base);
	if (c->callbacks != NULL)
		nghttp2_session_callbacks_del(c->callbacks);
	SSL_CTX_free(c->ssl);
	sl_free(c->conns);
	sl_free(c);
}

int load_client_connect(struct load_client *c, int conn)
{
	return c->conns[conn].state == CONN_CLOSED ? open_conn(&c->conns[conn]) : 0;
}

int load_client_n_up(const struct load_client *c) { return c->n_up; }
const char *load_client_why(const struct load_client *c) { return c->why; }

int load_client_start(struct load_client *c, int conn, struct load_call *call, const char *path, const char *key,
		      const char *body, size_t n_body)
{
	struct load_conn *k = &c->conns[conn];
	char whole[1024], bearer[1024] = "";
	if (c->target.http1 && !list_empty(&k->calls))
		return SL_ELIMIT;
	if (k->session != NULL && !nghttp2_session_check_request_allowed(k->session)) {
		if (!list_empty(&k->calls) || k->inside)
			return SL_ECLOSED;
		reset(k, NULL);
	}
	int rc = load_client_connect(c, conn);
	if (rc != 0)
		return rc;
	snprintf(whole, sizeof whole, "%s%s", c->target.path, path);
	if (key != NULL)
		snprintf(bearer, sizeof bearer, "Bearer %s", key);
	call->body = body;
	call->n_body = n_body;
	call->body_at = 0;
	rc = k->session != NULL ? h2_start(k, call, whole, bearer) : 0;
	if (rc != 0)
		return rc;
	call->conn = k;
	list_push_back(&k->calls, &call->node);
	rc = k->session == NULL ? h1_start(k, call, whole, bearer) : 0;
	schedule(k);
	return rc;
}

static void flush_all(struct load_client *c)
{
	while (!list_empty(&c->dirty))
		flush(list_entry(c->dirty.next, struct load_conn, dirty));
}

/* Also collects input that arrives meanwhile, before any of it is read. The number of passes is bounded, so a server
 * that never stops sending cannot prevent reading. */
static void look(struct load_client *c, int how)
{
	for (int i = 0; i < LOOKS_PER_TURN; i++) {
		c->n_readable = 0;
		event_base_loop(c->base, how);
		if (c->n_readable == 0)
			return;
		how = EVLOOP_ONCE | EVLOOP_NONBLOCK;
	}
}

void load_client_turn(struct load_client *c, uint64_t until_ns)
{
	flush_all(c);
	uint64_t now = clock_now_ns(), us = until_ns > now ? (until_ns - now) / 1000 : 0;
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	if (us > 0)
		event_add(c->timer, &tv);
	look(c, EVLOOP_ONCE | (us > 0 ? 0 : EVLOOP_NONBLOCK));
	while (!list_empty(&c->came)) {
		struct load_conn *k = list_entry(c->came.next, struct load_conn, came);
		list_remove(&k->came);
		read_all(k);
	}
	flush_all(c);
}
