/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "engine/remote/remote_fault.h"
#include "engine/remote/remote_http_priv.h"

enum {
	ERROR_TEXT_MAX = 64 << 10, /* of an error's body */
	RETRY_AFTER_MAX = 24 * 3600,
	TOO_LARGE = 100, /* CURLE_TOO_LARGE, of newer versions than the header may be */
};

/* A socket that libcurl waits for. */
struct wait {
	struct event *event;
};

bool remote_url_fits(const char *url)
{
	size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
	size_t n = strlen(url);
	if (scheme == 0 || n == scheme || n >= REMOTE_URL_MAX || url[n - 1] == '/' || url[scheme] == '/' ||
	    url[scheme] == ':')
		return false;
	for (size_t i = 0; i < n; i++)
		if (url[i] <= ' ' || url[i] > '~' || strchr("?#@\\\"<>", url[i]) != NULL)
			return false;
	return true;
}

/* ---- faults ---- */

void remote_call_fail(struct remote_call *c, enum proto_fault fault, const char *why)
{
	if (c->failed)
		return;
	c->failed = true;
	c->fault = fault;
	snprintf(c->why, sizeof c->why, "%s", why);
	text_one_line(c->why, ' ');
}

bool remote_call_failed(const struct remote_call *c) { return c->failed; }

/* Was it the handshake that took too long? */
static bool was_in_handshake(const struct remote_call *c)
{
	curl_off_t connected = 0, tls = 0;
	c->http->lib->curl_easy_getinfo(c->easy, CURLINFO_CONNECT_TIME_T, &connected);
	c->http->lib->curl_easy_getinfo(c->easy, CURLINFO_APPCONNECT_TIME_T, &tls);
	/* Older versions do not report the connection of a transfer that failed, but say so. */
	return c->http->tls && tls == 0 && (connected > 0 || strncmp(c->said, "SSL", 3) == 0);
}

static enum proto_fault fault_of(const struct remote_call *c, CURLcode code)
{
	switch ((int)code) {
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST: return PROTO_FAULT_RESOLVE;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_INVALIDCERTSTATUS: return PROTO_FAULT_TLS;
	case CURLE_OPERATION_TIMEDOUT: return was_in_handshake(c) ? PROTO_FAULT_TLS : PROTO_FAULT_CONNECT;
	case CURLE_COULDNT_CONNECT: return PROTO_FAULT_CONNECT;
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_UNSUPPORTED_PROTOCOL: return PROTO_FAULT_NO_STREAM;
	case CURLE_OUT_OF_MEMORY: /* what libcurl calls a line of a head above its own bound */
	case TOO_LARGE: return PROTO_FAULT_HEADERS;
	default: return PROTO_FAULT_CUT;
	}
}

static enum proto_fault fault_of_status(int status)
{
	switch (status) {
	case 401:
	case 403: return PROTO_FAULT_KEY;
	case 404: return PROTO_FAULT_NO_MODEL;
	case 429: return PROTO_FAULT_LIMITED;
	case 503: return PROTO_FAULT_AWAY;
	default:
		return status >= 500   ? PROTO_FAULT_SERVER
		       : status >= 400 ? PROTO_FAULT_REFUSED
		       : status >= 300 ? PROTO_FAULT_REDIRECT
				       : PROTO_FAULT_NO_STREAM;
	}
}

static void judge_status(struct remote_call *c)
{
	struct remote_error e;
	char why[64];
	if (c->status >= 200 && c->status < 300)
		return;
	snprintf(why, sizeof why, "status %d", c->status);
	enum proto_fault fault = fault_of_status(c->status);
	if (fault == PROTO_FAULT_AWAY && c->text.len > 0 &&
	    remote_error_read((const char *)buf_data(&c->text), c->text.len, &e) &&
	    remote_fault_of_error(e.code) == PROTO_FAULT_LIMITED)
		fault = PROTO_FAULT_LIMITED;
	remote_call_fail(c, fault, why);
}

/* ---- what libcurl calls ---- */

static void touch(struct remote_call *c)
{
	if (list_empty(&c->touched))
		list_push_back(&c->http->touched, &c->touched);
}

static bool field_is(const char *line, size_t n, const char *name, const char **value, size_t *n_value)
{
	size_t k = strlen(name);
	if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
		return false;
	const char *from = line + k + 1, *to = line + n;
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (to > from && (to[-1] == '\r' || to[-1] == '\n' || to[-1] == ' ' || to[-1] == '\t'))
		to--;
	*value = from;
	*n_value = (size_t)(to - from);
	return true;
}

static void read_field(struct remote_call *c, const char *line, size_t n)
{
	static const char stream[] = "text/event-stream";
	const char *v;
	size_t k;
	if (field_is(line, n, "content-type", &v, &k)) {
		c->is_stream = k >= sizeof stream - 1 && strncasecmp(v, stream, sizeof stream - 1) == 0 &&
			       (k == sizeof stream - 1 || v[sizeof stream - 1] == ';' || v[sizeof stream - 1] == ' ');
	} else if (field_is(line, n, "retry-after", &v, &k) && k > 0 && k < 8) {
		uint32_t s = 0;
		for (size_t i = 0; i < k && v[i] >= '0' && v[i] <= '9'; i++)
			s = s * 10 + (uint32_t)(v[i] - '0');
		c->retry_s = s < RETRY_AFTER_MAX ? s : RETRY_AFTER_MAX;
	}
}

static void read_status(struct remote_call *c)
{
	long status = 0;
	c->http->lib->curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	c->status = (int)status;
}

bool remote_call_line(struct remote_call *c, const char *line, size_t n)
{
	c->n_head += n;
	if (c->n_head > REMOTE_HEAD_MAX) {
		remote_call_fail(c, PROTO_FAULT_HEADERS, "the response's head is too long");
		return false;
	}
	if (n > 5 && memcmp(line, "HTTP/", 5) == 0) { /* the final response may follow others (100, 103) */
		c->is_stream = false;
		c->retry_s = 0;
	} else {
		read_field(c, line, n);
	}
	return true;
}

static size_t take_head(char *at, size_t one, size_t n, void *ctx)
{
	struct remote_call *c = ctx;
	n *= one;
	read_status(c);
	return remote_call_line(c, at, n) ? n : 0;
}

/* Keeps the body; of an error its beginning. */
static bool keep(struct remote_call *c, const char *at, size_t n, bool error)
{
	size_t left = c->text.max - c->text.len, most = error && left < n ? left : n;
	if (buf_append(&c->text, at, most) == 0)
		return true;
	remote_call_fail(c, PROTO_FAULT_LONG, "the response is too long");
	return false;
}

bool remote_call_bytes(struct remote_call *c, const char *bytes, size_t n)
{
	bool good = c->status >= 200 && c->status < 300;
	if (!good || c->kind == REMOTE_WHOLE)
		return keep(c, bytes, n, !good);
	if (!c->is_stream) {
		remote_call_fail(c, PROTO_FAULT_NO_STREAM, "the response is no event stream");
		return false;
	}
	touch(c);
	if (c->on_data(c, bytes, n))
		return true;
	remote_call_fail(c, PROTO_FAULT_EVENT, "stopped");
	return false;
}

static size_t take_body(char *at, size_t one, size_t n, void *ctx)
{
	struct remote_call *c = ctx;
	n *= one;
	if (c->paused)
		return CURL_WRITEFUNC_PAUSE;
	return remote_call_bytes(c, at, n) ? n : 0;
}

/* ---- the end of a call ---- */

static void drop_easy(struct remote_call *c)
{
	struct remote_http *h = c->http;
	if (c->easy == NULL)
		return;
	h->lib->curl_multi_remove_handle(h->multi, c->easy);
	h->lib->curl_easy_cleanup(c->easy);
	h->lib->curl_slist_free_all(c->lines);
	c->easy = c->lines = NULL;
}

/* Takes the call out of flight. */
static void release(struct remote_call *c)
{
	drop_easy(c);
	remote_plain_drop(c);
	list_remove(&c->node);
	list_remove(&c->touched);
	list_remove(&c->over);
	c->http = NULL;
}

/* It is connected: the socket outlives libcurl's. False: it can't be used. */
static bool adopt(struct remote_call *c)
{
	curl_socket_t own = CURL_SOCKET_BAD;
	c->connecting = false;
	c->http->lib->curl_easy_getinfo(c->easy, CURLINFO_ACTIVESOCKET, &own);
	int fd = own != CURL_SOCKET_BAD ? fcntl(own, F_DUPFD_CLOEXEC, 0) : (errno = ENOTCONN, -1);
	if (fd >= 0) {
		drop_easy(c);
		if (remote_plain_adopt(c->http, c, fd) == 0)
			return true;
		errno = ENOMEM;
	}
	remote_call_fail(c, PROTO_FAULT_CONNECT, strerror(errno));
	return false;
}

static void end(struct remote_call *c, CURLcode code)
{
	if (c->connecting && code == CURLE_OK && adopt(c))
		return;
	const struct curl_library *lib = c->http->lib;
	if (c->status != 0 && (c->status < 200 || c->status >= 300))
		judge_status(c);
	else if (code != CURLE_OK)
		remote_call_fail(c, fault_of(c, code), c->said[0] != '\0' ? c->said : lib->curl_easy_strerror(code));
	release(c);
	c->on_end(c);
}

static void tell_progress(struct remote_http *h)
{
	struct list now;
	list_init(&now);
	list_move_all(&h->touched, &now);
	while (!list_empty(&now)) {
		struct remote_call *c = list_entry(now.next, struct remote_call, touched);
		list_remove(&c->touched);
		c->on_progress(c);
	}
}

static void take_ends(struct remote_http *h)
{
	int left;
	CURLMsg *m;
	h->may_have_ended = false;
	while ((m = h->lib->curl_multi_info_read(h->multi, &left)) != NULL) {
		char *call = NULL;
		if (m->msg != CURLMSG_DONE)
			continue;
		CURLcode code = m->data.result;
		h->lib->curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call);
		if (call != NULL)
			end((struct remote_call *)(void *)call, code);
	}
}

void remote_call_over(struct remote_call *c)
{
	if (list_empty(&c->over))
		list_push_back(&c->http->over, &c->over);
}

static void take_over(struct remote_http *h)
{
	while (!list_empty(&h->over)) {
		struct remote_call *c = list_entry(h->over.next, struct remote_call, over);
		list_remove(&c->over);
		end(c, CURLE_OK);
	}
}

void remote_http_settle(struct remote_http *h)
{
	if (h->depth > 0)
		return;
	h->depth++;
	do {
		tell_progress(h);
		if (h->may_have_ended)
			take_ends(h);
		take_over(h);
	} while (!list_empty(&h->touched));
	h->depth--;
}

/* ---- the event loop ---- */

static void act(struct remote_http *h, curl_socket_t fd, int what)
{
	int running;
	h->may_have_ended = true;
	h->lib->curl_multi_socket_action(h->multi, fd, what, &running);
	remote_http_settle(h);
}

static void arm(struct remote_http *h, uint64_t at_ns)
{
	uint64_t now = clock_now_ns(), us = at_ns > now ? (at_ns - now + 999) / 1000 : 0;
	const struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	h->armed_ns = at_ns;
	event_add(h->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct remote_http *h = ctx;
	(void)fd;
	(void)what;
	h->armed_ns = UINT64_MAX;
	if (clock_now_ns() >= h->wanted_ns) {
		h->wanted_ns = UINT64_MAX;
		act(h, CURL_SOCKET_TIMEOUT, 0);
	}
	if (h->wanted_ns < h->armed_ns)
		arm(h, h->wanted_ns);
}

static void on_socket(evutil_socket_t fd, short what, void *ctx)
{
	act(ctx, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

/* Called for almost every event, mostly with a later time: the timer fires too early then, and looks again. */
static int set_timer(CURLM *multi, long ms, void *ctx)
{
	struct remote_http *h = ctx;
	(void)multi;
	h->wanted_ns = ms >= 0 ? clock_now_ns() + (uint64_t)ms * NS_PER_MS : UINT64_MAX;
	if (h->wanted_ns < h->armed_ns)
		arm(h, h->wanted_ns);
	return 0;
}

static void forget(struct wait *w)
{
	if (w->event != NULL)
		event_free(w->event);
	sl_free(w);
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
	struct remote_http *h = ctx;
	struct wait *w = known;
	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (w != NULL)
			forget(w);
		h->lib->curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	short wanted = EV_PERSIST;
	wanted |= what & CURL_POLL_IN ? EV_READ : 0;
	wanted |= what & CURL_POLL_OUT ? EV_WRITE : 0;
	if (w == NULL && (w = sl_zalloc(sizeof *w)) == NULL)
		return -1;
	if (w->event != NULL)
		event_free(w->event);
	w->event = event_new(h->base, fd, wanted, on_socket, h);
	h->lib->curl_multi_assign(h->multi, fd, w);
	return w->event != NULL && event_add(w->event, NULL) == 0 ? 0 : -1;
}

/* ---- life ---- */

static int copy_config(struct remote_http *h, const struct remote_http_config *cfg, struct sl_err *err)
{
	if (!remote_url_fits(cfg->url))
		return sl_errf(err, SL_EINVAL, "'%.200s' is not http://HOST[:PORT][/PATH] or https://…", cfg->url);
	snprintf(h->url, sizeof h->url, "%s", cfg->url);
	h->tls = strncmp(h->url, "https:", 6) == 0;
	h->n_origin = (int)(8 + strcspn(h->url + 8, "/")); /* what is between the scheme and the path has a byte */
	h->verify = cfg->verify;
	h->connect_ms = (long)cfg->connect_ms;
	if (cfg->key[0] != '\0' && (size_t)snprintf(h->authorization, sizeof h->authorization,
						    "Authorization: Bearer %s", cfg->key) >= sizeof h->authorization)
		return sl_errf(err, SL_EINVAL, "the key is longer than %d bytes", REMOTE_KEY_MAX);
	if (cfg->ca != NULL && (h->ca = sl_strndup(cfg->ca, cfg->n_ca)) == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	h->n_ca = cfg->n_ca;
	return 0;
}

static bool set_multi(struct remote_http *h, int connections)
{
	const struct curl_library *lib = h->lib;
	return lib->curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, set_socket) == CURLM_OK &&
	       lib->curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h) == CURLM_OK &&
	       lib->curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer) == CURLM_OK &&
	       lib->curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h) == CURLM_OK &&
	       lib->curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX) == CURLM_OK &&
	       lib->curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)connections + 1) == CURLM_OK;
}

int remote_http_create(struct event_base *base, const struct remote_http_config *cfg, struct remote_http **out,
		       struct sl_err *err)
{
	const struct curl_library *lib = curl_library(err);
	struct remote_http *h = lib != NULL ? sl_zalloc(sizeof *h) : NULL;
	if (h == NULL)
		return lib == NULL ? SL_EUNSUPPORTED : sl_errf(err, SL_ENOMEM, "no memory");
	h->lib = lib;
	h->base = base;
	h->armed_ns = h->wanted_ns = UINT64_MAX;
	list_init(&h->calls);
	list_init(&h->touched);
	list_init(&h->over);
	list_init(&h->idle);
	h->idle_most = cfg->connections + 1;
	int rc = copy_config(h, cfg, err);
	if (rc == 0) {
		h->timer = evtimer_new(base, on_timer, h);
		h->multi = lib->curl_multi_init();
		if (h->timer == NULL || h->multi == NULL || !set_multi(h, cfg->connections))
			rc = sl_errf(err, SL_ENOMEM, "no memory");
	}
	if (rc != 0) {
		remote_http_destroy(h);
		return rc;
	}
	*out = h;
	return 0;
}

void remote_http_destroy(struct remote_http *h)
{
	if (h == NULL)
		return;
	BUG_IF(!list_empty(&h->calls), "remote: a call is going");
	remote_plain_forget(h);
	if (h->multi != NULL)
		h->lib->curl_multi_cleanup(h->multi);
	if (h->timer != NULL)
		event_free(h->timer);
	explicit_bzero(h->authorization, sizeof h->authorization);
	sl_free(h->ca);
	sl_free(h);
}

/* ---- a call ---- */

static bool add_line(struct remote_call *c, const struct curl_library *lib, const char *line)
{
	void *all = lib->curl_slist_append(c->lines, line);
	if (all == NULL)
		return false;
	c->lines = all;
	return true;
}

const char *remote_call_accept(const struct remote_call *c)
{
	const char *type = c->kind == REMOTE_STREAM ? "text/event-stream" : "application/json";
	return c->accept != NULL ? c->accept : type;
}

static bool add_accept(struct remote_call *c, const struct remote_http *h)
{
	char line[64];
	snprintf(line, sizeof line, "Accept: %s", remote_call_accept(c));
	return add_line(c, h->lib, line);
}

static bool add_lines(struct remote_call *c, const struct remote_http *h)
{
	return add_line(c, h->lib, "Expect:") && /* no 100-continue */
	       add_accept(c, h) && (c->body == NULL || add_line(c, h->lib, "Content-Type: application/json")) &&
	       (h->authorization[0] == '\0' || add_line(c, h->lib, h->authorization));
}

static void set_tls(const struct remote_http *h, CURL *e)
{
	struct curl_blob ca = {.data = h->ca, .len = h->n_ca, .flags = CURL_BLOB_NOCOPY};
	if (h->ca != NULL)
		h->lib->curl_easy_setopt(e, CURLOPT_CAINFO_BLOB, &ca);
	if (!h->verify) {
		h->lib->curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		h->lib->curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	/* A request waits for a connection that is being made if that may carry both. */
	h->lib->curl_easy_setopt(e, CURLOPT_PIPEWAIT, h->tls ? 1L : 0L);
}

static void set_up(struct remote_call *c, const struct remote_http *h, const char *url)
{
	const struct curl_library *lib = h->lib;
	CURL *e = c->easy;
	lib->curl_easy_setopt(e, CURLOPT_URL, url);
	lib->curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	lib->curl_easy_setopt(e, CURLOPT_PROXY, "");
	lib->curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	lib->curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	lib->curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->lines);
	lib->curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, h->connect_ms);
	lib->curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)REMOTE_RECEIVE_BYTES);
	lib->curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_head);
	lib->curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
	lib->curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
	lib->curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	lib->curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->said);
	lib->curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	lib->curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, c->fresh ? 1L : 0L);
	lib->curl_easy_setopt(e, CURLOPT_CONNECT_ONLY, c->connecting ? 1L : 0L);
	if (c->body != NULL && !c->connecting) {
		lib->curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->n_body);
		lib->curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
	}
	set_tls(h, e);
}

_Static_assert(REMOTE_WHY_MAX >= CURL_ERROR_SIZE, "errors of curl fit");

static void reset(struct remote_call *c)
{
	if (c->text.max == 0)
		buf_init(&c->text, c->kind == REMOTE_WHOLE ? REMOTE_BODY_MAX : ERROR_TEXT_MAX);
	buf_clear(&c->text, 0);
	c->paused = c->failed = c->is_stream = c->connecting = false;
	c->status = 0;
	c->n_head = 0;
	c->retry_s = 0;
	c->why[0] = c->said[0] = '\0';
	c->lines = NULL;
	list_init(&c->node);
	list_init(&c->touched);
	list_init(&c->over);
}

/* Gives the call to libcurl. */
static int start_easy(struct remote_http *h, struct remote_call *c)
{
	char url[2 * REMOTE_URL_MAX];
	snprintf(url, sizeof url, "%.*s%s", c->at_origin ? h->n_origin : (int)sizeof h->url, h->url, c->path);
	c->easy = h->lib->curl_easy_init();
	if (c->easy != NULL && add_lines(c, h)) {
		set_up(c, h, url);
		if (h->lib->curl_multi_add_handle(h->multi, c->easy) == CURLM_OK)
			return 0;
	}
	h->lib->curl_slist_free_all(c->lines);
	if (c->easy != NULL)
		h->lib->curl_easy_cleanup(c->easy);
	c->easy = c->lines = NULL;
	return SL_ENOMEM;
}

int remote_http_connect(struct remote_http *h, struct remote_call *c)
{
	c->connecting = true;
	return start_easy(h, c);
}

int remote_call_start(struct remote_http *h, struct remote_call *c)
{
	BUG_IF(c->http != NULL, "remote: a call is started twice");
	reset(c);
	int rc = c->kind == REMOTE_STREAM && !h->tls ? remote_plain_start(h, c) : start_easy(h, c);
	if (rc != 0)
		return rc;
	c->http = h;
	list_push_back(&h->calls, &c->node);
	return 0;
}

void remote_call_stop(struct remote_call *c)
{
	if (c->http != NULL)
		release(c);
}

void remote_call_dispose(struct remote_call *c)
{
	BUG_IF(c->http != NULL, "remote: a call is going");
	buf_dispose(&c->text);
}

void remote_call_pause(struct remote_call *c, bool pause)
{
	struct remote_http *h = c->http;
	if (h == NULL || c->paused == pause)
		return;
	c->paused = pause;
	if (pause) /* the next bytes find it so */
		return;
	remote_plain_resume(c);
	if (c->easy != NULL) {
		h->may_have_ended = true;
		h->lib->curl_easy_pause(c->easy, CURLPAUSE_CONT);
		remote_http_settle(h);
	}
}
