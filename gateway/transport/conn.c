/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's life: handshake or protocol detection, reading, one flush per loop iteration, an orderly end.
 *
 * Output is gathered: all events of a connection's streams in one loop iteration become one call of the protocol's
 * fill, one TLS write and one send. On the event path this measured six times faster than a write per event. When
 * one loop event feeds many streams (the engine's frames), each connection is written once, after all its streams
 * (gw_run_output). Each connection writes at most FLUSH_BYTES per iteration, so endless output cannot starve others.
 *
 * Backpressure: `pending` holds what the socket did not take, at most one iteration's output. While it is not empty
 * the protocol is not asked for more. Reading stops while output is blocked and more than limits.output_bytes wait,
 * so a peer that sends and never reads cannot grow memory.
 *
 * Protocol callbacks and the application run inside three entries (readable, flush, deadline) and must not close the
 * connection. They set `doomed` or `finish`, which take effect when they return. conn_close unlinks at once and
 * frees at the end of the iteration.
 *
 * A TLS handshake costs a thousand times an event, and any peer may start one. At most limits.handshakes_per_turn
 * handshake reads run per iteration; the others queue with their sockets unread. A flood of handshakes delays
 * handshakes only, not streams.
 *
 * Ownership: the transport's list owns connections; a connection owns its socket, TLS state and protocol state.
 * Thread: the transport's.
 */
#include "gateway/transport/conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/metrics.h"
#include "gateway/transport/client_limits.h"
#include "gateway/transport/http_stream.h"
#include "gateway/transport/listener.h"
#include "gateway/transport/proxy_header.h"
#include "gateway/transport/tls.h"

enum {
	FLUSH_BYTES = 65536,    /* plain bytes per connection and iteration */
	PENDING_MAX = 8 << 20,  /* never reached: a flush with its frames and records is smaller */
	LINGER_BYTES = 1 << 20, /* discarded after our end, in addition to a whole body */
	READS_PER_TURN = 2,
};

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE_LINE_BYTES = 16 }; /* "PRI * HTTP/2.0" and CR LF, which no other protocol begins with */

#define CONNECTIONS(proto)                                                        \
	METRIC_OF(METRIC_GAUGE, "sluice_http_connections", "proto=\"" proto "\"", \
		  "Open connections with a known protocol.")
static struct metric connections[] = {CONNECTIONS("http/1.1"), CONNECTIONS("h2")};
METRICS(connections);
#define TIMEOUT(phase)                                                                 \
	METRIC_OF(METRIC_COUNTER, "sluice_http_timeouts_total", "phase=\"" phase "\"", \
		  "Connections and streams ended by a deadline.")
static struct metric timeouts[] = {
    [TIMEOUT_HANDSHAKE] = TIMEOUT("handshake"), [TIMEOUT_HEADER] = TIMEOUT("header"),
    [TIMEOUT_BODY] = TIMEOUT("body"),           [TIMEOUT_IDLE] = TIMEOUT("idle"),
    [TIMEOUT_STALL] = TIMEOUT("stall"),         [TIMEOUT_OUTPUT] = TIMEOUT("output"),
    [TIMEOUT_RESPONSE] = TIMEOUT("response"),   [TIMEOUT_PROXY] = TIMEOUT("proxy"),
};
METRICS(timeouts);
#define HANDSHAKES(var, result) \
	METRIC(var, METRIC_COUNTER, "sluice_tls_handshakes_total", "result=\"" result "\"", "TLS handshakes by result.")
HANDSHAKES(handshakes_full, "full");
HANDSHAKES(handshakes_resumed, "resumed");
HANDSHAKES(handshakes_failed, "failed");
COUNTER(handshakes_delayed, "sluice_tls_handshakes_delayed_total",
	"TLS handshakes that waited for a later loop iteration.");
#define PROXY_REJECTED(var, why)                                                                 \
	METRIC(var, METRIC_COUNTER, "sluice_proxy_headers_rejected_total", "reason=\"" why "\"", \
	       "Connections closed for a malformed or untrusted PROXY header.")
PROXY_REJECTED(proxy_malformed, "malformed");
PROXY_REJECTED(proxy_untrusted, "untrusted");

void conn_count_timeout(enum conn_timeout phase) { metric_add(&timeouts[phase], 1); }

static struct metric *connections_of(const struct conn *c) { return &connections[c->proto == &h2_proto]; }

static void conn_set_state(struct conn *c, enum conn_state to)
{
	enum conn_state from = c->state;
	BUG_IF(from == CONN_CLOSED, "a closed connection moves to state %d", (int)to);
	BUG_IF(to <= from, "a connection moves from state %d to %d", (int)from, (int)to);
	c->state = to;
}

/* ---- events ---- */

static void want(struct conn *c, struct event *ev, bool *is_on, bool on)
{
	if (on == *is_on)
		return;
	if (on ? event_add(ev, NULL) != 0 : event_del(ev) != 0)
		conn_doom(c, HTTP_CLOSE_ERROR);
	else
		*is_on = on;
}

static void want_read(struct conn *c, bool on) { want(c, &c->ev_read, &c->read_on, on); }
static void want_write(struct conn *c, bool on) { want(c, &c->ev_write, &c->write_on, on); }

static bool too_much_waits(const struct conn *c)
{
	if (c->pending.len == 0)
		return false;
	size_t queued = c->proto != NULL && c->proto->queued != NULL ? c->proto->queued((struct conn *)c) : 0;
	return c->pending.len + queued > c->tr->t->cfg->limits.output_bytes;
}

/* Input after our end is discarded up to a bound; the rest stays unread until the deadline. Closing earlier would reset
 * the connection, and a client that is still sending would lose a final GOAWAY or 413 that it has not read. */
static bool lingered_enough(const struct conn *c)
{
	return c->lingered > LINGER_BYTES + c->tr->t->cfg->limits.body_bytes;
}

/* ---- life ---- */

static void free_conn(struct gw_deferred *d)
{
	struct conn *c = list_entry(d, struct conn, flush);
	tls_conn_destroy(c->tls);
	buf_dispose(&c->pending);
	buf_dispose(&c->proxy_head);
	if (c->kept != NULL)
		c->kept->dispose(c->kept);
	sl_free(c->subject);
	sl_free(c);
}

static void detach_proto(struct conn *c, enum http_close_reason why)
{
	if (c->proto == NULL)
		return;
	metric_add(connections_of(c), -1);
	c->proto->destroy(c, why);
	c->proto = NULL;
	BUG_IF(!list_empty(&c->streams), "a connection without protocol has streams");
}

void conn_close(struct conn *c, enum http_close_reason why)
{
	struct gw_transport *tr = c->tr;
	detach_proto(c, why);
	stream_drop_holds(c);
	conn_set_state(c, CONN_CLOSED);
	event_del(&c->ev_read);
	event_del(&c->ev_write);
	close(c->fd);
	c->fd = -1;
	deadline_cancel(&c->deadline);
	deadline_cancel(&c->stall);
	list_remove(&c->node);
	list_remove(&c->shaking);
	admit_conn_end(c);
	tr->n_conns--;
	gw_defer_cancel(&c->flush);
	c->flush.run = free_conn;
	gw_defer(tr->t, &c->flush);
}

void conn_schedule(struct conn *c)
{
	if (c->state != CONN_CLOSED)
		gw_defer_output(c->tr->t, &c->flush);
}

void conn_finish(struct conn *c)
{
	c->finish = true;
	conn_schedule(c);
}

void conn_doom(struct conn *c, enum http_close_reason why)
{
	if (!c->doomed) {
		c->doomed = true;
		c->doom = why;
	}
	conn_schedule(c);
}

static void on_deadline(struct deadline *d)
{
	struct conn *c = list_entry(d, struct conn, deadline);
	if (c->state == CONN_OPEN && c->proto != NULL) {
		c->proto->on_deadline(c);
		return;
	}
	if (c->state < CONN_OPEN)
		conn_count_timeout(c->state == CONN_PROXY       ? TIMEOUT_PROXY
				   : c->state == CONN_HANDSHAKE ? TIMEOUT_HANDSHAKE
								: TIMEOUT_HEADER);
	conn_close(c, HTTP_CLOSE_TIMEOUT);
}

static void on_stall(struct deadline *d)
{
	conn_count_timeout(TIMEOUT_OUTPUT);
	conn_close(list_entry(d, struct conn, stall), HTTP_CLOSE_TIMEOUT);
}

static int attach(struct conn *c, const struct conn_proto *proto)
{
	int rc = proto == &h2_proto ? h2_attach(c) : h1_attach(c);
	if (rc != 0)
		return rc;
	c->proto = proto;
	metric_add(connections_of(c), 1);
	conn_set_state(c, CONN_OPEN);
	if (c->tr->draining)
		proto->drain(c);
	return 0;
}

void conn_drain(struct conn *c)
{
	/* A connection in its handshake was accepted before the drain, so it may finish and send its request. */
	if (c->state == CONN_OPEN)
		c->proto->drain(c);
}

/* ---- output ---- */

/* Handles a socket error. TCP_USER_TIMEOUT (listener.c) may expire just before our own limit. */
static void peer_gone(struct conn *c, int error)
{
	if (error == ETIMEDOUT && c->pending.len > 0)
		conn_count_timeout(TIMEOUT_OUTPUT);
	conn_doom(c, error == ETIMEDOUT ? HTTP_CLOSE_TIMEOUT : HTTP_CLOSE_PEER);
}

/* Sends what the socket takes. 0, or negative: the connection is lost. */
static int send_some(struct conn *c, const uint8_t *data, size_t n, size_t *sent)
{
	*sent = 0;
	while (*sent < n) {
		ssize_t m = -1;
		if (fault_hit(FAULT_WRITE))
			errno = EPIPE;
		else
			m = send(c->fd, data + *sent, n - *sent, MSG_NOSIGNAL);
		if (m < 0 && errno == EINTR)
			continue;
		if (m < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (m < 0) {
			peer_gone(c, errno);
			return SL_ECLOSED;
		}
		*sent += (size_t)m;
	}
	return 0;
}

static int send_pending(struct conn *c)
{
	size_t sent;
	int rc = send_some(c, buf_data(&c->pending), c->pending.len, &sent);
	if (rc != 0)
		return rc;
	buf_consume(&c->pending, sent);
	if (c->pending.len == 0) {
		buf_clear(&c->pending, 0);
		deadline_cancel(&c->stall);
	} else if (sent > 0) {
		deadline_arm(&c->tr->stall, &c->stall, gw_now(c->tr->t));
	}
	return 0;
}

/* Sends wire and appends the rest to pending. */
static int send_wire(struct conn *c, const struct sl_buf *wire)
{
	size_t sent = 0;
	if (wire->len == 0)
		return 0;
	if (c->pending.len == 0) {
		int rc = send_some(c, buf_data(wire), wire->len, &sent);
		if (rc != 0)
			return rc;
	}
	if (sent == wire->len)
		return 0;
	if (c->pending.len == 0)
		deadline_arm(&c->tr->stall, &c->stall, gw_now(c->tr->t));
	return buf_append(&c->pending, buf_data(wire) + sent, wire->len - sent);
}

/* Shuts our side and keeps reading for a while. Otherwise the kernel would answer late input with a reset, which
 * destroys output that the peer has not read yet. */
static int begin_linger(struct conn *c)
{
	struct gw_transport *tr = c->tr;
	if (c->tls != NULL) {
		buf_clear(&tr->wire, SIZE_MAX);
		tls_shutdown(c->tls, &tr->wire);
		int rc = send_wire(c, &tr->wire);
		if (rc != 0 || c->pending.len > 0)
			return rc != 0 ? rc : SL_ECLOSED;
	}
	if (c->eof || shutdown(c->fd, SHUT_WR) != 0)
		return SL_ECLOSED;
	detach_proto(c, HTTP_CLOSE_ERROR);
	conn_set_state(c, CONN_LINGER);
	deadline_arm(&tr->linger, &c->deadline, clock_now_ns());
	want_read(c, true);
	return 0;
}

/* The rest of the connection's FLUSH_BYTES in this iteration. */
static size_t room_left(struct conn *c)
{
	uint64_t turn = c->tr->t->turn;
	if (c->filled_turn != turn) {
		c->filled_turn = turn;
		c->filled = 0;
	}
	return c->filled < FLUSH_BYTES ? FLUSH_BYTES - c->filled : 0;
}

/* One gathered write. *more: the protocol has more output. 0, or negative: close. */
static int write_out(struct conn *c, bool *more)
{
	struct gw_transport *tr = c->tr;
	*more = false;
	if (c->pending.len > 0) {
		int rc = send_pending(c);
		if (rc != 0 || c->pending.len > 0)
			return rc;
	}
	if (c->proto == NULL)
		return 0;
	size_t room = room_left(c);
	*more = room == 0;
	if (room == 0)
		return 0;
	buf_clear(&tr->plain, SIZE_MAX);
	int rc = c->proto->fill(c, &tr->plain, room, more);
	c->filled += tr->plain.len;
	/* Output from before an error (a GOAWAY) is sent too. */
	struct sl_buf *wire = &tr->plain;
	if (c->tls != NULL && tr->plain.len > 0) {
		wire = &tr->wire;
		buf_clear(wire, SIZE_MAX);
		int enc = tls_output(c->tls, buf_data(&tr->plain), tr->plain.len, wire);
		if (enc != 0)
			return enc;
	}
	int sent = send_wire(c, wire);
	return rc != 0 ? rc : sent;
}

static void flush_conn(struct gw_deferred *d)
{
	struct conn *c = list_entry(d, struct conn, flush);
	if (c->state == CONN_LINGER) {
		if (c->doomed)
			conn_close(c, c->doom);
		return;
	}
	bool more;
	int rc = write_out(c, &more);
	if (c->doomed || rc != 0) {
		conn_close(c, c->doomed ? c->doom : rc == SL_ECLOSED ? HTTP_CLOSE_PEER : HTTP_CLOSE_ERROR);
		return;
	}
	bool blocked = c->pending.len > 0;
	if (!blocked && !more && (c->finish || c->eof)) {
		/* A peer that has shut its side counts as disconnected, even if it still reads. */
		if (c->eof || begin_linger(c) != 0) {
			conn_close(c, c->eof ? HTTP_CLOSE_PEER : HTTP_CLOSE_ERROR);
			return;
		}
		want_write(c, false);
		return;
	}
	if (c->finish && c->state < CONN_FINISHING)
		conn_set_state(c, CONN_FINISHING);
	want_write(c, blocked || more);
	want_read(c, !c->eof && !too_much_waits(c) && !lingered_enough(c) && list_empty(&c->shaking));
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	conn_schedule(arg);
}

/* ---- input ---- */

/* Cleartext: HTTP/2 begins with its preface, anything else is HTTP/1.1. A client that has sent the preface's first line
 * speaks HTTP/2, so errors in the rest are reported in HTTP/2 (RFC 9113 3.4). */
static int detect(struct conn *c, const uint8_t *data, size_t n)
{
	size_t used = 0;
	while (used < n && c->n_preface < CONN_PREFACE_BYTES && data[used] == (uint8_t)preface[c->n_preface])
		c->preface[c->n_preface++] = data[used++];
	if (used == n && c->n_preface < CONN_PREFACE_BYTES)
		return 0;
	int rc = attach(c, c->n_preface >= PREFACE_LINE_BYTES ? &h2_proto : &h1_proto);
	if (rc == 0 && c->n_preface > 0)
		rc = c->proto->on_input(c, c->preface, c->n_preface);
	if (rc == 0 && n > used && !c->doomed && !c->finish)
		rc = c->proto->on_input(c, data + used, n - used);
	return rc;
}

static int plain_input(struct conn *c, const uint8_t *data, size_t n)
{
	if (n == 0 || c->doomed || c->finish)
		return 0;
	if (c->state == CONN_DETECT)
		return detect(c, data, n);
	return c->proto->on_input(c, data, n);
}

/* The input begins with a letter, as a method does; a TLS record begins with 22 and an SSL 2 record above 127. The
 * client gets a cleartext error response, which it can read. */
static int cleartext_on_tls_port(struct conn *c, const uint8_t *data, size_t n)
{
	metric_add(&handshakes_failed, 1);
	tls_conn_destroy(c->tls);
	c->tls = NULL;
	c->wants_tls = true;
	int rc = attach(c, &h1_proto);
	return rc != 0 ? rc : plain_input(c, data, n);
}

static int tls_bytes(struct conn *c, const uint8_t *data, size_t n)
{
	if (n > 0 && data[0] >= 'A' && data[0] <= 'Z' && tls_is_untouched(c->tls))
		return cleartext_on_tls_port(c, data, n);
	struct gw_transport *tr = c->tr;
	size_t n_text;
	bool eof = false;
	buf_clear(&tr->wire, SIZE_MAX);
	int rc = tls_input(c->tls, data, n, tr->text_buf, TRANSPORT_TEXT_BYTES, &n_text, &eof, &tr->wire);
	int sent = send_wire(c, &tr->wire);
	if (rc != 0 && c->state == CONN_HANDSHAKE)
		metric_add(&handshakes_failed, 1);
	if (rc != 0 || sent != 0)
		return rc != 0 ? rc : sent;
	if (c->state == CONN_HANDSHAKE && tls_handshake_done(c->tls)) {
		metric_add(tls_resumed(c->tls) ? &handshakes_resumed : &handshakes_full, 1);
		if (c->client_certs != GW_CLIENT_CERTS_NONE)
			c->subject = tls_peer_subject(c->tls);
		rc = attach(c, tls_chose_h2(c->tls) ? &h2_proto : &h1_proto);
		if (rc != 0)
			return rc;
	}
	rc = plain_input(c, tr->text_buf, n_text);
	c->eof = c->eof || eof;
	return rc;
}

/* Reads the PROXY header. *used: how many of these n bytes belong to it. SL_ECLOSED: malformed, or over a limit. */
static int proxy_input(struct conn *c, const uint8_t *data, size_t n, size_t *used)
{
	struct sl_buf *b = &c->proxy_head;
	struct proxy_header h;
	size_t before = b->len, room = PROXY_HEADER_MAX - before;
	enum proxy_result r;
	*used = n;
	if (before == 0) {
		r = proxy_header_parse(data, n, &h);
	} else {
		if (buf_append(b, data, n < room ? n : room) != 0)
			return SL_ENOMEM;
		r = proxy_header_parse(buf_data(b), b->len, &h);
	}
	if (r == PROXY_MORE)
		return before == 0 ? buf_append(b, data, n) : 0;
	if (r == PROXY_BAD) {
		metric_add(&proxy_malformed, 1);
		return SL_ECLOSED;
	}
	*used = h.used - before;
	buf_dispose(b);
	buf_init(b, PROXY_HEADER_MAX);
	if (h.known) {
		c->addr = h.client;
		net_addr_print(&c->addr, c->peer);
	}
	conn_set_state(c, c->tls != NULL ? CONN_HANDSHAKE : CONN_DETECT);
	deadline_arm(c->tls != NULL ? &c->tr->handshake : &c->tr->header, &c->deadline, clock_now_ns());
	return admit_conn(c) == 0 ? 0 : SL_ECLOSED;
}

static int input(struct conn *c, const uint8_t *data, size_t n)
{
	if (c->state == CONN_PROXY) {
		size_t used;
		int rc = proxy_input(c, data, n, &used);
		if (rc != 0 || used == n)
			return rc;
		data += used;
		n -= used;
	}
	if (c->state == CONN_LINGER || c->state == CONN_FINISHING) {
		c->lingered += n;
		if (lingered_enough(c))
			want_read(c, false);
		return 0;
	}
	return c->tls != NULL ? tls_bytes(c, data, n) : plain_input(c, data, n);
}

static void read_some(struct conn *c)
{
	int rc = 0;
	gw_read_clock(c->tr->t);
	for (int i = 0; i < READS_PER_TURN && rc == 0 && !c->eof && !c->doomed; i++) {
		ssize_t n = -1;
		if (fault_hit(FAULT_READ))
			errno = ECONNRESET;
		else
			n = recv(c->fd, c->tr->read_buf, TRANSPORT_READ_BYTES, 0);
		if (n < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
				peer_gone(c, errno);
			break;
		}
		if (n == 0)
			c->eof = true;
		else
			rc = input(c, c->tr->read_buf, (size_t)n);
		if (n < TRANSPORT_READ_BYTES)
			break;
	}
	if (rc == SL_EPROTO)
		conn_finish(c); /* the final alert or GOAWAY must go out */
	else if (rc != 0)
		conn_doom(c, rc == SL_ECLOSED ? HTTP_CLOSE_PEER : HTTP_CLOSE_ERROR);
	if (c->state == CONN_LINGER && (c->eof || c->doomed)) {
		conn_close(c, HTTP_CLOSE_DONE);
		return;
	}
	conn_schedule(c);
}

/* ---- handshakes, a few per iteration ---- */

static void await_next_iteration(struct gw_transport *tr)
{
	static const struct timeval now = {0};
	if (!evtimer_pending(tr->shake_turn, NULL))
		event_add(tr->shake_turn, &now);
}

void conn_shake_turn(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct gw_transport *tr = arg;
	tr->shakes_left = tr->t->cfg->limits.handshakes_per_turn;
	while (tr->shakes_left > 0 && !list_empty(&tr->shaking)) {
		struct conn *c = list_entry(tr->shaking.next, struct conn, shaking);
		list_remove(&c->shaking);
		tr->shakes_left--;
		want_read(c, true);
		read_some(c);
	}
	if (!list_empty(&tr->shaking))
		await_next_iteration(tr);
}

/* May the handshake continue now? If not, the connection waits in `shaking`. */
static bool may_shake(struct conn *c)
{
	struct gw_transport *tr = c->tr;
	if (tr->t->cfg->limits.handshakes_per_turn == 0)
		return true;
	await_next_iteration(tr);
	if (tr->shakes_left > 0 && list_empty(&tr->shaking)) {
		tr->shakes_left--;
		return true;
	}
	want_read(c, false);
	if (list_empty(&c->shaking)) {
		metric_add(&handshakes_delayed, 1);
		list_push_back(&tr->shaking, &c->shaking);
	}
	return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct conn *c = arg;
	if (c->tls == NULL || c->state > CONN_HANDSHAKE || may_shake(c))
		read_some(c);
}

/* ---- the beginning ---- */

void conn_accept(struct gw_transport *tr, int fd, const struct listener_options *o, const struct net_addr *peer)
{
	struct conn *c = sl_zalloc(sizeof *c);
	if (c == NULL) {
		close(fd);
		return;
	}
	c->tr = tr;
	c->fd = fd;
	c->late = tr->draining;
	c->state = o->proxy ? CONN_PROXY : o->tls ? CONN_HANDSHAKE : CONN_DETECT;
	c->addr = *peer;
	c->client_certs = (uint8_t)o->client_certs;
	net_addr_print(peer, c->peer);
	list_init(&c->shaking);
	buf_init(&c->proxy_head, PROXY_HEADER_MAX);
	list_init(&c->streams);
	list_init(&c->holds);
	buf_init(&c->pending, PENDING_MAX);
	deadline_init(&c->deadline, on_deadline);
	deadline_init(&c->stall, on_stall);
	gw_defer_init(&c->flush, flush_conn);
	event_assign(&c->ev_read, tr->t->base, fd, EV_READ | EV_PERSIST, on_readable, c);
	event_assign(&c->ev_write, tr->t->base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
	if (o->proxy && !admit_proxy(c)) {
		metric_add(&proxy_untrusted, 1);
		close(fd);
		sl_free(c);
		return;
	}
	if ((!o->proxy && admit_conn(c) != 0) ||
	    (o->tls && (c->tls = tls_conn_create(tr->tls, o->client_certs)) == NULL)) {
		admit_conn_end(c);
		close(fd);
		sl_free(c);
		return;
	}
	list_push_back(&tr->conns, &c->node);
	tr->n_conns++;
	tr->last_number = tr->last_number < UINT32_MAX ? tr->last_number + 1 : 1;
	c->number = tr->last_number;
	deadline_arm(c->state == CONN_HANDSHAKE ? &tr->handshake : &tr->header, &c->deadline, clock_now_ns());
	want_read(c, true);
}
