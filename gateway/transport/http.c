/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream object: one exchange, the same for HTTP/1.1 and HTTP/2. Contract: gateway/transport/http.h.
 *
 * Ownership: a stream belongs to its connection's list until stream_close, which unlinks it. It is freed at the end
 * of the loop iteration, because the calling protocol library may still use it.
 * Deadlines: `recv` is absolute, first for the head, then for the body. `stall` runs only while the source has bytes
 * that the peer's window or socket does not take, and restarts with each byte taken.
 *
 * Thread: the connection's.
 */
#include "gateway/transport/http.h"

#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/transport/client_limits.h"
#include "gateway/loop/prefetch.h"
#include "gateway/transport/http_stream.h"

GAUGE(streams_open, "sluice_http_streams_open", "Exchanges in progress.");

#define REQUESTS(proto)                                                                \
	METRIC_OF(METRIC_COUNTER, "sluice_http_requests_total", "proto=\"" proto "\"", \
		  "Requests whose head was complete and well-formed.")
static struct metric requests[] = {REQUESTS("http/1.0"), REQUESTS("http/1.1"), REQUESTS("h2")};
METRICS(requests);

#define CLOSED(why) \
	METRIC_OF(METRIC_COUNTER, "sluice_http_closed_total", "reason=\"" why "\"", "Ended exchanges, by outcome.")
static struct metric closed[] = {CLOSED("done"), CLOSED("peer"), CLOSED("timeout"), CLOSED("shutdown"),
				 CLOSED("error")};
METRICS(closed);

/* The statuses of the transport's own answers; codes as in etc/api.md. */
#define REJECTED(status, code)                                                                        \
	{                                                                                             \
		status, code,                                                                         \
		    METRIC_OF(METRIC_COUNTER, "sluice_http_rejected_total", "status=\"" #status "\"", \
			      "Requests refused by the transport, by status.")                        \
	}
static struct rejection {
	int status;
	const char *code;
	struct metric count;
} rejections[] = {
    REJECTED(400, "malformed_request"),
    REJECTED(408, "request_timeout"),
    REJECTED(413, "request_too_large"),
    REJECTED(414, "url_too_long"),
    REJECTED(417, "unsupported_expectation"),
    REJECTED(429, "too_many_requests"),
    REJECTED(431, "headers_too_large"),
    REJECTED(501, "unsupported_method"),
    REJECTED(503, "overloaded"),
    REJECTED(505, "unsupported_http_version"),
};

__attribute__((constructor)) static void register_metrics(void)
{
	for (size_t i = 0; i < sizeof rejections / sizeof *rejections; i++)
		metric_register(&rejections[i].count);
}

/* ---- the head ---- */

enum { HEAD_FIRST = 256, ORIGIN_MOST = 300 };

int http_head_text(struct http_stream *s, const void *text, size_t n, uint32_t *off)
{
	struct sl_buf *b = &s->head->text;
	uint8_t *at;
	/* Most heads fit into the first allocation; http_head_complete trims it. */
	int rc = buf_reserve(b, b->mem == NULL && n < HEAD_FIRST ? HEAD_FIRST : n + 1, &at);
	if (rc != 0)
		return rc;
	*off = (uint32_t)b->len;
	if (n > 0)
		memcpy(at, text, n);
	at[n] = '\0';
	buf_commit(b, n + 1);
	return 0;
}

int http_head_add(struct http_stream *s, const void *name, size_t n_name, const void *value, size_t n_value)
{
	const struct gw_limits *lim = &s->conn->tr->t->cfg->limits;
	struct http_head *h = s->head;
	h->charged += (uint64_t)n_name + n_value + 32;
	if (h->charged > lim->header_bytes || h->n_fields >= (size_t)lim->header_fields)
		return SL_ELIMIT;
	if (h->n_fields == h->cap_fields) {
		uint32_t cap = h->cap_fields ? h->cap_fields * 2 : 16;
		uint32_t *offsets = sl_realloc_n(h->offsets, cap, 2 * sizeof *offsets);
		if (offsets == NULL)
			return SL_ENOMEM;
		h->offsets = offsets;
		h->cap_fields = cap;
	}
	uint32_t *pair = h->offsets + 2 * h->n_fields;
	int rc = http_head_text(s, name, n_name, &pair[0]);
	if (rc == 0)
		rc = http_head_text(s, value, n_value, &pair[1]);
	if (rc == 0)
		h->n_fields++;
	return rc;
}

void http_head_origin(struct http_stream *s, const void *value, size_t n)
{
	struct http_head *h = s->head;
	if (!h->has_origin && n <= ORIGIN_MOST)
		h->has_origin = http_head_text(s, value, n, &h->origin) == 0;
}

int http_head_target(struct http_stream *s, const void *target, size_t n)
{
	const uint8_t *t = target;
	if (n == 0 || (t[0] != '/' && !(n == 1 && t[0] == '*')))
		return SL_EINVAL;
	for (size_t i = 0; i < n; i++)
		if (t[i] <= 0x20 || t[i] >= 0x7f || t[i] == '#')
			return SL_EINVAL;
	const uint8_t *q = memchr(t, '?', n);
	size_t n_path = q ? (size_t)(q - t) : n;
	int rc = http_head_text(s, t, n_path, &s->head->path);
	if (rc == 0)
		rc = http_head_text(s, q ? q + 1 : t + n, q ? n - n_path - 1 : 0, &s->head->query);
	if (rc == 0)
		s->head->has_path = true;
	return rc;
}

int http_head_complete(struct http_stream *s)
{
	struct http_head *h = s->head;
	uint32_t empty;
	int rc = http_head_text(s, "", 0, &empty);
	if (rc != 0)
		return rc;
	struct http_field *fields = sl_zalloc_n(h->n_fields, sizeof *fields);
	if (fields == NULL)
		return SL_ENOMEM;
	/* The text lives as long as the stream and no longer grows. */
	buf_trim(&h->text);
	const char *text = (const char *)buf_data(&h->text);
	for (size_t i = 0; i < h->n_fields; i++)
		fields[i] = (struct http_field){text + h->offsets[2 * i], text + h->offsets[2 * i + 1]};
	s->req.fields = h->fields = fields;
	s->req.n_fields = h->n_fields;
	s->req.method = text + (h->has_method ? h->method : empty);
	s->req.path = text + (h->has_path ? h->path : empty);
	s->req.query = text + (h->has_path ? h->query : empty);
	s->req.authority = text + (h->has_authority ? h->authority : empty);
	s->req.tls = s->conn->tls != NULL;
	s->req.peer = s->conn->peer;
	s->req.subject = s->conn->subject;
	sl_free(h->offsets);
	h->offsets = NULL;
	h->cap_fields = 0;
	return 0;
}

const char *http_header(const struct http_request *r, const char *name)
{
	/* A request is searched for half a dozen fields; the first letter rejects most. */
	for (size_t i = 0; i < r->n_fields; i++)
		if (r->fields[i].name[0] == name[0] && strcmp(r->fields[i].name, name) == 0)
			return r->fields[i].value;
	return NULL;
}

/* ---- holds ---- */

struct http_hold *http_hold(struct http_stream *s)
{
	BUG_IF(s->hold != NULL || s->closed, "a stream is held twice or after its end");
	struct http_hold *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return NULL;
	list_init(&h->node);
	h->s = s;
	s->hold = h;
	return h;
}

void http_release(struct http_hold *h)
{
	if (h == NULL)
		return;
	if (h->s != NULL)
		h->s->hold = NULL;
	if (h->c != NULL) {
		list_remove(&h->node);
		h->c->n_holds--;
	}
	sl_free(h);
}

static void move_hold_to_conn(struct http_stream *s)
{
	struct http_hold *h = s->hold;
	struct conn *c = s->conn;
	s->hold = NULL;
	h->s = NULL;
	h->c = c;
	list_push_back(&c->holds, &h->node);
	c->n_holds++;
}

void stream_drop_holds(struct conn *c)
{
	list_each_safe(it, tmp, &c->holds) {
		list_remove(it);
		list_entry(it, struct http_hold, node)->c = NULL;
	}
	c->n_holds = 0;
}

/* ---- life ---- */

static void free_head(struct http_stream *s)
{
	struct http_head *h = s->head;
	if (h == NULL)
		return;
	buf_dispose(&h->text);
	sl_free(h->offsets);
	sl_free(h->fields);
	sl_free(h);
	s->head = NULL;
}

/* Frees the request's strings once the answer has begun: a stream may stay open for long without them. */
static void forget_request(struct http_stream *s)
{
	static const char *const methods[] = {"GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS"};
	const char *method = "other";
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (strcmp(methods[i], s->req.method) == 0)
			method = methods[i];
	s->req.method = method;
	s->req.path = s->req.query = s->req.authority = "";
	s->req.fields = NULL;
	s->req.n_fields = 0;
	free_head(s);
}

void stream_free_closed(struct gw_deferred *d)
{
	struct gw_transport *tr = list_entry(d, struct gw_transport, free_closed);
	list_each_safe(it, tmp, &tr->closed) {
		struct http_stream *s = list_entry(it, struct http_stream, node);
		free_head(s);
		sl_free(s->body);
		sl_free(s->peer);
		sl_free(s);
	}
	list_init(&tr->closed);
}

static void on_recv_deadline(struct deadline *d)
{
	struct http_stream *s = list_entry(d, struct http_stream, recv);
	/* After a complete response the stream only waits for the rest of the request. */
	if (!s->end_sent)
		conn_count_timeout(s->to_app || s->head_done ? TIMEOUT_BODY : TIMEOUT_HEADER);
	s->conn->proto->stream_timeout(s);
}

static void on_stall_deadline(struct deadline *d)
{
	struct http_stream *s = list_entry(d, struct http_stream, stall);
	conn_count_timeout(TIMEOUT_STALL);
	s->conn->proto->stream_timeout(s);
}

static void on_response_deadline(struct deadline *d)
{
	struct http_stream *s = list_entry(d, struct http_stream, response);
	conn_count_timeout(TIMEOUT_RESPONSE);
	s->conn->proto->stream_timeout(s);
}

struct http_stream *stream_create(struct conn *c, enum http_version version)
{
	struct http_stream *s = sl_zalloc(sizeof *s);
	struct http_head *head = sl_zalloc(sizeof *head);
	if (s == NULL || head == NULL) {
		sl_free(s);
		sl_free(head);
		return NULL;
	}
	s->head = head;
	s->conn = c;
	s->req.version = version;
	s->req.content_length = -1;
	s->expect_bytes = -1;
	s->body_max = c->tr->t->cfg->limits.body_bytes;
	buf_init(&head->text, HTTP_HEAD_TEXT_MAX);
	deadline_init(&s->recv, on_recv_deadline);
	deadline_init(&s->stall, on_stall_deadline);
	deadline_init(&s->response, on_response_deadline);
	list_push_back(&c->streams, &s->node);
	c->n_streams++;
	c->tr->n_streams++;
	metric_add(&streams_open, 1);
	return s;
}

void stream_begin(struct http_stream *s)
{
	struct gw_transport *tr = s->conn->tr;
	metric_add(&requests[s->req.version], 1);
	if (s->req.has_body)
		deadline_arm(&tr->body, &s->recv, gw_now(tr->t));
	else
		deadline_cancel(&s->recv);
	s->no_body = strcmp(s->req.method, "HEAD") == 0;
	int refused = admit_stream(s);
	if (refused != 0) {
		stream_error(s, refused, admit_reason(refused));
		return;
	}
	s->to_app = true;
	tr->app->on_request(tr->app_ctx, s, &s->req);
}

int stream_body(struct http_stream *s, const uint8_t *data, size_t n)
{
	struct gw_transport *tr = s->conn->tr;
	s->received += n;
	if (s->received > s->body_max) {
		stream_notify_close(s, HTTP_CLOSE_ERROR);
		return SL_ELIMIT;
	}
	if (s->to_app && !s->answered && !admit_body()) {
		stream_notify_close(s, HTTP_CLOSE_ERROR);
		return SL_ENOMEM;
	}
	if (s->to_app && !s->answered && n > 0)
		tr->app->on_body(tr->app_ctx, s, data, n);
	return 0;
}

void stream_body_end(struct http_stream *s)
{
	struct gw_transport *tr = s->conn->tr;
	s->recv_done = true;
	deadline_cancel(&s->recv);
	if (s->to_app && !s->answered)
		tr->app->on_body_end(tr->app_ctx, s);
}

void stream_notify_close(struct http_stream *s, enum http_close_reason why)
{
	struct gw_transport *tr = s->conn->tr;
	if (!s->to_app)
		return;
	s->to_app = false;
	/* The application owns the source and drops the stream now. */
	if (s->body == NULL)
		s->src = (struct http_source){0};
	metric_add(&closed[why], 1);
	tr->app->on_close(tr->app_ctx, s, why);
}

void stream_close(struct http_stream *s, enum http_close_reason why)
{
	BUG_IF(s->closed, "stream closed twice");
	s->closed = true;
	struct gw_transport *tr = s->conn->tr;
	deadline_cancel(&s->recv);
	deadline_cancel(&s->stall);
	deadline_cancel(&s->response);
	stream_notify_close(s, why);
	admit_stream_end(s);
	list_remove(&s->node);
	if (s->hold != NULL)
		move_hold_to_conn(s);
	s->conn->n_streams--;
	tr->n_streams--;
	metric_add(&streams_open, -1);
	list_push_back(&tr->closed, &s->node);
	gw_defer(tr->t, &tr->free_closed);
}

/* ---- answering ---- */

static ssize_t pull_copy(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct http_stream *s = ctx;
	size_t n = s->body_len - s->body_off;
	if (n > room)
		n = room;
	if (n > 0)
		memcpy(dst, s->body + s->body_off, n);
	s->body_off += (uint32_t)n;
	*end = s->body_off == s->body_len;
	return (ssize_t)n;
}

ssize_t stream_pull(struct http_stream *s, uint8_t *dst, size_t room, bool *end)
{
	*end = false;
	s->ready = false;
	if (s->src.pull == NULL)
		return SL_ECLOSED;
	if (s->dry) {
		s->waiting = true;
		return 0;
	}
	ssize_t n = s->src.pull(s->src.ctx, dst, room, end);
	BUG_IF(n > 0 && (size_t)n > room, "a source wrote %zd bytes into %zu", n, room);
	s->waiting = n == 0 && !*end;
	/* Protocols pull until they get nothing. A short read means dry, unless the source became ready meanwhile. */
	s->dry = n >= 0 && (size_t)n < room && !s->ready;
	if (n > 0 && !*end && !s->dry)
		deadline_arm(&s->conn->tr->stall, &s->stall, gw_now(s->conn->tr->t));
	else
		deadline_cancel(&s->stall);
	return n;
}

/* Field values may come from requests: no control character may split the head. */
static bool fields_are_clean(const struct http_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (const char *v = fields[i].value; *v != '\0'; v++)
			if (((unsigned char)*v < 0x20 && *v != '\t') || *v == 0x7f)
				return false;
	return true;
}

static int answer(struct http_stream *s, int status, const struct http_field *fields, size_t n)
{
	BUG_IF(s->answered, "a stream was answered twice");
	BUG_IF(status < 200 || status > 599, "status %d", status);
	BUG_IF(n > HTTP_MAX_ANSWER_FIELDS, "an answer with %zu fields", n);
	s->answered = true;
	if (status == 204 || status == 304)
		s->no_body = true;
	int rc = fields_are_clean(fields, n) ? s->conn->proto->respond(s, status, fields, n) : SL_EINVAL;
	if (rc != 0) {
		http_reset(s);
		return rc;
	}
	if (!s->no_body) {
		struct gw_transport *tr = s->conn->tr;
		uint64_t now = gw_now(tr->t);
		deadline_arm(&tr->stall, &s->stall, now);
		if (tr->t->cfg->limits.response_ms > 0)
			deadline_arm(&tr->response, &s->response, now);
	}
	conn_schedule(s->conn);
	return 0;
}

int http_reply(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields, const void *body,
	       size_t n)
{
	BUG_IF(s->answered, "a stream was answered twice");
	/* An empty body is allocated too: s->body marks the source as the transport's. */
	s->body = n <= UINT32_MAX ? sl_alloc(n) : NULL;
	if (s->body == NULL) {
		s->answered = true;
		http_reset(s);
		return SL_ENOMEM;
	}
	if (n > 0)
		memcpy(s->body, body, n);
	s->body_len = (uint32_t)n;
	s->expect_bytes = (int64_t)n;
	s->src = (struct http_source){pull_copy, s};
	return answer(s, status, fields, n_fields);
}

int http_reply_stream(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields,
		      struct http_source src)
{
	s->src = src;
	s->dry = false;
	int rc = answer(s, status, fields, n_fields);
	if (rc == 0 && s->recv_done)
		forget_request(s);
	return rc;
}

void stream_retract(struct http_stream *s)
{
	deadline_cancel(&s->stall);
	deadline_cancel(&s->response);
	sl_free(s->body);
	s->body = NULL;
	s->body_len = s->body_off = 0;
	s->expect_bytes = -1;
	s->src = (struct http_source){0};
	s->answered = s->waiting = s->ready = s->dry = false;
}

static struct rejection *rejection(int status)
{
	for (size_t i = 0; i < sizeof rejections / sizeof *rejections; i++)
		if (rejections[i].status == status)
			return &rejections[i];
	BUG("refused with %d", status);
}

void stream_count_rejected(int status) { metric_add(&rejection(status)->count, 1); }

/* OpenAI's error types. */
static const char *error_type(int status)
{
	return status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

/* The request's Origin, as far as its head has been read. */
static const char *origin_of(const struct http_stream *s)
{
	const char *origin = s->req.fields != NULL ? http_header(&s->req, "origin") : NULL;
	if (origin == NULL && s->head != NULL && s->head->has_origin)
		origin = (const char *)buf_data(&s->head->text) + s->head->origin;
	return origin;
}

static int print_error(const struct http_stream *s, struct sl_buf *b, int status, const char *message)
{
	const struct gw_limits *lim = &s->conn->tr->t->cfg->limits;
	int rc = buf_append_str(b, "{\"error\":{\"message\":\"");
	if (rc == 0 && status == 413)
		rc = buf_printf(b, "The body is larger than %llu bytes.", (unsigned long long)s->body_max);
	else if (rc == 0 && status == 431)
		rc = buf_printf(b, "The header fields have more than %llu bytes, or are more than %lld.",
				(unsigned long long)lim->header_bytes, (long long)lim->header_fields);
	else if (rc == 0)
		rc = buf_append_str(b, message);
	return rc != 0 ? rc
		       : buf_printf(b, "\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}\n", error_type(status),
				    rejection(status)->code);
}

int stream_error(struct http_stream *s, int status, const char *message)
{
	struct gw_transport *tr = s->conn->tr;
	struct http_refusal r = {
	    .status = status, .peer = s->req.peer != NULL ? s->req.peer : s->conn->peer, .origin = origin_of(s)};
	struct http_field fields[2 + HTTP_REFUSAL_FIELDS];
	size_t n = 0;
	struct sl_buf b;
	stream_count_rejected(status);
	if (tr->app->on_refusal != NULL)
		tr->app->on_refusal(tr->app_ctx, &r);
	BUG_IF(r.n > HTTP_REFUSAL_FIELDS, "an error with %zu fields", r.n);
	fields[n++] =
	    (struct http_field){"content-type", s->conn->wants_tls ? "text/plain; charset=utf-8" : "application/json"};
	if (status == 429 || status == 503)
		fields[n++] = (struct http_field){"retry-after", "1"};
	for (size_t i = 0; i < r.n; i++)
		fields[n++] = r.fields[i];
	buf_init(&b, 1024);
	int rc = s->conn->wants_tls ? buf_append_str(&b, message) : print_error(s, &b, status, message);
	if (rc == 0)
		rc = http_reply(s, status, fields, n, buf_data(&b), b.len);
	buf_dispose(&b);
	return rc;
}

void http_body_ready(struct http_stream *s)
{
	s->dry = false;
	if (s->ready || !s->answered || s->sent_done || s->closed)
		return;
	s->ready = true;
	if (!deadline_armed(&s->stall))
		deadline_arm(&s->conn->tr->stall, &s->stall, gw_now(s->conn->tr->t));
	s->conn->proto->body_ready(s);
	conn_schedule(s->conn);
}

void http_reset(struct http_stream *s)
{
	if (s->reset_wanted || s->closed)
		return;
	s->reset_wanted = true;
	s->conn->proto->reset(s);
	conn_schedule(s->conn);
}

bool http_answered(const struct http_stream *s) { return s->answered; }

void http_set_user(struct http_stream *s, void *user) { s->user = user; }

void *http_user(struct http_stream *s) { return s->user; }

struct gw_thread *http_thread(struct http_stream *s) { return s->conn->tr->t; }

uint32_t http_conn_number(const struct http_stream *s) { return s->conn->number; }

void http_prefetch(const struct http_stream *s, struct prefetch_hints *f)
{
	prefetch_add(f, s, offsetof(struct http_stream, response));
	/* That of HTTP/2 has other streams, of which the first one brings it. */
	if (s->conn->proto == &h1_proto) {
		prefetch_add(f, s->conn, offsetof(struct conn, filled));
		prefetch_add(f, s->conn->p, H1_HOT_BYTES);
	}
}

struct http_kept **http_kept(struct http_stream *s) { return &s->conn->kept; }

bool http_is_late(const struct http_stream *s) { return s->conn->late; }

const struct http_request *http_request(struct http_stream *s) { return &s->req; }

const char *http_length_text(int64_t n, char room[HTTP_LENGTH_CHARS])
{
	size_t at = HTTP_LENGTH_CHARS - 1;
	room[at] = '\0';
	do
		room[--at] = (char)('0' + n % 10);
	while ((n /= 10) > 0);
	return &room[at];
}

const char *http_reason(int status)
{
	switch (status) {
	case 200: return "OK";
	case 204: return "No Content";
	case 304: return "Not Modified";
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 408: return "Request Timeout";
	case 409: return "Conflict";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 415: return "Unsupported Media Type";
	case 417: return "Expectation Failed";
	case 422: return "Unprocessable Content";
	case 429: return "Too Many Requests";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 501: return "Not Implemented";
	case 503: return "Service Unavailable";
	case 505: return "HTTP Version Not Supported";
	case 529: return "Site is overloaded";
	default: return "Status";
	}
}
