/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 on a connection: one request at a time; input of the next one waits in `in`.
 *
 * The state determines how the next input byte is read. Only h1_set_state assigns it.
 *
 *   IDLE → HEAD      read_head: the first byte
 *   HEAD → BODY      begin_request: the request has a body
 *   HEAD → WAIT      begin_request: it has none
 *   BODY → WAIT      body_complete: the response is not complete yet
 *   WAIT → IDLE      end_exchange: the response is complete
 *   BODY → DISCARD   end_exchange: the response is complete before the body
 *   DISCARD → IDLE   body_complete
 *   any → END        an error (reject_with), "Connection: close", a deadline or a drain; input is ignored
 *
 * An error response of the transport always closes the connection: after a malformed request the start of the next one
 * is unknown. A client that shuts its side counts as disconnected (conn.c).
 *
 * Output: heads and interim responses wait in `out`; a body is pulled straight into the iteration's shared buffer.
 * Thread: the connection's.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/h1_parse.h"
#include "gateway/transport/http_stream.h"

enum h1_state { H1_IDLE, H1_HEAD, H1_BODY, H1_DISCARD, H1_WAIT, H1_END };

enum {
	REQUEST_LINE_BYTES = 8192 + 64,
	PIPELINED_MAX = 65536, /* input that waits behind the current request */
	IN_MAX = PIPELINED_MAX + 2 * TRANSPORT_READ_BYTES + (1 << 20),
	OUT_MAX = 1 << 20,
	DISCARD_MAX = 262144,
	PIECE = 16384,  /* the most bytes in a chunk */
	CHUNK_HEAD = 6, /* four digits, CR LF */
	KEEP_BYTES = 4096,
};

struct h1 {
	struct conn *c;
	enum h1_state state;
	struct sl_buf in, out;
	struct h1_scan scan;
	struct h1_chunked ch;
	struct http_stream *s; /* of the current request; NULL in IDLE, HEAD, DISCARD */
	uint64_t body_left;
	uint64_t discarded;
	bool chunked_in;
	bool chunked_out;
	bool answer_begun; /* conn.c has a byte of the response */
	bool close_after;
	bool known;        /* the peer has sent a well-formed HTTP/1 head */
	size_t answer_off; /* the offset of the response head in out */
};

#define OVERRUN(why)                                                                 \
	METRIC_OF(METRIC_COUNTER, "sluice_http1_closed_total", "reason=\"" why "\"", \
		  "HTTP/1.1 connections closed because of their input, without an error response.")
enum { OVER_PIPELINED, OVER_DISCARDED, OVER_ALIEN, OVER_N };
static struct metric overruns[OVER_N] = {OVERRUN("pipelined"), OVERRUN("discarded"), OVERRUN("not_http")};
METRICS(overruns);

static void h1_set_state(struct h1 *h, enum h1_state to)
{
	struct gw_transport *tr = h->c->tr;
	BUG_IF(h->state == H1_END && to != H1_END, "HTTP/1.1 leaves the state END");
	h->state = to;
	uint64_t now = clock_now_ns();
	switch (to) {
	case H1_IDLE:
		h->scan = (struct h1_scan){0};
		deadline_arm(&tr->idle, &h->c->deadline, now);
		break;
	case H1_HEAD: deadline_arm(&tr->header, &h->c->deadline, now); break;
	case H1_DISCARD: deadline_arm(&tr->body, &h->c->deadline, now); break;
	case H1_BODY: /* the stream has its own deadlines */
	case H1_WAIT:
	case H1_END: deadline_cancel(&h->c->deadline); break;
	}
}

/* Keeps the Origin of a refused head, for the CORS fields of the error response. */
static void note_origin(struct h1 *h)
{
	size_t n = h->scan.pos < h->in.len ? h->scan.pos : h->in.len;
	struct h1_span v = n > 0 ? h1_find_origin(buf_data(&h->in), n) : (struct h1_span){0};
	if (v.len > 0 && h->s->head != NULL)
		http_head_origin(h->s, buf_data(&h->in) + v.off, v.len);
}

/* Refuses the request with an error response of the transport and ends the connection. The application gets on_close
 * first. Its response is retracted if no byte is sent yet (the body turned out malformed in the same iteration), and
 * cut off otherwise. */
static int reject_with(struct h1 *h, int status, const char *message, enum http_close_reason why)
{
	h1_set_state(h, H1_END);
	h->close_after = true;
	if (h->s == NULL)
		h->s = stream_create(h->c, HTTP_1_1);
	if (h->s == NULL) {
		stream_count_rejected(status);
		return SL_ENOMEM;
	}
	if (h->s->req.fields == NULL)
		note_origin(h);
	stream_notify_close(h->s, why);
	if (h->s->answered && h->answer_begun) {
		stream_count_rejected(status);
		conn_doom(h->c, why);
		return 0;
	}
	if (h->s->answered) {
		stream_retract(h->s);
		buf_cut(&h->out, h->answer_off);
	}
	return stream_error(h->s, status, message);
}

/* Refuses cleartext on a TLS port. The message has the HTTPS address if the request names a host. */
static int reject_cleartext(struct h1 *h, const struct h1_head *head)
{
	char text[512];
	struct h1_span host = head != NULL ? head->authority : (struct h1_span){0};
	if (host.len > 0 && host.len < sizeof text / 2)
		snprintf(text, sizeof text,
			 "This port speaks HTTPS, but the request came without TLS. Use https://%.*s/\n", (int)host.len,
			 (const char *)buf_data(&h->in) + host.off);
	else
		snprintf(text, sizeof text, "This port speaks HTTPS, but the request came without TLS.\n");
	return reject_with(h, 400, text, HTTP_CLOSE_ERROR);
}

static int reject(struct h1 *h, int status, enum http_close_reason why)
{
	if (h->c->wants_tls)
		return reject_cleartext(h, NULL);
	return reject_with(h, status, http_reason(status), why);
}

/* ---- input ---- */

static int collect_head(struct h1 *h, struct http_stream *s, const struct h1_head *head)
{
	uint8_t *data = buf_data(&h->in);
	int rc = http_head_text(s, data + head->method.off, head->method.len, &s->head->method);
	s->head->has_method = true;
	if (rc == 0 && head->authority.len > 0) {
		rc = http_head_text(s, data + head->authority.off, head->authority.len, &s->head->authority);
		s->head->has_authority = true;
	}
	if (rc == 0 && head->target_is_root) {
		/* "http://host?q": the byte before the query belongs to the authority, which is copied already. So it
		 * can become the missing slash. */
		data[head->target.off - 1] = '/';
		rc = http_head_target(s, data + head->target.off - 1, head->target.len + 1u);
	} else if (rc == 0) {
		rc = http_head_target(s, data + head->target.off, head->target.len);
	}
	for (size_t i = 0; i < head->n_fields && rc == 0; i++) {
		const struct h1_field *f = &head->fields[i];
		for (uint32_t k = 0; k < f->name.len; k++)
			if (data[f->name.off + k] >= 'A' && data[f->name.off + k] <= 'Z')
				data[f->name.off + k] |= 0x20;
		rc = http_head_add(s, data + f->name.off, f->name.len, data + f->value.off, f->value.len);
	}
	return rc == 0 ? http_head_complete(s) : rc;
}

static int begin_request(struct h1 *h)
{
	struct gw_transport *tr = h->c->tr;
	struct h1_head head;
	int status = h1_parse_head(buf_data(&h->in), h->scan.pos, (size_t)tr->t->cfg->limits.header_fields, &head);
	if (h->c->wants_tls)
		return reject_cleartext(h, status == 0 ? &head : NULL);
	if (status != 0 && head.alien && !h->known) {
		/* The peer does not speak HTTP/1, so it could not read an error response. */
		metric_add(&overruns[OVER_ALIEN], 1);
		h1_set_state(h, H1_END);
		conn_finish(h->c);
		return 0;
	}
	if (status != 0)
		return reject_with(h, status, head.why != NULL ? head.why : http_reason(status), HTTP_CLOSE_ERROR);
	h->known = true;
	struct http_stream *s = stream_create(h->c, head.minor == 0 ? HTTP_1_0 : HTTP_1_1);
	if (s == NULL)
		return SL_ENOMEM;
	h->s = s;
	int rc = collect_head(h, s, &head);
	if (rc != 0)
		return reject(h, rc == SL_ELIMIT ? 431 : rc == SL_EINVAL ? 400 : 503, HTTP_CLOSE_ERROR);
	buf_consume(&h->in, h->scan.pos);
	h->chunked_in = head.chunked;
	h->ch = (struct h1_chunked){0};
	h->body_left = head.content_length > 0 ? (uint64_t)head.content_length : 0;
	h->close_after = head.close || tr->draining;
	s->req.content_length = head.content_length;
	s->req.has_body = head.chunked || h->body_left > 0;
	if (h->body_left > s->body_max)
		return reject(h, 413, HTTP_CLOSE_ERROR);
	h1_set_state(h, s->req.has_body ? H1_BODY : H1_WAIT);
	stream_begin(s);
	if (!s->req.has_body) {
		stream_body_end(s);
	} else if (head.expect_continue) {
		/* Without a 100 the client may never send the body, so no next request can follow. */
		if (s->answered)
			h->close_after = true;
		else
			return buf_append_str(&h->out, "HTTP/1.1 100 Continue\r\n\r\n");
	}
	return 0;
}

static int read_head(struct h1 *h, bool *again)
{
	const struct gw_limits *lim = &h->c->tr->t->cfg->limits;
	if (h->in.len == 0)
		return 0;
	if (h->state == H1_IDLE)
		h1_set_state(h, H1_HEAD);
	enum h1_scan_result r = h1_scan_head(&h->scan, buf_data(&h->in), h->in.len);
	if (r == H1_SCAN_BAD)
		return reject(h, 400, HTTP_CLOSE_ERROR);
	if (h->scan.lines == 0 && h->scan.line_len > REQUEST_LINE_BYTES)
		return reject(h, 414, HTTP_CLOSE_ERROR);
	if (h->scan.pos > lim->header_bytes + REQUEST_LINE_BYTES)
		return reject(h, 431, HTTP_CLOSE_ERROR);
	if (r == H1_SCAN_MORE)
		return 0;
	*again = true;
	return begin_request(h);
}

/* The request's last byte has been read. */
static void body_complete(struct h1 *h)
{
	if (h->state == H1_DISCARD) {
		h1_set_state(h, H1_IDLE);
		return;
	}
	h1_set_state(h, H1_WAIT);
	stream_body_end(h->s);
}

static int body_piece(struct h1 *h, const uint8_t *data, size_t n)
{
	int rc = h->state == H1_BODY ? stream_body(h->s, data, n) : 0;
	if (rc != 0)
		return reject(h, rc == SL_ELIMIT ? 413 : 503, HTTP_CLOSE_ERROR);
	if (h->state == H1_DISCARD || (h->s != NULL && h->s->answered)) {
		h->discarded += n;
		if (h->discarded > DISCARD_MAX) {
			h->close_after = true;
			metric_add(&overruns[OVER_DISCARDED], 1);
			h1_set_state(h, H1_END);
			if (h->s == NULL)
				conn_finish(h->c);
		}
	}
	return 0;
}

static int read_body(struct h1 *h, bool *again)
{
	const uint8_t *piece = NULL;
	size_t used, n_piece;
	bool done;
	if (h->in.len == 0)
		return 0;
	if (h->chunked_in) {
		if (h1_chunked_feed(&h->ch, buf_data(&h->in), h->in.len, &used, &piece, &n_piece, &done) != 0) {
			if (h->s == NULL) {
				conn_doom(h->c, HTTP_CLOSE_ERROR);
				return 0;
			}
			return reject(h, 400, HTTP_CLOSE_ERROR);
		}
	} else {
		n_piece = h->in.len < h->body_left ? h->in.len : (size_t)h->body_left;
		piece = buf_data(&h->in);
		used = n_piece;
		h->body_left -= n_piece;
		done = h->body_left == 0;
	}
	int rc = n_piece > 0 ? body_piece(h, piece, n_piece) : 0;
	buf_consume(&h->in, used);
	if (rc == 0 && done && h->state != H1_END)
		body_complete(h);
	*again = true;
	return rc;
}

static int process(struct h1 *h)
{
	int rc = 0;
	bool again = true;
	while (again && rc == 0 && !h->c->doomed) {
		again = false;
		switch (h->state) {
		case H1_IDLE:
		case H1_HEAD: rc = read_head(h, &again); break;
		case H1_BODY:
		case H1_DISCARD: rc = read_body(h, &again); break;
		case H1_WAIT:
			if (h->in.len > PIPELINED_MAX) {
				metric_add(&overruns[OVER_PIPELINED], 1);
				conn_doom(h->c, HTTP_CLOSE_ERROR);
			}
			break;
		case H1_END: buf_clear(&h->in, 0); break;
		}
	}
	if (h->in.len == 0)
		buf_clear(&h->in, KEEP_BYTES);
	return rc;
}

static int h1_on_input(struct conn *c, const uint8_t *data, size_t n)
{
	struct h1 *h = c->p;
	if (h->state == H1_END)
		return 0;
	int rc = buf_append(&h->in, data, n);
	return rc != 0 ? rc : process(h);
}

/* ---- output ---- */

static int h1_respond(struct http_stream *s, int status, const struct http_field *fields, size_t n)
{
	struct h1 *h = s->conn->p;
	struct gw_transport *tr = s->conn->tr;
	struct sl_buf *b = &h->out;
	if (tr->draining)
		h->close_after = true;
	h->answer_off = b->len;
	h->answer_begun = false;
	h->chunked_out = s->expect_bytes < 0 && s->req.version == HTTP_1_1;
	int rc = buf_printf(b, "HTTP/1.1 %d %s\r\ndate: %s\r\n", status, http_reason(status), transport_date(tr));
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = buf_printf(b, "%s: %s\r\n", fields[i].name, fields[i].value);
	if (rc == 0 && s->expect_bytes >= 0 && status != 204 && !(status == 304 && s->expect_bytes == 0))
		rc = buf_printf(b, "content-length: %lld\r\n", (long long)s->expect_bytes);
	if (rc == 0 && h->chunked_out && status != 204 && status != 304)
		rc = buf_append_str(b, "transfer-encoding: chunked\r\n");
	if (s->expect_bytes < 0 && !h->chunked_out)
		h->close_after = true; /* HTTP/1.0: the end of the connection ends the body */
	if (rc == 0 && h->close_after)
		rc = buf_append_str(b, "connection: close\r\n");
	return rc != 0 ? rc : buf_append(b, "\r\n", 2);
}

static int fill_chunk(struct http_stream *s, struct sl_buf *out, size_t room, bool *end)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t *at;
	if (room > PIECE)
		room = PIECE;
	int rc = buf_reserve(out, CHUNK_HEAD + room + 2, &at);
	if (rc != 0)
		return rc;
	ssize_t n = stream_pull(s, at + CHUNK_HEAD, room, end);
	if (n < 0)
		return (int)n;
	if (n > 0) {
		size_t m = (size_t)n;
		for (int i = 0; i < 4; i++)
			at[i] = (uint8_t)digits[(m >> (12 - 4 * i)) & 15];
		at[4] = '\r';
		at[5] = '\n';
		memcpy(at + CHUNK_HEAD + m, "\r\n", 2);
		buf_commit(out, CHUNK_HEAD + m + 2);
	}
	return *end ? buf_append(out, "0\r\n\r\n", 5) : 0;
}

static int fill_plain(struct http_stream *s, struct sl_buf *out, size_t room, bool *end)
{
	uint8_t *at;
	if (room > PIECE)
		room = PIECE;
	int rc = buf_reserve(out, room, &at);
	if (rc != 0)
		return rc;
	ssize_t n = stream_pull(s, at, room, end);
	if (n < 0)
		return (int)n;
	buf_commit(out, (size_t)n);
	return 0;
}

/* The response is out: the stream ends, and the connection takes the next request or ends. */
static int end_exchange(struct h1 *h)
{
	struct http_stream *s = h->s;
	bool recv_done = s->recv_done;
	h->s = NULL;
	stream_close(s, HTTP_CLOSE_DONE);
	if (h->close_after || h->state == H1_END) {
		h1_set_state(h, H1_END);
		conn_finish(h->c);
		return 0;
	}
	h1_set_state(h, recv_done ? H1_IDLE : H1_DISCARD);
	h->discarded = recv_done ? 0 : h->discarded;
	return process(h);
}

static int h1_fill(struct conn *c, struct sl_buf *out, size_t room, bool *more)
{
	struct h1 *h = c->p;
	int rc = 0;
	while (rc == 0 && !c->doomed) {
		if (h->out.len > 0) {
			rc = buf_append(out, buf_data(&h->out), h->out.len);
			h->answer_begun = h->s != NULL && h->s->answered;
			buf_clear(&h->out, KEEP_BYTES);
		}
		struct http_stream *s = h->s;
		if (s == NULL || !s->answered || rc != 0)
			break;
		if (s->reset_wanted) {
			conn_doom(c, HTTP_CLOSE_ERROR);
			break;
		}
		if (s->no_body) {
			s->sent_done = true;
			deadline_cancel(&s->stall);
		} else if (out->len >= room) {
			*more = true;
			break;
		} else {
			bool end;
			rc = h->chunked_out ? fill_chunk(s, out, room - out->len, &end)
					    : fill_plain(s, out, room - out->len, &end);
			s->sent_done = rc == 0 && end;
			if (rc == 0 && s->waiting)
				break;
		}
		if (rc == 0 && s->sent_done)
			rc = end_exchange(h);
	}
	if (h->s != NULL && h->s->reset_wanted)
		conn_doom(c, HTTP_CLOSE_ERROR);
	return rc;
}

static void h1_body_ready(struct http_stream *s) { (void)s; /* h1_fill pulls anyway */ }

static void h1_reset(struct http_stream *s) { (void)s; /* h1_fill checks reset_wanted */ }

/* ---- deadlines and ends ---- */

static void h1_on_deadline(struct conn *c)
{
	struct h1 *h = c->p;
	conn_count_timeout(h->state == H1_HEAD ? TIMEOUT_HEADER : h->state == H1_IDLE ? TIMEOUT_IDLE : TIMEOUT_BODY);
	if (h->state == H1_HEAD && h->in.len > 0) {
		if (reject(h, 408, HTTP_CLOSE_TIMEOUT) != 0)
			conn_doom(c, HTTP_CLOSE_TIMEOUT);
	} else if (h->state == H1_IDLE || h->state == H1_HEAD) {
		h1_set_state(h, H1_END);
		conn_finish(c);
	} else {
		conn_doom(c, HTTP_CLOSE_TIMEOUT);
	}
}

static void h1_stream_timeout(struct http_stream *s)
{
	struct h1 *h = s->conn->p;
	if (reject(h, 408, HTTP_CLOSE_TIMEOUT) != 0)
		conn_doom(s->conn, HTTP_CLOSE_TIMEOUT);
}

static void h1_drain(struct conn *c)
{
	struct h1 *h = c->p;
	h->close_after = true;
	/* The next request may be in flight; closing would reset it. If another process has replaced this one there is
	 * time to answer it as the last one. */
	if (!c->tr->replaced && h->state == H1_IDLE && h->in.len == 0) {
		h1_set_state(h, H1_END);
		conn_finish(c);
	}
}

static void h1_destroy(struct conn *c, enum http_close_reason why)
{
	struct h1 *h = c->p;
	if (h->s != NULL)
		stream_close(h->s, why);
	buf_dispose(&h->in);
	buf_dispose(&h->out);
	sl_free(h);
	c->p = NULL;
}

int h1_attach(struct conn *c)
{
	struct h1 *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return SL_ENOMEM;
	h->c = c;
	buf_init(&h->in, IN_MAX);
	buf_init(&h->out, OUT_MAX);
	c->p = h;
	/* The first head must arrive within the header deadline, which starts with the connection, or with TLS at the
	 * end of the handshake. */
	h->state = H1_HEAD;
	deadline_arm(&c->tr->header, &c->deadline, clock_now_ns());
	return 0;
}

const struct conn_proto h1_proto = {
    .on_input = h1_on_input,
    .fill = h1_fill,
    .drain = h1_drain,
    .on_deadline = h1_on_deadline,
    .destroy = h1_destroy,
    .respond = h1_respond,
    .body_ready = h1_body_ready,
    .reset = h1_reset,
    .stream_timeout = h1_stream_timeout,
};
