/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 on a connection, by nghttp2: received frames, the life of streams, the connection's end. h2_out.c sends.
 *
 * The library does the framing, HPACK, flow control and the messaging checks of RFC 9113. This file and h2_guard.c
 * bound the abuse that it permits:
 *   - resets that a peer sends, and resets that it makes us send, together with invalid frames: a token bucket each;
 *     with an empty bucket the connection ends with ENHANCE_YOUR_CALM;
 *   - PING, SETTINGS, PRIORITY, GOAWAY, DATA without data, unknown frames, and WINDOW_UPDATE frames without DATA of
 *     ours: another bucket;
 *   - requests that the transport itself answers with an error (a head over the limit, a malformed target or authority,
 *     a body announced too large): each costs a stream, a decoded head and a response for a few bytes of HPACK; another
 *     bucket;
 *   - heads: name + value + 32 and the number of fields are counted while they are decoded. A head over the limit gets
 *     431; one far over it, also in bytes on the wire (the library buffers incomplete fields), ends the connection;
 *   - a HEADERS frame with an id below the newest one, which the library ignores: a ring of recent ids distinguishes a
 *     trailer from an illegal reopening;
 *   - output: while the socket is blocked (conn.c), nothing is drained from the library and nothing is read, so its own
 *     limits on unsent acknowledgements hold.
 *
 * A drain has two steps: GOAWAY with the highest id as a notice, then a PING; its response shows that the peer has seen
 * the notice, and GOAWAY with the last processed id follows.
 *
 * Invariants: nghttp2_session_mem_recv is called from on_input only, mem_send from there (before it) and from fill; a
 * stream object lives from begin_headers to stream_close, where the application learns of its end. Thread: the
 * connection's.
 */
#include "gateway/transport/h2_priv.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/transport/authority.h"

enum {
	QUEUED_ITEM_BYTES = 192, /* the approximate cost of an unsent frame inside the library */
	MAX_CONTINUATIONS = 4,
	MAX_SETTINGS = 16,
	STREAM_WINDOW = 65535,
};
static const uint8_t drain_ping[8] = "sl-drain";

struct h2_env {
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
};

#define ENDED(why)                                                                   \
	METRIC_OF(METRIC_COUNTER, "sluice_http2_goaway_total", "reason=\"" why "\"", \
		  "HTTP/2 connections the transport ended with an error.")
enum { END_RESETS, END_CONTROL, END_REFUSED, END_HEAD, END_STREAM_ID, END_PROTOCOL, END_N };
static struct metric ended[END_N] = {ENDED("resets"), ENDED("control_frames"), ENDED("refused"),
				     ENDED("head"),   ENDED("stream_id"),      ENDED("protocol")};
METRICS(ended);
COUNTER(refused, "sluice_http2_streams_refused_total", "HTTP/2 streams refused before they were processed.");

/* Ends the connection: GOAWAY goes out with the next fill, then conn_finish. */
static void end_with(struct h2 *h, uint32_t code, int why)
{
	if (h->ended)
		return;
	h->ended = true;
	metric_add(&ended[why], 1);
	nghttp2_session_terminate_session(h->session, code);
	conn_schedule(h->c);
}

static void charge(struct h2 *h, struct h2_bucket *b, int why)
{
	if (!h2_bucket_take(b, clock_now_ns()))
		end_with(h, NGHTTP2_ENHANCE_YOUR_CALM, why);
}

static void charge_control(struct h2 *h) { charge(h, &h->guard.control, END_CONTROL); }

/* Without open streams the connection ends at a deadline: soon while a drain waits for the peer's PING. */
static void arm_idle(struct h2 *h)
{
	struct gw_transport *tr = h->c->tr;
	if (list_empty(&h->c->streams))
		deadline_arm(h->draining && !h->drain_seen ? &tr->linger : &tr->idle, &h->c->deadline, gw_now(tr->t));
}

/* The second step of a drain. */
static void last_goaway(struct h2 *h)
{
	if (h->drain_seen)
		return;
	h->drain_seen = true;
	nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session),
			      NGHTTP2_NO_ERROR, NULL, 0);
	conn_schedule(h->c);
}

static struct http_stream *stream_of(nghttp2_session *session, int32_t id)
{
	return id == 0 ? NULL : nghttp2_session_get_stream_user_data(session, id);
}

/* ---- frames in ---- */

/* RFC 9113 5.1.1: an id below the newest opens no stream. It belongs to a trailer of a known stream, or is an error.
 * The library would ignore the frame. */
static void check_stream_id(struct h2 *h, int32_t id)
{
	if (!h2_guard_stream_id(&h->guard, id) && stream_of(h->session, id) == NULL)
		end_with(h, NGHTTP2_PROTOCOL_ERROR, END_STREAM_ID);
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
	(void)session;
	struct h2 *h = user;
	switch (hd->type) {
	case NGHTTP2_HEADERS:
		if (hd->stream_id > 0)
			check_stream_id(h, hd->stream_id);
		break;
	case NGHTTP2_DATA:
		if (hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM))
			charge_control(h);
		break;
	case NGHTTP2_RST_STREAM:
		/* The library's limit acts only after its GOAWAY has been sent; until then it would process a whole
		 * read of requests and resets. */
		charge(h, &h->guard.peer_resets, END_RESETS);
		break;
	case NGHTTP2_WINDOW_UPDATE:
		if (!h2_guard_update_due(&h->guard))
			charge_control(h);
		break;
	case NGHTTP2_CONTINUATION: break; /* limited by the library */
	default: /* also acknowledgements: few are expected */ charge_control(h); break;
	}
	/* Stops reading; the GOAWAY is queued. */
	return h->ended ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2 *h = user;
	struct conn *c = h->c;
	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	/* The library counts open streams; closed streams whose work has not stopped yet count too. */
	bool full = c->n_holds > 0 && c->n_streams + c->n_holds >= h->max_streams;
	struct http_stream *s = full ? NULL : stream_create(c, HTTP_2);
	if (s == NULL) {
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
		return 0;
	}
	s->id = frame->hd.stream_id;
	nghttp2_session_set_stream_user_data(session, s->id, s);
	h2_out_open(s);
	deadline_cancel(&c->deadline);
	deadline_arm(&c->tr->header, &s->recv, gw_now(c->tr->t));
	return 0;
}

static int pseudo_field(struct http_stream *s, const uint8_t *name, size_t n_name, const uint8_t *value, size_t n_value)
{
	struct http_head *head = s->head;
	/* Charged like any field, RFC 9113 6.5.2. */
	head->charged += n_name + n_value + 32;
	if (head->charged > s->conn->tr->t->cfg->limits.header_bytes)
		return SL_ELIMIT;
	if (n_name == 7 && memcmp(name, ":method", 7) == 0) {
		head->has_method = true;
		return http_head_text(s, value, n_value, &head->method);
	}
	if (n_name == 10 && memcmp(name, ":authority", 10) == 0) {
		if (!authority_is_valid((const char *)value, n_value)) {
			head->bad_authority = true;
			return SL_EINVAL;
		}
		head->has_authority = true;
		return http_head_text(s, value, n_value, &head->authority);
	}
	if (n_name == 5 && memcmp(name, ":path", 5) == 0)
		return http_head_target(s, value, n_value);
	return 0; /* :scheme; the library has checked the rest */
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
		     const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
	(void)flags;
	struct h2 *h = user;
	struct http_stream *s = stream_of(session, frame->hd.stream_id);
	if (s == NULL || frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	const struct gw_limits *lim = &h->c->tr->t->cfg->limits;
	if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
		/* A trailer: checked by the library, counted, dropped. */
		s->head->charged += n_name + n_value + 32;
		if (s->head->charged > H2_HEAD_OVER * lim->header_bytes) {
			end_with(h, NGHTTP2_ENHANCE_YOUR_CALM, END_HEAD);
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		}
		return 0;
	}
	if (n_name == 6 && memcmp(name, "origin", 6) == 0)
		http_head_origin(s, value, n_value);
	int rc = n_name > 0 && name[0] == ':' ? pseudo_field(s, name, n_name, value, n_value)
					      : http_head_add(s, name, n_name, value, n_value);
	if (rc != 0 && s->head_status == 0)
		s->head_status = rc == SL_ELIMIT ? 431 : rc == SL_EINVAL ? 400 : 503;
	if (s->head->charged > H2_HEAD_OVER * lim->header_bytes) {
		end_with(h, NGHTTP2_ENHANCE_YOUR_CALM, END_HEAD);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return 0;
}

static int64_t content_length(const struct http_request *r)
{
	const char *v = http_header(r, "content-length");
	int64_t n = 0;
	if (v == NULL)
		return -1;
	/* The library has checked that these are digits and that they agree with the body. */
	for (; *v >= '0' && *v <= '9'; v++)
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *v - '0', &n))
			return INT64_MAX;
	return n;
}

/* The length without the scheme's default port. */
static size_t authority_len(const struct http_request *r, const char *authority)
{
	size_t n = strlen(authority), n_port = r->tls ? 4 : 3;
	return n > n_port && strcmp(authority + n - n_port, r->tls ? ":443" : ":80") == 0 ? n - n_port : n;
}

/* Checks Host, if there is one: it must be well-formed and match :authority (RFC 9113 8.3.1). The library rejects a
 * second one. The error, or NULL. */
static const char *take_host(struct http_stream *s)
{
	const char *host = http_header(&s->req, "host"), *named = s->req.authority;
	if (host == NULL)
		return NULL;
	if (!authority_is_valid(host, strlen(host)))
		return "The header field Host is malformed.";
	if (named[0] == '\0') {
		s->req.authority = host;
		return NULL;
	}
	size_t n = authority_len(&s->req, host);
	return n == authority_len(&s->req, named) && strncasecmp(host, named, n) == 0
		   ? NULL
		   : "The header field Host differs from :authority.";
}

/* Fields with another value in each response: in HPACK's table they would only evict repeated fields and slow down the
 * search. */
static bool is_unique(const char *name)
{
	return name[0] == 'x' && (strcmp(name, "x-request-id") == 0 || strcmp(name, "x-sluice-stream-id") == 0 ||
				  strncmp(name, "x-ratelimit-re", 14) == 0);
}

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
			    is_unique(name) ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}

static void send_continue(struct h2 *h, struct http_stream *s)
{
	const nghttp2_nv nv = field(":status", "100");
	nghttp2_submit_headers(h->session, NGHTTP2_FLAG_NONE, s->id, NULL, &nv, 1, NULL);
}

/* The transport's response to an invalid request. */
static void refuse(struct h2 *h, struct http_stream *s, int status, const char *message)
{
	charge(h, &h->guard.refused, END_REFUSED);
	stream_error(s, status, message);
}

static const char *head_reason(const struct http_stream *s)
{
	if (s->head_status != 400)
		return http_reason(s->head_status);
	return s->head->bad_authority ? "The pseudo-header field :authority is malformed."
				      : "The pseudo-header field :path is malformed.";
}

static void request_complete(struct h2 *h, struct http_stream *s, bool end)
{
	s->head_done = true;
	s->req.has_body = !end;
	s->recv_done = end;
	deadline_cancel(&s->recv);
	if (s->head_status == 0 && !s->head->has_path)
		s->head_status = s->head->has_method ? 501 : 400; /* CONNECT has no path */
	if (s->head_status == 0 && http_head_complete(s) != 0)
		s->head_status = 503;
	if (s->head_status == 503) {
		stream_error(s, 503, http_reason(503));
		return;
	}
	if (s->head_status != 0) {
		refuse(h, s, s->head_status, head_reason(s));
		return;
	}
	const char *wrong = take_host(s);
	if (wrong != NULL) {
		refuse(h, s, 400, wrong);
		return;
	}
	s->req.content_length = content_length(&s->req);
	const char *expect = http_header(&s->req, "expect");
	if (expect != NULL && strcasecmp(expect, "100-continue") != 0) {
		refuse(h, s, 417, http_reason(417));
		return;
	}
	if (s->req.content_length >= 0 && (uint64_t)s->req.content_length > s->body_max) {
		refuse(h, s, 413, http_reason(413));
		return;
	}
	stream_begin(s);
	if (end)
		stream_body_end(s);
	else if (!s->answered && expect != NULL)
		send_continue(h, s);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2 *h = user;
	struct http_stream *s = stream_of(session, frame->hd.stream_id);
	bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		if (s == NULL)
			break;
		if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
			request_complete(h, s, end);
		else if (end && !s->recv_done)
			stream_body_end(s);
		break;
	case NGHTTP2_DATA:
		/* Only padding; an empty frame was charged when it began. */
		if (frame->hd.length > 0 && frame->hd.length == frame->data.padlen && !end)
			charge_control(h);
		if (s != NULL && end && !s->recv_done)
			stream_body_end(s);
		break;
	case NGHTTP2_RST_STREAM:
		if (s != NULL)
			s->peer_reset = true;
		break;
	case NGHTTP2_WINDOW_UPDATE:
		if (s != NULL || frame->hd.stream_id == 0)
			h2_out_window(h, s);
		break;
	case NGHTTP2_SETTINGS:
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
			h2_out_window(h, NULL);
		if (!h->got_settings) {
			h->got_settings = true;
			arm_idle(h);
		}
		break;
	case NGHTTP2_PING:
		if ((frame->hd.flags & NGHTTP2_FLAG_ACK) && h->draining &&
		    memcmp(frame->ping.opaque_data, drain_ping, sizeof drain_ping) == 0)
			last_goaway(h);
		break;
	default: break;
	}
	return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user)
{
	(void)session, (void)frame, (void)code;
	struct h2 *h = user;
	charge(h, &h->guard.resets, END_RESETS);
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user)
{
	(void)flags, (void)user;
	struct http_stream *s = stream_of(session, id);
	if (s == NULL || s->answered) {
		/* Discarded, up to the stream's window, which is not opened again. */
		nghttp2_session_consume_connection(session, n);
		return 0;
	}
	nghttp2_session_consume(session, id, n);
	int rc = stream_body(s, data, n);
	if (rc != 0)
		stream_error(s, rc == SL_ELIMIT ? 413 : 503, http_reason(rc == SL_ELIMIT ? 413 : 503));
	return 0;
}

/* ---- ends ---- */

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
	(void)code;
	struct h2 *h = user;
	struct http_stream *s = stream_of(session, id);
	if (s == NULL)
		return 0;
	enum http_close_reason why = s->timed_out                  ? HTTP_CLOSE_TIMEOUT
				     : s->sent_done && s->end_sent ? HTTP_CLOSE_DONE
				     : s->peer_reset               ? HTTP_CLOSE_PEER
								   : HTTP_CLOSE_ERROR;
	h2_out_closed(s);
	stream_close(s, why);
	arm_idle(h);
	return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2 *h = user;
	struct http_stream *s = stream_of(session, frame->hd.stream_id);
	if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM)
		metric_add(&refused, 1);
	if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
	    (s == NULL || !(s->reset_wanted || s->timed_out)))
		charge(h, &h->guard.resets, END_RESETS);
	/* Only now: the library sends a PING before a pending GOAWAY. */
	if (frame->hd.type == NGHTTP2_GOAWAY && h->draining && !h->drain_seen)
		nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, drain_ping);
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && s != NULL &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
		s->sent_done = s->end_sent = true;
		deadline_cancel(&s->stall);
		/* The response is complete, the request is not. RFC 9113 8.1 allows a reset now, but widespread clients
		 * then drop the response: the peer gets a moment to end the stream itself. */
		if (!s->recv_done) {
			stream_notify_close(s, HTTP_CLOSE_DONE);
			deadline_arm(&h->c->tr->linger, &s->recv, gw_now(h->c->tr->t));
		}
	}
	return 0;
}

static void h2_reset(struct http_stream *s) { h2_out_reset(s->conn->p, s); }

static void h2_stream_timeout(struct http_stream *s)
{
	struct h2 *h = s->conn->p;
	if (s->end_sent) {
		nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
		conn_schedule(s->conn);
		return;
	}
	if (!s->head_done) {
		/* Inside a head no other frame is allowed, so the connection is unusable. */
		conn_doom(s->conn, HTTP_CLOSE_TIMEOUT);
		return;
	}
	stream_notify_close(s, HTTP_CLOSE_TIMEOUT);
	if (!s->answered && stream_error(s, 408, http_reason(408)) == 0)
		return; /* on_frame_send ends the stream */
	s->timed_out = true;
	h2_out_reset(h, s);
	conn_schedule(s->conn);
}

static void h2_on_deadline(struct conn *c)
{
	struct h2 *h = c->p;
	if (h->draining && !h->drain_seen) {
		last_goaway(h);
		return;
	}
	/* The connection is idle, or the peer has sent no SETTINGS. */
	conn_count_timeout(h->got_settings ? TIMEOUT_IDLE : TIMEOUT_HEADER);
	nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
	h->ended = true;
	conn_schedule(c);
}

static void h2_drain(struct conn *c)
{
	struct h2 *h = c->p;
	if (h->draining || h->ended)
		return;
	h->draining = true;
	nghttp2_submit_shutdown_notice(h->session);
	arm_idle(h);
	conn_schedule(c);
}

static void h2_destroy(struct conn *c, enum http_close_reason why)
{
	struct h2 *h = c->p;
	/* The session's own destruction makes no callbacks. */
	list_each_safe(it, tmp, &c->streams)
		stream_close(list_entry(it, struct http_stream, node), why);
	nghttp2_session_del(h->session);
	h2_out_dispose(h);
	sl_free(h);
	c->p = NULL;
}

/* ---- answers ---- */

static int h2_respond(struct http_stream *s, int status, const struct http_field *fields, size_t n)
{
	struct h2 *h = s->conn->p;
	nghttp2_nv nv[HTTP_MAX_ANSWER_FIELDS + 3];
	/* answer() checks that a status has three digits. */
	char code[4] = {(char)('0' + status / 100), (char)('0' + status / 10 % 10), (char)('0' + status % 10), '\0'};
	char length[HTTP_LENGTH_CHARS];
	size_t m = 0;
	nv[m++] = field(":status", code);
	nv[m++] = field("date", transport_date(s->conn->tr));
	for (size_t i = 0; i < n; i++)
		nv[m++] = field(fields[i].name, fields[i].value);
	if (s->expect_bytes >= 0 && status != 204 && !(status == 304 && s->expect_bytes == 0)) {
		nv[m++] = field("content-length", http_length_text(s->expect_bytes, length));
	}
	nghttp2_data_provider source = {.source.ptr = s, .read_callback = h2_out_source};
	bool bare = s->no_body || s->expect_bytes == 0;
	int rc = nghttp2_submit_response(h->session, s->id, nv, m, bare ? NULL : &source);
	return rc == 0 ? 0 : rc == NGHTTP2_ERR_NOMEM ? SL_ENOMEM : SL_ECLOSED;
}

static void h2_body_ready(struct http_stream *s)
{
	struct h2 *h = s->conn->p;
	if (s->waiting) {
		s->waiting = false;
		h2_out_ready(h, s);
	}
}

static int h2_on_input(struct conn *c, const uint8_t *data, size_t n)
{
	struct h2 *h = c->p;
	if (h->ended)
		return 0;
	bool head_over;
	for (size_t k = h2_guard_frames(&h->guard, data, n, &head_over); k > 0; k--)
		charge_control(h);
	if (head_over)
		end_with(h, NGHTTP2_ENHANCE_YOUR_CALM, END_HEAD);
	if (h->ended)
		return 0;
	int rc = h2_out_book(h);
	if (rc != 0)
		return rc;
	ssize_t used = nghttp2_session_mem_recv(h->session, data, n);
	if (used == NGHTTP2_ERR_NOMEM)
		return SL_ENOMEM;
	if (used < 0 && !h->ended)
		end_with(h,
			 used == NGHTTP2_ERR_FLOODED || used == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS
			     ? NGHTTP2_ENHANCE_YOUR_CALM
			     : NGHTTP2_PROTOCOL_ERROR,
			 END_PROTOCOL);
	return 0;
}

static int h2_fill(struct conn *c, struct sl_buf *out, size_t room, bool *more)
{
	struct h2 *h = c->p;
	int rc = h2_out_fill(h, out, room);
	if (rc != 0)
		return rc;
	*more = out->len >= room;
	if (*more)
		return 0;
	bool drained = h->drain_seen && list_empty(&c->streams);
	if (h->ended || drained || (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)))
		conn_finish(c);
	return 0;
}

static size_t h2_queued(struct conn *c)
{
	struct h2 *h = c->p;
	return nghttp2_session_get_outbound_queue_size(h->session) * QUEUED_ITEM_BYTES + h2_out_waiting(h);
}

/* ---- making ---- */

void h2_env_destroy(struct h2_env *e)
{
	if (e == NULL)
		return;
	nghttp2_session_callbacks_del(e->callbacks);
	nghttp2_option_del(e->option);
	sl_free(e);
}

int h2_env_create(const struct gw_config *cfg, struct h2_env **out)
{
	struct h2_env *e = sl_zalloc(sizeof *e);
	if (e == NULL)
		return SL_ENOMEM;
	if (nghttp2_session_callbacks_new(&e->callbacks) != 0 || nghttp2_option_new(&e->option) != 0) {
		h2_env_destroy(e);
		return SL_ENOMEM;
	}
	nghttp2_option_set_no_auto_window_update(e->option, 1);
	/* Twice the guard's, which so acts first and says ENHANCE_YOUR_CALM: the library counts whole seconds and says
	 * INTERNAL_ERROR. */
	nghttp2_option_set_stream_reset_rate_limit(e->option, 2 * (uint64_t)cfg->limits.resets_burst,
						   2 * (uint64_t)cfg->limits.resets_per_s);
	nghttp2_option_set_max_continuations(e->option, MAX_CONTINUATIONS);
	nghttp2_option_set_max_settings(e->option, MAX_SETTINGS);
	nghttp2_session_callbacks_set_on_begin_frame_callback(e->callbacks, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(e->callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(e->callbacks, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(e->callbacks, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(e->callbacks, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(e->callbacks, on_data_chunk);
	nghttp2_session_callbacks_set_on_stream_close_callback(e->callbacks, on_stream_close);
	nghttp2_session_callbacks_set_send_data_callback(e->callbacks, h2_out_send_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(e->callbacks, on_frame_send);
	*out = e;
	return 0;
}

int h2_attach(struct conn *c)
{
	const struct gw_limits *lim = &c->tr->t->cfg->limits;
	struct h2 *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return SL_ENOMEM;
	h->c = c;
	h2_out_init(h);
	h->max_streams = lim->streams_per_connection;
	h2_guard_init(&h->guard, lim, CONN_PREFACE_BYTES, clock_now_ns());
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)lim->streams_per_connection},
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
	    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)lim->header_bytes},
	};
	int rc = nghttp2_session_server_new2(&h->session, c->tr->h2->callbacks, h, c->tr->h2->option);
	if (rc == 0)
		rc = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
					     sizeof settings / sizeof *settings);
	if (rc != 0) {
		nghttp2_session_del(h->session);
		sl_free(h);
		return SL_ENOMEM;
	}
	c->p = h;
	deadline_arm(&c->tr->header, &c->deadline, clock_now_ns());
	conn_schedule(c);
	return 0;
}

const struct conn_proto h2_proto = {
    .on_input = h2_on_input,
    .fill = h2_fill,
    .queued = h2_queued,
    .drain = h2_drain,
    .on_deadline = h2_on_deadline,
    .destroy = h2_destroy,
    .respond = h2_respond,
    .body_ready = h2_body_ready,
    .reset = h2_reset,
    .stream_timeout = h2_stream_timeout,
};
