/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker is a connection and the request on it. Its input goes through three small machines: the
 * answer's head, the chunks of its body (RFC 9112, 7.1), the lines of the event stream (WHATWG HTML,
 * "Server-sent events"). Content events are told by looking for their field, not by parsing JSON:
 * the client shares the machine with what it measures. One thread.
 */
#include "cmd/load_client.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <jansson.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"

enum { MAX_LINE = 1 << 20, MAX_HEAD = 64 << 10, MAX_BODY = 8 << 20, PROGRESS_MS = 500, CONNECT_S = 10 };

struct load;

struct worker {
	struct load *l;
	struct bufferevent *be; /* NULL: not connected */
	struct load_request *r; /* NULL: idle */
	struct evbuffer *body;  /* decoded, not yet cut into lines */
	bool head_done, chunked, ended, connected, used;
	long chunk_left; /* -1: its size comes next; -2: the line end after it */
	int64_t length_left;
};

struct load {
	const struct load_plan *plan;
	struct load_result *result;
	struct event_base *base;
	struct event *arrival, *deadline, *interrupt, *ticker;
	SSL_CTX *tls;
	struct sockaddr_storage to;
	socklen_t to_len;
	char host[256];
	struct worker *workers;
	int n_active, n_ended;
	uint64_t random;
	bool no_more;
};

static uint32_t draw(struct load *l, uint32_t below)
{
	l->random = l->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(l->random >> 33) % below;
}

static void begin(struct worker *w);

/* ---- ends ---- */

static void disconnect(struct worker *w)
{
	if (w->be != NULL)
		bufferevent_free(w->be);
	w->be = NULL;
	w->connected = w->used = false;
}

static struct worker *idle_worker(struct load *l)
{
	for (int i = 0; i < l->plan->n_streams; i++)
		if (l->workers[i].r == NULL)
			return &l->workers[i];
	return NULL;
}

static bool may_begin(const struct load *l)
{
	return !l->no_more && l->result->n < l->plan->n_requests;
}

static void over(struct worker *w, bool ok, const char *error)
{
	struct load *l = w->l;
	struct load_request *r = w->r;
	r->ok = ok;
	r->last_ns = clock_now_ns();
	if (error != NULL && r->error[0] == '\0')
		snprintf(r->error, sizeof r->error, "%s", error);
	w->r = NULL;
	l->n_active--;
	l->n_ended++;
	evbuffer_drain(w->body, evbuffer_get_length(w->body));
	if (!ok)
		disconnect(w);
	if (l->plan->rate == 0 && may_begin(l))
		begin(w);
	else if (l->n_active == 0 && !may_begin(l))
		event_base_loopbreak(l->base);
}

/* ---- the event stream ---- */

static void take_usage(struct load_request *r, const json_t *usage)
{
	r->n_prompt = (int)json_integer_value(json_object_get(usage, "prompt_tokens"));
	r->n_tokens = (int)json_integer_value(json_object_get(usage, "completion_tokens"));
	const json_t *details = json_object_get(usage, "prompt_tokens_details");
	r->n_cached = (int)json_integer_value(json_object_get(details, "cached_tokens"));
}

static void take_error(struct load_request *r, const json_t *error)
{
	const json_t *code = json_object_get(error, "code"), *type = json_object_get(error, "type");
	const char *text = json_string_value(json_is_string(code) ? code : type);
	snprintf(r->error, sizeof r->error, "%s", text != NULL ? text : "error");
}

static void token(struct load_request *r)
{
	uint64_t now = clock_now_ns();
	if (r->first_ns == 0)
		r->first_ns = now;
	if (r->n_events == r->room) {
		int room = r->room > 0 ? r->room * 2 : 64;
		uint64_t *grown = sl_realloc_n(r->token_ns, (size_t)room, sizeof *grown);
		if (grown == NULL)
			return;
		r->token_ns = grown;
		r->room = room;
	}
	r->token_ns[r->n_events++] = now;
}

/* True when it was the last. */
static bool take_data(struct load_request *r, const char *data)
{
	if (strcmp(data, "[DONE]") == 0)
		return true;
	const char *content = strstr(data, "\"content\":\"");
	if (content != NULL && content[11] != '"')
		token(r);
	if (strstr(data, "\"usage\":{") == NULL && strstr(data, "\"error\":{") == NULL)
		return false;
	json_t *o = json_loads(data, 0, NULL);
	if (json_is_object(json_object_get(o, "usage")))
		take_usage(r, json_object_get(o, "usage"));
	if (json_is_object(json_object_get(o, "error")))
		take_error(r, json_object_get(o, "error"));
	json_decref(o);
	return false;
}

static void take_lines(struct worker *w)
{
	char *line;
	while (w->r != NULL && !w->ended && (line = evbuffer_readln(w->body, NULL, EVBUFFER_EOL_CRLF)) != NULL) {
		if (strncmp(line, "data: ", 6) == 0)
			w->ended = take_data(w->r, line + 6);
		free(line);
	}
}

/* An answer that is no stream: an error. */
static void take_whole(struct worker *w)
{
	size_t n = evbuffer_get_length(w->body);
	json_t *o = n < MAX_LINE ? json_loadb((const char *)evbuffer_pullup(w->body, -1), n, 0, NULL) : NULL;
	if (json_is_object(json_object_get(o, "error")))
		take_error(w->r, json_object_get(o, "error"));
	else
		snprintf(w->r->error, sizeof w->r->error, "status %d", w->r->status);
	json_decref(o);
}

/* ---- the body ---- */

static void body_end(struct worker *w)
{
	if (w->r->status != 200)
		take_whole(w);
	else
		take_lines(w);
	over(w, w->ended && w->r->error[0] == '\0', w->ended ? NULL : "the stream ended early");
}

/* False: more bytes are needed, or the answer has ended. */
static bool take_chunk(struct worker *w, struct evbuffer *in)
{
	if (w->chunk_left > 0) {
		int n = evbuffer_remove_buffer(in, w->body, (size_t)w->chunk_left);
		if (n <= 0)
			return false;
		w->chunk_left -= n;
		if (w->chunk_left == 0)
			w->chunk_left = -2;
		if (w->r->status == 200)
			take_lines(w);
		return true;
	}
	char *line = evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF_STRICT);
	if (line == NULL)
		return false;
	if (w->chunk_left == -2) { /* the line end after a chunk */
		w->chunk_left = -1;
	} else if (w->chunk_left == 0) { /* after the last chunk: trailers, then an empty line */
		if (line[0] == '\0') {
			free(line);
			body_end(w);
			return false;
		}
	} else {
		w->chunk_left = strtol(line, NULL, 16);
		if (w->chunk_left < 0)
			w->chunk_left = 0;
	}
	free(line);
	return true;
}

static bool take_head(struct worker *w, struct evbuffer *in)
{
	struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
	if (end.pos < 0)
		return false;
	char *line;
	w->length_left = -1;
	w->chunked = false;
	for (bool first = true; (line = evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF_STRICT)) != NULL; first = false) {
		bool last = line[0] == '\0';
		if (first && strlen(line) > 12)
			w->r->status = atoi(line + 9);
		else if (strncasecmp(line, "content-length:", 15) == 0)
			w->length_left = atoll(line + 15);
		else if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0)
			w->chunked = true;
		free(line);
		if (last)
			break;
	}
	w->head_done = w->r->status != 100;
	w->chunk_left = -1;
	return true;
}

static void on_read(struct bufferevent *be, void *ctx)
{
	struct worker *w = ctx;
	struct evbuffer *in = bufferevent_get_input(be);
	while (w->r != NULL && !w->head_done)
		if (!take_head(w, in)) {
			if (evbuffer_get_length(in) > MAX_HEAD)
				over(w, false, "a head without end");
			return;
		}
	if (w->r == NULL)
		return;
	if (w->chunked) {
		while (w->r != NULL && take_chunk(w, in))
			;
		return;
	}
	if (w->length_left >= 0) {
		int n = evbuffer_remove_buffer(in, w->body, (size_t)w->length_left);
		w->length_left -= n > 0 ? n : 0;
		if (w->length_left == 0)
			body_end(w);
		return;
	}
	evbuffer_add_buffer(w->body, in);
	if (w->r->status == 200)
		take_lines(w);
}

static void on_event(struct bufferevent *be, short what, void *ctx)
{
	struct worker *w = ctx;
	(void)be;
	if (what & BEV_EVENT_CONNECTED) {
		w->connected = true;
		return;
	}
	bool was_connected = w->connected;
	if (w->r == NULL) { /* an idle connection that the server has closed */
		disconnect(w);
		return;
	}
	over(w, false, was_connected ? "the connection was closed" : "no connection");
}

/* ---- requests ---- */

static bool connect_worker(struct worker *w)
{
	struct load *l = w->l;
	if (w->be != NULL)
		return true;
	if (l->tls != NULL) {
		SSL *ssl = SSL_new(l->tls);
		w->be = ssl == NULL ? NULL
				    : bufferevent_openssl_socket_new(l->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING,
								     BEV_OPT_CLOSE_ON_FREE);
	} else {
		w->be = bufferevent_socket_new(l->base, -1, BEV_OPT_CLOSE_ON_FREE);
	}
	if (w->be == NULL)
		return false;
	bufferevent_setcb(w->be, on_read, NULL, on_event, w);
	bufferevent_enable(w->be, EV_READ | EV_WRITE);
	if (bufferevent_socket_connect(w->be, (struct sockaddr *)&l->to, (int)l->to_len) != 0) {
		disconnect(w);
		return false;
	}
	int one = 1;
	setsockopt(bufferevent_getfd(w->be), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return true;
}

/* A prompt of words, the first of them the same in all. */
static void put_prompt(struct load *l, struct evbuffer *out)
{
	static const char *const words[] = {"river", "stone", "letter", "window", "engine", "garden", "silver", "bridge",
					    "market", "winter", "doctor", "island", "yellow", "planet", "copper", "forest"};
	uint64_t shared = 7;
	for (int i = 0; i < l->plan->prompt_words; i++) {
		shared = shared * 6364136223846793005u + 1442695040888963407u;
		unsigned pick = i < l->plan->shared_words ? (unsigned)(shared >> 40) % 16 : draw(l, 16);
		evbuffer_add_printf(out, "%s%s", i > 0 ? " " : "", words[pick]);
	}
}

static void begin(struct worker *w)
{
	struct load *l = w->l;
	struct load_request *r = &l->result->requests[l->result->n++];
	w->r = r;
	w->head_done = w->ended = false;
	l->n_active++;
	r->begin_ns = clock_now_ns();
	struct evbuffer *body = evbuffer_new();
	if (body == NULL || !connect_worker(w)) {
		if (body != NULL)
			evbuffer_free(body);
		over(w, false, "no connection");
		return;
	}
	evbuffer_add_printf(body, "{\"model\":\"%s\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
				  "\"max_tokens\":%d,\"messages\":[{\"role\":\"user\",\"content\":\"", l->plan->model,
			    l->plan->max_tokens);
	put_prompt(l, body);
	evbuffer_add_printf(body, "\"}]}");
	struct evbuffer *out = bufferevent_get_output(w->be);
	evbuffer_add_printf(out, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
				 "Content-Length: %zu\r\n", l->host, evbuffer_get_length(body));
	if (l->plan->key != NULL)
		evbuffer_add_printf(out, "Authorization: Bearer %s\r\n", l->plan->key);
	evbuffer_add_printf(out, "\r\n");
	evbuffer_add_buffer(out, body);
	evbuffer_free(body);
}

static void next_arrival(struct load *l)
{
	double wait = -log((draw(l, 1000000) + 1) / 1000001.0) / l->plan->rate;
	struct timeval tv = {.tv_sec = (time_t)wait, .tv_usec = (suseconds_t)((wait - floor(wait)) * 1e6)};
	evtimer_add(l->arrival, &tv);
}

static void on_arrival(evutil_socket_t fd, short what, void *ctx)
{
	struct load *l = ctx;
	(void)fd;
	(void)what;
	if (!may_begin(l))
		return;
	struct worker *w = idle_worker(l);
	if (w != NULL) {
		begin(w);
	} else { /* more at once than was allowed: one that failed */
		struct load_request *r = &l->result->requests[l->result->n++];
		*r = (struct load_request){.begin_ns = clock_now_ns(), .last_ns = clock_now_ns()};
		snprintf(r->error, sizeof r->error, "no free stream");
		l->n_ended++;
	}
	if (may_begin(l))
		next_arrival(l);
	else if (l->n_active == 0)
		event_base_loopbreak(l->base);
}

static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct load *l = ctx;
	(void)fd;
	(void)what;
	if (l->no_more || l->n_active == 0)
		event_base_loopbreak(l->base);
	l->no_more = true;
}

static void on_interrupt(evutil_socket_t fd, short what, void *ctx)
{
	struct load *l = ctx;
	(void)fd;
	(void)what;
	l->result->interrupted = l->no_more = true;
	event_base_loopbreak(l->base);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct load *l = ctx;
	(void)fd;
	(void)what;
	fprintf(stderr, "\r%d of %d requests ", l->n_ended, l->plan->n_requests);
}

/* ---- the whole ---- */

static int resolve(struct load *l, struct sl_err *err)
{
	const char *at = l->plan->url, *rest;
	bool tls = strncmp(at, "https://", 8) == 0;
	if (!tls && strncmp(at, "http://", 7) != 0)
		return sl_errf(err, SL_EINVAL, "%s: it must begin with http:// or https://", at);
	at += tls ? 8 : 7;
	size_t n = strcspn(at, "/");
	rest = at + n;
	if (rest[0] != '\0' && strcmp(rest, "/") != 0)
		return sl_errf(err, SL_EINVAL, "%s: only a host and a port, without a path", l->plan->url);
	if (n == 0 || n >= sizeof l->host)
		return sl_errf(err, SL_EINVAL, "%s: no host", l->plan->url);
	memcpy(l->host, at, n);
	char name[256], *port = NULL;
	memcpy(name, at, n);
	name[n] = '\0';
	char *node = name;
	if (name[0] == '[' && strchr(name, ']') != NULL) {
		node = name + 1;
		char *close = strchr(name, ']');
		port = close[1] == ':' ? close + 2 : NULL;
		*close = '\0';
	} else if ((port = strrchr(name, ':')) != NULL) {
		*port++ = '\0';
	}
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	int rc = getaddrinfo(node, port != NULL ? port : tls ? "443" : "80", &hints, &found);
	if (rc != 0)
		return sl_errf(err, SL_EINVAL, "%s: %s", l->plan->url, gai_strerror(rc));
	memcpy(&l->to, found->ai_addr, found->ai_addrlen);
	l->to_len = found->ai_addrlen;
	freeaddrinfo(found);
	/* Better one clear sentence now than each request's failure. */
	int fd = socket(l->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 || connect(fd, (struct sockaddr *)&l->to, l->to_len) != 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	if (rc != 0)
		return sl_errf(err, SL_EIO, "%s: %s", l->plan->url, strerror(rc));
	if (tls && (l->tls = SSL_CTX_new(TLS_client_method())) == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	return 0;
}

static int prepare(struct load *l, struct sl_err *err)
{
	const struct load_plan *plan = l->plan;
	l->base = event_base_new();
	l->workers = sl_zalloc_n((size_t)plan->n_streams, sizeof *l->workers);
	l->result->requests = sl_zalloc_n((size_t)plan->n_requests, sizeof *l->result->requests);
	if (l->base == NULL || l->workers == NULL || l->result->requests == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	l->arrival = evtimer_new(l->base, on_arrival, l);
	l->deadline = event_new(l->base, -1, EV_PERSIST, on_deadline, l);
	l->interrupt = evsignal_new(l->base, SIGINT, on_interrupt, l);
	l->ticker = event_new(l->base, -1, EV_PERSIST, on_tick, l);
	struct timeval most = {.tv_sec = (time_t)plan->seconds + 1}, tick = {.tv_usec = PROGRESS_MS * 1000};
	bool ok = l->arrival && l->deadline && l->interrupt && l->ticker && event_add(l->deadline, &most) == 0 &&
		  event_add(l->interrupt, NULL) == 0 && (!plan->progress || event_add(l->ticker, &tick) == 0);
	for (int i = 0; i < plan->n_streams && ok; i++) {
		l->workers[i].l = l;
		ok = (l->workers[i].body = evbuffer_new()) != NULL;
	}
	return ok ? 0 : sl_errf(err, SL_ENOMEM, "out of memory");
}

int load_run(const struct load_plan *plan, struct load_result *out, struct sl_err *err)
{
	struct load l = {.plan = plan, .result = out, .random = plan->seed};
	*out = (struct load_result){0};
	int rc = resolve(&l, err);
	if (rc == 0)
		rc = prepare(&l, err);
	if (rc == 0) {
		uint64_t begin_ns = clock_now_ns();
		if (plan->rate > 0)
			next_arrival(&l);
		for (int i = 0; i < plan->n_streams && plan->rate == 0 && may_begin(&l); i++)
			begin(&l.workers[i]);
		event_base_dispatch(l.base);
		if (plan->progress)
			fprintf(stderr, "\r%*s\r", 40, "");
		out->seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
	}
	for (int i = 0; i < plan->n_streams && l.workers != NULL; i++) {
		struct worker *w = &l.workers[i];
		if (w->r != NULL) {
			snprintf(w->r->error, sizeof w->r->error, "it did not end in time");
			w->r->last_ns = clock_now_ns();
		}
		disconnect(w);
		if (w->body != NULL)
			evbuffer_free(w->body);
	}
	struct event *events[] = {l.arrival, l.deadline, l.interrupt, l.ticker};
	for (size_t i = 0; i < sizeof events / sizeof *events; i++)
		if (events[i] != NULL)
			event_free(events[i]);
	if (l.base != NULL)
		event_base_free(l.base);
	SSL_CTX_free(l.tls);
	sl_free(l.workers);
	if (rc != 0)
		load_result_dispose(out);
	return rc;
}

void load_result_dispose(struct load_result *r)
{
	for (int i = 0; i < r->n; i++)
		sl_free(r->requests[i].token_ns);
	sl_free(r->requests);
	*r = (struct load_result){0};
}
