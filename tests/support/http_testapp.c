/* SPDX-License-Identifier: Apache-2.0
 *
 * A small application behind struct http_app, to run curl, nghttp, h2load and probes against:
 *
 *   http_testapp [--http ADDR:PORT] [--https ADDR:PORT] [--cert F --key F] [--threads N]
 *
 *   GET  /small.txt      a short answer
 *   GET  /big?N          N bytes
 *   GET  /stream?N       N events, as fast as the client reads
 *   GET  /ticks?N        N events, one every 20 ms
 *   GET  /never          no answer
 *   POST /echo           the request's body
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/server/process.h"

enum { EVENT_BYTES = 224, TICK_MS = 20 };

struct exchange {
	struct sl_buf body;
	long left;
	size_t at; /* in the current event */
	bool ticks, due;
	struct event *timer;
};

/* The gateway's type name for an application's state; here the test's own. */
struct gw_app {
	struct gw_thread *t;
};

static ssize_t pull_bytes(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct exchange *x = ctx;
	size_t n = (size_t)x->left < room ? (size_t)x->left : room;
	memset(dst, 'x', n);
	x->left -= (long)n;
	*end = x->left == 0;
	return (ssize_t)n;
}

/* Events as one byte sequence, cut at the end of the buffer. */
static ssize_t pull_events(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct exchange *x = ctx;
	size_t n = 0;
	while (n < room && x->left > 0 && (!x->ticks || x->due)) {
		size_t at = x->at;
		dst[n++] = at < 6 ? (uint8_t) "data: "[at] : at < EVENT_BYTES - 2 ? 'e' : '\n';
		if (++x->at == EVENT_BYTES) {
			x->at = 0;
			x->left--;
			x->due = false;
		}
	}
	*end = x->left == 0;
	return (ssize_t)n;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct http_stream *s = arg;
	struct exchange *x = http_user(s);
	x->due = true;
	http_body_ready(s);
}

static void on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	static const struct http_field text = {"content-type", "text/plain"};
	static const struct http_field sse = {"content-type", "text/event-stream"};
	struct gw_thread *t = ((struct gw_app *)ctx)->t;
	struct exchange *x = sl_zalloc(sizeof *x);
	if (x == NULL) {
		http_reset(s);
		return;
	}
	buf_init(&x->body, 8 << 20);
	http_set_user(s, x);
	x->left = atol(r->query);
	if (strcmp(r->path, "/small.txt") == 0) {
		http_reply(s, 200, &text, 1, "hello\n", 6);
	} else if (strcmp(r->path, "/big") == 0) {
		http_reply_stream(s, 200, &text, 1, (struct http_source){pull_bytes, x});
	} else if (strcmp(r->path, "/stream") == 0) {
		http_reply_stream(s, 200, &sse, 1, (struct http_source){pull_events, x});
	} else if (strcmp(r->path, "/ticks") == 0) {
		const struct timeval tv = {.tv_usec = TICK_MS * 1000};
		x->ticks = true;
		x->timer = event_new(t->base, -1, EV_PERSIST, on_timer, s);
		event_add(x->timer, &tv);
		http_reply_stream(s, 200, &sse, 1, (struct http_source){pull_events, x});
	} else if (strcmp(r->path, "/echo") != 0 && strcmp(r->path, "/never") != 0) {
		http_reply(s, 404, &text, 1, "not found\n", 10);
	}
}

static void on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	(void)ctx;
	struct exchange *x = http_user(s);
	if (buf_append(&x->body, data, n) != 0)
		http_reset(s);
}

static void on_body_end(void *ctx, struct http_stream *s)
{
	(void)ctx;
	struct exchange *x = http_user(s);
	if (strcmp(http_request(s)->path, "/echo") == 0)
		http_reply(s, 200, NULL, 0, buf_data(&x->body), x->body.len);
}

static void on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	(void)ctx;
	struct exchange *x = http_user(s);
	log_debug("closed %s: %d", http_request(s)->path, (int)why);
	if (x->timer != NULL)
		event_free(x->timer);
	buf_dispose(&x->body);
	sl_free(x);
}

static const struct http_app testapp = {on_request, on_body, on_body_end, on_close, NULL};

static int create(struct gw_thread *t, struct gw_app **out, struct sl_err *err)
{
	*out = sl_zalloc(sizeof **out);
	if (*out == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	(*out)->t = t;
	return 0;
}

static void destroy(struct gw_app *app) { sl_free(app); }

static bool ready(struct gw_app *app) { return !app->t->draining; }

static struct conf_address address(const char *text)
{
	struct conf_address a = {0};
	const char *colon = strrchr(text, ':');
	snprintf(a.text, sizeof a.text, "%s", text);
	size_t n = colon == NULL ? 0 : (size_t)(colon - text);
	if (n >= 2 && text[0] == '[') {
		text++;
		n -= 2;
	}
	snprintf(a.host, sizeof a.host, "%.*s", (int)n, text);
	a.port = (uint16_t)atoi(colon == NULL ? "0" : colon + 1);
	return a;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	    {"http", required_argument, NULL, 'h'},    {"https", required_argument, NULL, 's'},
	    {"cert", required_argument, NULL, 'c'},    {"key", required_argument, NULL, 'k'},
	    {"threads", required_argument, NULL, 't'}, {"stall", required_argument, NULL, 'l'},
	    {"debug", no_argument, NULL, 'd'},         {0}};
	struct gw_config cfg = {
	    .threads = 1,
	    .cert_file = (char[]){""},
	    .key_file = (char[]){""},
	    .drain_ms = 3000,
	    .beat_fd = -1,
	    .beat_ms = 200,
	    .stale_ms = 5000,
	    .limits = {.connections = 2000,
		       .streams_per_connection = 128,
		       .header_bytes = 16384,
		       .header_fields = 100,
		       .body_bytes = 4 << 20,
		       .handshake_ms = 5000,
		       .header_ms = 5000,
		       .body_ms = 30000,
		       .idle_ms = 60000,
		       .stall_ms = 30000,
		       .output_bytes = 262144,
		       .resets_per_s = 10,
		       .resets_burst = 100,
		       .refused_per_s = 5,
		       .refused_burst = 50,
		       .control_frames_per_s = 50,
		       .control_frames_burst = 200},
	};
	cfg.http.off = cfg.https.off = true;
	log_init("testapp", LOG_INFO);
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'h': cfg.http = address(optarg); break;
		case 's': cfg.https = address(optarg); break;
		case 'c': cfg.cert_file = optarg; break;
		case 'k': cfg.key_file = optarg; break;
		case 't': cfg.threads = atoi(optarg); break;
		case 'l': cfg.limits.stall_ms = (uint64_t)atoi(optarg); break;
		case 'd': log_init("testapp", LOG_DEBUG); break;
		default: return 2;
		}
	}
	static const struct gw_app_ops ops = {.create = create, .destroy = destroy, .ready = ready, .http = &testapp};
	return gateway_serve(&cfg, &ops);
}
