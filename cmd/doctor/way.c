/* SPDX-License-Identifier: Apache-2.0
 *
 * The way to a server. First what ends the examination: no connection, something else than Sluice, a key that is not
 * accepted. Then streams of GET /v1/probe show what lies between: when events arrive, what the response's fields have
 * become, what the first event says of the request, and whether a disconnect comes through. The quiet stream runs
 * beside all others.
 *
 * A busy machine also makes events late, so buffering is only reported if a second, slower stream shows it too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/doctor/doctor.h"
#include "cmd/doctor/probe_stream.h"
#include "cmd/doctor/remedies.h"

enum {
	EVENTS = 5,
	INTERVAL_MS = 200,
	SLOW_INTERVAL_MS = 600,
	LATE_MS = 250, /* worth a warning */
	SILENCE_MS = 30000,
	POLLS = 100, /* until a disconnect must have come through */
	POLL_MS = 100,
	BODY_BYTES = 1000000, /* nearly gateway.limits.body_bytes */
	FIELD_MAX = 256,
};

struct way {
	struct report *r;
	const struct http_server *server;
	struct http_client *client; /* sends the key */
	enum proxy proxy;
	bool named; /* something between is visible */
	bool buffers;
	char server_field[FIELD_MAX], via[FIELD_MAX];
	int version;
};

static void fail(struct way *w, enum way_fault f, const char *topic, const char *what)
{
	report_add(w->r, REPORT_FAIL, topic, "%s", what);
	report_change(w->r, "%s", remedy_of(w->proxy, f));
}

static void field_of(const struct http_call *c, const char *name, char out[FIELD_MAX])
{
	if (!http_call_field(c, name, out, FIELD_MAX))
		out[0] = '\0';
}

/* Every response of Sluice has an id. */
static bool is_ours(const struct http_call *c)
{
	char id[FIELD_MAX];
	return http_call_field(c, "x-request-id", id, sizeof id) && strncmp(id, "req_", 4) == 0;
}

static bool text_has(const struct http_call *c, const char *what)
{
	return c->text.len > 0 && memmem(buf_data(&c->text), c->text.len, what, strlen(what)) != NULL;
}

/* ---- what ends the examination ---- */

static void explain_connection(struct way *w, const struct http_call *c)
{
	bool certificate = strcasestr(c->why, "certificate") != NULL;
	report_add(w->r, REPORT_FAIL, certificate ? "certificate" : "connection", "%s: %s", w->server->url, c->why);
	if (certificate)
		report_change(w->r, "the server's certificate: for this name, not expired, with its intermediates; or "
				    "--cacert FILE for an authority of your own");
	else if (strcasestr(c->why, "refused") != NULL || strcasestr(c->why, "connect to") != NULL)
		report_change(w->r, "start what listens there, or open the port in the firewall");
	else if (strcasestr(c->why, "resolve") != NULL)
		report_change(w->r, "the name in the URL, or its DNS record");
	else if (strcasestr(c->why, "SSL") != NULL)
		report_change(w->r, "http:// instead of https://, if that port speaks no TLS");
	else
		report_change(w->r, "https:// instead of http://, if that port speaks TLS");
}

static void explain_stranger(struct way *w, const struct http_call *c)
{
	if (is_ours(c)) {
		char why[FIELD_MAX];
		snprintf(why, sizeof why, "%.*s", (int)c->text.len,
			 c->text.len > 0 ? (const char *)buf_data(&c->text) : "");
		why[strcspn(why, "\r\n")] = '\0';
		report_add(w->r, REPORT_FAIL, "connection", "Sluice answers with status %d: %s", c->status, why);
		report_change(w->r, text_has(c, "HTTPS") ? "the URL: https:// instead of http://"
							 : "the URL: without a path");
		return;
	}
	bool gateway = c->status == 502 || c->status == 503 || c->status == 504;
	report_add(w->r, REPORT_FAIL, "server", "something else answers here: Server: %s, status %d%s",
		   w->server_field[0] != '\0' ? w->server_field : "(none)", c->status,
		   gateway ? ": the proxy does not reach Sluice" : "");
	report_change(w->r, "%s", gateway ? remedy_of(w->proxy, WAY_UPSTREAM) : "the URL: host and port of Sluice");
}

static void note_proxy(struct way *w, const struct http_call *c)
{
	field_of(c, "server", w->server_field);
	field_of(c, "via", w->via);
	w->named = w->server_field[0] != '\0' || w->via[0] != '\0';
	w->proxy = proxy_of(w->server_field, w->via);
	w->version = c->version;
}

static void report_version(struct way *w)
{
	const bool https = strncmp(w->server->url, "https:", 6) == 0;
	if (https && w->version > 0 && w->version < 20) {
		report_add(w->r, REPORT_WARN, "protocol",
			   "https without HTTP/2: a browser opens at most six streams at a time");
		report_change(w->r, "%s", remedy_of(w->proxy, WAY_NO_HTTP2));
	} else {
		report_add(w->r, REPORT_OK, "protocol", "HTTP/%s%s",
			   w->version >= 20   ? "2"
			   : w->version == 10 ? "1.0"
					      : "1.1",
			   https ? " over TLS" : "");
	}
}

/* GET /live, without the key: what answers may be anything. */
static bool reach(struct way *w)
{
	struct http_server bare = *w->server;
	struct http_client *c = NULL;
	struct sl_err err = {0};
	struct http_call call = {.method = "GET", .path = "/live"};
	bare.key = NULL;
	if (http_client_create(&bare, &c, &err) != 0 || http_call_run(c, &call, NULL) != 0) {
		report_add(w->r, REPORT_FAIL, "connection", "%s", err.code != 0 ? err.text : "no memory");
		http_client_destroy(c);
		return false;
	}
	bool answered = call.end == HTTP_DONE;
	note_proxy(w, &call);
	bool live = answered && call.status == 200 && text_has(&call, "\"live\"");
	if (!answered)
		explain_connection(w, &call);
	else if (!live)
		explain_stranger(w, &call);
	else
		report_add(w->r, REPORT_OK, "server", "Sluice answers at %s%s%s in %.1f ms", w->server->url,
			   w->named ? " through " : "",
			   !w->named                   ? ""
			   : w->proxy == PROXY_UNKNOWN ? "a proxy"
						       : proxy_name(w->proxy),
			   (double)call.us_end / 1000);
	if (live)
		report_version(w);
	http_call_dispose(&call);
	http_client_destroy(c);
	return live;
}

static void explain_key(struct way *w, const struct http_call *c)
{
	char why[512];
	http_call_explain(c, why, sizeof why);
	if (c->status == 401 && w->server->key == NULL) {
		report_add(w->r, REPORT_FAIL, "key", "the server needs an API key, and none was given");
		report_change(w->r, "SLUICE_KEY=KEY, or --key-file FILE");
	} else if (c->status == 401 && text_has(c, "provide an API key")) {
		fail(w, WAY_STRIPS_KEY, "key", "a proxy removes the header Authorization: the key does not arrive");
	} else if (c->status == 401 && is_ours(c)) {
		report_add(w->r, REPORT_FAIL, "key", "the server does not accept this key: %s", why);
		report_change(w->r, "SLUICE_KEY or --key-file: a key of `sluice keys list`, or of gateway.keys");
	} else if (c->status == 401 || c->status == 407) {
		report_add(w->r, REPORT_FAIL, "key", "a proxy asks for credentials of its own (status %d)", c->status);
		report_change(w->r, "the proxy's authentication: off for this address");
	} else {
		report_add(w->r, REPORT_FAIL, "key", "%s", why);
		report_change(w->r, c->status == 403 ? "a key of a tier, not an administrator's"
						     : "the server: it lacks /v1/probe, or refuses this client");
	}
}

/* The end of a probe that never was: 404 shows that the key is accepted. */
static bool try_key(struct way *w)
{
	struct http_call call = {.method = "GET", .path = "/v1/probe/none"};
	bool good = http_call_run(w->client, &call, NULL) == 0 && call.end == HTTP_DONE && call.status == 404 &&
		    text_has(&call, "probe_not_found");
	if (good)
		report_add(w->r, REPORT_OK, "key", w->server->key != NULL ? "accepted" : "none is needed");
	else
		explain_key(w, &call);
	http_call_dispose(&call);
	return good;
}

/* ---- streams ---- */

static bool finish(struct way *w, const struct probe_stream *p)
{
	while (!p->ended)
		http_client_turn(w->client, POLL_MS);
	return p->last;
}

static bool looks_buffered(const struct probe_stream *p)
{
	uint64_t late, sent, came;
	probe_stream_times(p, &late, &sent, &came);
	return p->n > 1 && came < sent / 2;
}

/* A second look, at a slower stream. */
static bool is_buffered(struct way *w)
{
	struct probe_stream p = {.stops = false};
	bool is = probe_stream_start(&p, w->client, EVENTS, SLOW_INTERVAL_MS, 0, false) == 0 && finish(w, &p) &&
		  looks_buffered(&p);
	probe_stream_dispose(&p);
	return is;
}

static void judge_times(struct way *w, const struct probe_stream *p)
{
	uint64_t late, sent, came;
	probe_stream_times(p, &late, &sent, &came);
	w->buffers = looks_buffered(p) && is_buffered(w);
	if (w->buffers) {
		fail(w, WAY_BUFFERS, "streaming", "a proxy buffers the stream: its events arrive together at the end");
	} else if (late > LATE_MS) {
		report_add(w->r, REPORT_WARN, "streaming",
			   "an event came %" PRIu64 " ms late: buffering, or a busy machine", late);
		report_change(w->r, "%s", remedy_of(w->proxy, WAY_BUFFERS));
	} else {
		report_add(w->r, REPORT_OK, "streaming", "each event arrives by itself, at most %" PRIu64 " ms late",
			   late);
	}
}

static void judge_type(struct way *w, const struct http_call *c)
{
	char type[FIELD_MAX], what[2 * FIELD_MAX];
	field_of(c, "content-type", type);
	if (strncasecmp(type, "text/event-stream", 17) == 0)
		return;
	snprintf(what, sizeof what, "a proxy changes text/event-stream to %s", type[0] != '\0' ? type : "nothing");
	fail(w, WAY_RETYPES, "content type", what);
}

static void judge_encoding(struct way *w, const struct http_call *c)
{
	char encoding[FIELD_MAX], what[2 * FIELD_MAX];
	field_of(c, "content-encoding", encoding);
	if (encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0) {
		report_add(w->r, REPORT_OK, "compression", "streams are not compressed");
		return;
	}
	snprintf(what, sizeof what, "a proxy compresses text/event-stream (Content-Encoding: %s), which delays events",
		 encoding);
	fail(w, WAY_COMPRESSES, "compression", what);
}

/* ---- how the request arrives ---- */

/* An address in a list of them, as a whole. */
static bool lists(const char *list, const char *address)
{
	size_t n = strlen(address);
	for (const char *at = list; n > 0 && at != NULL && (at = strcasestr(at, address)) != NULL; at += n) {
		static const char around[] = " ,;=\"[]:";
		bool from = at == list || strchr(around, at[-1]) != NULL;
		if (from && strchr(around, at[n]) != NULL)
			return true;
	}
	return false;
}

static void judge_address(struct way *w, const struct probe_stream *p)
{
	const char *client = probe_stream_text(p, "client"), *xff = probe_stream_text(p, "x_forwarded_for");
	const char *forwarded = probe_stream_text(p, "forwarded");
	char what[1024];
	client = client != NULL ? client : "";
	if (lists(xff, client) || lists(forwarded, client)) {
		report_add(w->r, REPORT_OK, "address", "the server knows the client as %s", client);
	} else if (xff != NULL || forwarded != NULL) {
		report_add(w->r, REPORT_FAIL, "address",
			   "the proxy reports the client as %s, but Sluice does not trust it: all clients count as %s",
			   xff != NULL ? xff : forwarded, client);
		report_change(w->r, "gateway: { trusted_proxies: [\"%s\"], forwarded: %s }", client,
			      xff != NULL ? "x-forwarded-for" : "forwarded");
	} else if (w->named) {
		snprintf(what, sizeof what, "%s does not report the client: all clients count as %s",
			 proxy_name(w->proxy), client);
		fail(w, WAY_NO_ADDRESS, "address", what);
	} else {
		report_add(w->r, REPORT_OK, "address", "no proxy is visible; the server knows the client as %s",
			   client);
	}
}

static void judge_arrival(struct way *w, const struct probe_stream *p)
{
	const char *http = probe_stream_text(p, "http");
	bool tls = json_is_true(json_object_get(p->first, "tls"));
	http = http != NULL ? http : "";
	if (strcmp(http, w->version >= 20 ? "2" : "1.1") != 0 || tls != (strncmp(w->server->url, "https:", 6) == 0) ||
	    probe_stream_text(p, "via") != NULL)
		w->named = true;
	if (strcmp(http, "1.0") == 0)
		fail(w, WAY_HTTP10, "upstream",
		     "the proxy reaches Sluice by HTTP/1.0: a connection for each request, and no chunks");
	else
		report_add(w->r, REPORT_OK, "upstream", "requests reach Sluice by HTTP/%s%s", http,
			   tls ? " over TLS" : "");
	judge_address(w, p);
}

static void explain_stream(struct way *w, const struct http_call *c)
{
	char why[512];
	http_call_explain(c, why, sizeof why);
	report_add(w->r, REPORT_FAIL, "streaming", "no event of a stream arrives: %s", why);
	report_change(w->r, "%s", remedy_of(w->proxy, WAY_BUFFERS));
}

static void examine_streams(struct way *w)
{
	struct probe_stream timed = {.stops = false}, packed = {.stops = false};
	report_progress(w->r, "timing a stream");
	bool started = probe_stream_start(&timed, w->client, EVENTS, INTERVAL_MS, 0, false) == 0;
	probe_stream_start(&packed, w->client, 1, 0, 0, true);
	if (started)
		finish(w, &timed);
	finish(w, &packed);
	if (timed.first == NULL) {
		explain_stream(w, &timed.call);
	} else {
		judge_times(w, &timed);
		judge_type(w, &timed.call);
		judge_encoding(w, &packed.call);
		judge_arrival(w, &timed);
	}
	probe_stream_dispose(&timed);
	probe_stream_dispose(&packed);
}

/* ---- a client that leaves ---- */

static bool has_left(struct way *w, const char *path)
{
	struct http_call call = {.method = "GET", .path = path};
	bool left = http_call_run(w->client, &call, NULL) == 0 && call.status == 200 && text_has(&call, "\"left\"");
	http_call_dispose(&call);
	return left;
}

static bool disconnect_arrives(struct way *w, const char *id)
{
	char path[128];
	const struct timespec pause = {.tv_nsec = POLL_MS * NS_PER_MS};
	snprintf(path, sizeof path, "/v1/probe/%.90s", id);
	for (int i = 0; i < POLLS; i++) {
		if (has_left(w, path))
			return true;
		http_client_turn(w->client, 0);
		nanosleep(&pause, NULL);
	}
	return false;
}

static void examine_leaving(struct way *w)
{
	struct probe_stream p = {.stops = true};
	if (w->buffers)
		return;
	report_progress(w->r, "leaving a stream");
	if (probe_stream_start(&p, w->client, 1, 0, SILENCE_MS, false) == 0)
		finish(w, &p);
	const char *id = probe_stream_text(&p, "id");
	if (id == NULL)
		explain_stream(w, &p.call);
	else if (disconnect_arrives(w, id))
		report_add(w->r, REPORT_OK, "disconnects", "Sluice notices that a client has left");
	else
		fail(w, WAY_KEEPS, "disconnects",
		     "Sluice does not notice that a client has left: its answer is computed to the end");
	probe_stream_dispose(&p);
}

/* ---- a large body ---- */

static void judge_body(struct way *w, const struct http_call *c)
{
	char what[FIELD_MAX];
	if (c->end == HTTP_DONE && is_ours(c) && c->status != 413) {
		report_add(w->r, REPORT_OK, "bodies", "1 MB arrives");
	} else if (c->end == HTTP_DONE && is_ours(c)) {
		report_add(w->r, REPORT_WARN, "bodies", "Sluice accepts less than 1 MB");
		report_change(w->r, "gateway: { limits: { body_bytes: 1MiB } }");
	} else if (c->end == HTTP_DONE && c->status == 413) {
		fail(w, WAY_REFUSES, "bodies", "a proxy refuses a body of 1 MB with status 413");
	} else {
		snprintf(what, sizeof what, "a body of 1 MB does not arrive: status %d %.200s", c->status, c->why);
		fail(w, WAY_REFUSES, "bodies", what);
	}
}

/* A request without messages, which Sluice reads as a whole and refuses. */
static void examine_body(struct way *w)
{
	static const char head[] = "{\"model\":\"default\",\"messages\":[],\"user\":\"", tail[] = "\"}";
	char *body = sl_alloc(BODY_BYTES);
	struct http_call call = {.method = "POST", .path = "/v1/chat/completions", .body = body, .n_body = BODY_BYTES};
	report_progress(w->r, "sending a large body");
	if (body != NULL) {
		memset(body, 'x', BODY_BYTES);
		memcpy(body, head, sizeof head - 1);
		memcpy(body + BODY_BYTES - (sizeof tail - 1), tail, sizeof tail - 1);
	}
	if (body == NULL || http_call_run(w->client, &call, NULL) != 0)
		report_add(w->r, REPORT_FAIL, "bodies", "no memory");
	else
		judge_body(w, &call);
	http_call_dispose(&call);
	sl_free(body);
}

/* ---- silence ---- */

static void judge_quiet(struct way *w, const struct probe_stream *p, uint32_t quiet_s)
{
	char what[FIELD_MAX];
	if (p->last) {
		report_add(w->r, REPORT_OK, "silence", "a stream that is quiet for %" PRIu32 " s stays open", quiet_s);
	} else if (p->first == NULL) {
		explain_stream(w, &p->call);
	} else {
		snprintf(what, sizeof what, "a proxy closes a quiet stream after %.0f s", (double)p->call.us_end / 1e6);
		fail(w, WAY_TIMES_OUT, "silence", what);
	}
}

void check_way(struct report *r, const struct http_server *server, uint32_t quiet_s)
{
	struct way w = {.r = r, .server = server};
	struct probe_stream quiet = {.stops = false};
	struct sl_err err;
	int rc = http_client_create(server, &w.client, &err);
	if (rc != 0) {
		report_add(r, REPORT_FAIL, "connection", "%s", rc == SL_ENOMEM ? "no memory" : err.text);
		report_change(r, "%s", rc == SL_EINVAL ? "the URL" : "install libcurl4");
		return;
	}
	report_progress(r, "connecting");
	if (reach(&w) && try_key(&w)) {
		bool silent = quiet_s > 0 && probe_stream_start(&quiet, w.client, 1, 0, 1000 * quiet_s, false) == 0;
		examine_streams(&w);
		examine_leaving(&w);
		examine_body(&w);
		report_progress(r, "waiting on a quiet stream");
		if (silent) {
			finish(&w, &quiet);
			judge_quiet(&w, &quiet, quiet_s);
		}
	}
	http_client_destroy(w.client);
	probe_stream_dispose(&quiet);
}
