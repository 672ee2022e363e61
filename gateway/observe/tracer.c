/* SPDX-License-Identifier: Apache-2.0
 *
 * Each batch is one request on a connection of its own: batches are a fifth of a second apart at least, and a collector
 * that was restarted is found again.
 */
#include "gateway/observe/tracer.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/observe/aside.h"
#include "gateway/observe/otlp.h"
#include "gateway/observe/trace.h"

enum {
	MAX_WAITING = 1 << 20,
	MAX_BODY = 4 << 20,
	MAX_REPLY = 64 << 10,
	MAX_SPANS = 32 << 10, /* of one answer */
	LINGER_MS = 200,
	PORT = 80,
	HOST_BYTES = 256,
};

#define LOST(var, why)                                                             \
	METRIC(var, METRIC_COUNTER, "sluice_traces_lost_total", "why=\"" why "\"", \
	       "Answers' traces that were not exported: the queue was full, or the collector did not take them")
LOST(lost_queue, "queue");
LOST(lost_export, "export");
COUNTER(exported, "sluice_traces_exported_total", "Answers' traces that the collector took");

struct tracer {
	struct aside *aside;
	double sample;
};

/* The exporter's. */
struct exporter {
	struct evhttp_uri *uri;
	char host[HOST_BYTES]; /* of uri, an IPv6 address without its brackets */
	uint64_t timeout_ms;
	bool failing;
	struct event_base *base; /* while a request runs */
	bool over;               /* it has a reply, or will have none */
	int status;              /* of the reply; 0: there was none */
	char endpoint[];
};

static int port_of(const struct evhttp_uri *uri)
{
	int port = evhttp_uri_get_port(uri);
	return port > 0 ? port : PORT;
}

/* NULL with the reason. */
static struct evhttp_uri *parse(const char *endpoint, struct sl_err *why)
{
	struct evhttp_uri *uri = evhttp_uri_parse(endpoint);
	const char *scheme = uri != NULL ? evhttp_uri_get_scheme(uri) : NULL,
		   *host = uri != NULL ? evhttp_uri_get_host(uri) : NULL;
	if (scheme != NULL && strcmp(scheme, "http") == 0 && host != NULL && host[0] != '\0' &&
	    strlen(host) < HOST_BYTES && port_of(uri) <= UINT16_MAX && evhttp_uri_get_userinfo(uri) == NULL &&
	    evhttp_uri_get_query(uri) == NULL && evhttp_uri_get_fragment(uri) == NULL)
		return uri;
	if (uri != NULL)
		evhttp_uri_free(uri);
	(void)sl_errf(why, SL_EINVAL, "an address such as http://127.0.0.1:4318/v1/traces is wanted");
	return NULL;
}

int tracer_check(const char *endpoint, struct sl_err *why)
{
	struct evhttp_uri *uri = parse(endpoint, why);
	if (uri == NULL)
		return SL_EINVAL;
	evhttp_uri_free(uri);
	return 0;
}

/* ---- the exporter's thread ---- */

static void on_reply(struct evhttp_request *r, void *ctx)
{
	struct exporter *x = ctx;
	x->status = r != NULL ? evhttp_request_get_response_code(r) : 0;
	x->over = true;
	event_base_loopbreak(x->base); /* else it waits for the limit */
}

static int add_request(struct exporter *x, struct evhttp_connection *c, const struct sl_buf *body)
{
	const char *host = evhttp_uri_get_host(x->uri), *path = evhttp_uri_get_path(x->uri);
	char authority[HOST_BYTES + 8];
	struct evhttp_request *r = evhttp_request_new(on_reply, x);
	if (r == NULL)
		return SL_ENOMEM;
	snprintf(authority, sizeof authority, "%s:%d", host, port_of(x->uri));
	struct evkeyvalq *fields = evhttp_request_get_output_headers(r);
	if (evhttp_add_header(fields, "Host", authority) != 0 ||
	    evhttp_add_header(fields, "Content-Type", "application/json") != 0 ||
	    evhttp_add_header(fields, "Connection", "close") != 0 ||
	    evbuffer_add(evhttp_request_get_output_buffer(r), buf_data(body), body->len) != 0) {
		evhttp_request_free(r);
		return SL_ENOMEM;
	}
	/* It owns r from here on. */
	return evhttp_make_request(c, r, EVHTTP_REQ_POST, path != NULL && path[0] != '\0' ? path : "/") == 0 ? 0
													     : SL_EIO;
}

/* The reply's status; 0: there was none in time. */
static int post(struct exporter *x, const struct sl_buf *body)
{
	struct event_base *base = event_base_new();
	struct evhttp_connection *c = NULL;
	const struct timeval limit = {.tv_sec = (time_t)(x->timeout_ms / 1000),
				      .tv_usec = (suseconds_t)(x->timeout_ms % 1000 * 1000)};
	x->status = 0;
	x->over = false;
	x->base = base;
	if (base != NULL)
		c = evhttp_connection_base_new(base, NULL, x->host, (uint16_t)port_of(x->uri));
	if (c != NULL) {
		evhttp_connection_set_timeout_tv(c, &limit);
		evhttp_connection_set_max_body_size(c, MAX_REPLY);
		evhttp_connection_set_max_headers_size(c, MAX_REPLY);
		event_base_loopexit(base, &limit); /* whatever the collector does, byte by byte */
		if (add_request(x, c, body) == 0 && !x->over)
			event_base_dispatch(base);
		evhttp_connection_free(c);
	}
	if (base != NULL)
		event_base_free(base);
	return x->status;
}

static void log_change(struct exporter *x, bool good)
{
	if (!good && !x->failing && x->status != 0)
		log_warn("trace.endpoint: %.200s answers %d: traces are dropped until it takes them", x->endpoint,
			 x->status);
	else if (!good && !x->failing)
		log_warn("trace.endpoint: %.200s does not answer: traces are dropped until it does", x->endpoint);
	else if (good && x->failing)
		log_info("trace.endpoint: %.200s takes traces again", x->endpoint);
	x->failing = !good;
}

static bool take(void *ctx, const char *lines, size_t n)
{
	struct exporter *x = ctx;
	struct sl_buf body;
	buf_init(&body, MAX_BODY);
	x->status = 0;
	int status = otlp_wrap(&body, lines, n) == 0 ? post(x, &body) : 0;
	bool good = status >= 200 && status < 300;
	buf_dispose(&body);
	log_change(x, good);
	return good;
}

static void dispose(void *ctx)
{
	struct exporter *x = ctx;
	evhttp_uri_free(x->uri);
	sl_free(x);
}

/* ---- */

static int create_exporter(const char *endpoint, uint64_t timeout_ms, struct exporter **out, struct sl_err *err)
{
	struct sl_err why = {0};
	size_t n = strlen(endpoint) + 1;
	struct evhttp_uri *uri = parse(endpoint, &why);
	if (uri == NULL)
		return sl_errf(err, SL_EINVAL, "trace.endpoint: %s", why.text);
	struct exporter *x = sl_zalloc(sizeof *x + n);
	if (x == NULL) {
		evhttp_uri_free(uri);
		return sl_errf(err, SL_ENOMEM, "trace.endpoint: no memory");
	}
	x->uri = uri;
	const char *host = evhttp_uri_get_host(uri);
	snprintf(x->host, sizeof x->host, "%.*s", (int)strcspn(host + (host[0] == '['), "]"), host + (host[0] == '['));
	x->timeout_ms = timeout_ms;
	memcpy(x->endpoint, endpoint, n);
	*out = x;
	return 0;
}

int tracer_create(const char *endpoint, double sample, uint64_t timeout_ms, struct tracer **out, struct sl_err *err)
{
	static const struct aside_ops ops = {.thread = "traces",
					     .key = "trace.endpoint",
					     .max_bytes = MAX_WAITING,
					     .linger_ms = LINGER_MS,
					     .taken = &exported,
					     .full = &lost_queue,
					     .failed = &lost_export,
					     .take = take,
					     .dispose = dispose};
	struct exporter *x;
	*out = NULL;
	int rc = create_exporter(endpoint, timeout_ms, &x, err);
	if (rc != 0)
		return rc;
	struct tracer *t = sl_zalloc(sizeof *t);
	rc = t == NULL ? sl_errf(err, SL_ENOMEM, "trace.endpoint: no memory") : aside_create(&ops, x, &t->aside, err);
	if (rc != 0) {
		dispose(x);
		sl_free(t);
		return rc;
	}
	t->sample = sample;
	*out = t;
	return 0;
}

double tracer_sample(const struct tracer *t) { return t->sample; }

static uint64_t unix_offset(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec - clock_now_ns();
}

void tracer_put(struct tracer *t, const struct observed *o, const struct trace *trace)
{
	struct sl_buf line;
	buf_init(&line, MAX_SPANS);
	aside_put(t->aside, otlp_print(&line, o, trace, unix_offset()), &line);
	buf_dispose(&line);
}

void tracer_destroy(struct tracer *t)
{
	if (t == NULL)
		return;
	aside_destroy(t->aside);
	sl_free(t);
}
