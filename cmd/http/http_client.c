/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/http/http_client.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/http/curl_library.h"

struct http_client {
	const struct curl_library *lib;
	struct http_server server;
	CURLM *multi;
	struct list calls; /* in flight */
};

static bool is_url(const char *url)
{
	size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
	size_t n = strlen(url);
	if (scheme == 0 || n == scheme || n > HTTP_URL_MAX || url[n - 1] == '/')
		return false;
	for (size_t i = 0; i < n; i++)
		if (url[i] <= ' ' || url[i] > '~' || url[i] == '?' || url[i] == '#' || url[i] == '@')
			return false;
	return true;
}

int http_client_create(const struct http_server *server, struct http_client **out, struct sl_err *err)
{
	if (!is_url(server->url))
		return sl_errf(err, SL_EINVAL, "'%.200s' is not http://HOST[:PORT] or https://HOST[:PORT]",
			       server->url);
	const struct curl_library *lib = curl_library(err);
	if (lib == NULL)
		return SL_EUNSUPPORTED;
	struct http_client *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return SL_ENOMEM;
	*c = (struct http_client){.lib = lib, .server = *server, .multi = lib->curl_multi_init()};
	list_init(&c->calls);
	if (c->multi == NULL) {
		sl_free(c);
		return SL_ENOMEM;
	}
	*out = c;
	return 0;
}

static size_t take_head(char *at, size_t one, size_t n, void *ctx)
{
	struct http_call *call = ctx;
	n *= one;
	/* What came before the final response (100, 103) is forgotten. */
	if (n > 5 && memcmp(at, "HTTP/", 5) == 0)
		buf_clear(&call->head, SIZE_MAX);
	return buf_append(&call->head, at, n) == 0 ? n : 0;
}

static size_t take_body(char *at, size_t one, size_t n, void *ctx)
{
	struct http_call *call = ctx;
	long status = 0;
	n *= one;
	call->client->lib->curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (call->on_data != NULL && status >= 200 && status < 300) {
		if (call->on_data(call, at, n))
			return n;
		call->end = HTTP_STOPPED;
		return 0;
	}
	if (buf_append(&call->text, at, n) == 0)
		return n;
	call->end = HTTP_TOO_BIG;
	return 0;
}

static int add_line(struct http_call *call, const char *line)
{
	void *all = call->client->lib->curl_slist_append(call->lines, line);
	if (all == NULL)
		return SL_ENOMEM;
	call->lines = all;
	return 0;
}

static int add_lines(struct http_call *call)
{
	const struct http_server *s = &call->client->server;
	char key[1024];
	int rc = add_line(call, "Expect:"); /* no 100-continue: a small body needs none */
	if (rc == 0 && call->body != NULL)
		rc = add_line(call, "Content-Type: application/json");
	if (rc == 0 && s->key != NULL) {
		if ((size_t)snprintf(key, sizeof key, "Authorization: Bearer %s", s->key) >= sizeof key)
			return SL_ELIMIT;
		rc = add_line(call, key);
	}
	for (size_t i = 0; rc == 0 && i < HTTP_MAX_HEADERS && call->headers[i] != NULL; i++)
		rc = add_line(call, call->headers[i]);
	return rc;
}

static void set_up(struct http_call *call, const char *url)
{
	const struct http_server *s = &call->client->server;
	const struct curl_library *lib = call->client->lib;
	CURL *e = call->easy;
	lib->curl_easy_setopt(e, CURLOPT_URL, url);
	lib->curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	lib->curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->lines);
	lib->curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)HTTP_CONNECT_S);
	lib->curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
	lib->curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)(call->idle_s > 0 ? call->idle_s : HTTP_IDLE_S));
	lib->curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_head);
	lib->curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
	lib->curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
	lib->curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
	lib->curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->why);
	lib->curl_easy_setopt(e, CURLOPT_PRIVATE, call);
	lib->curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, call->method);
	if (call->body != NULL) {
		lib->curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->body);
		lib->curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body);
	}
	if (s->ca_file != NULL)
		lib->curl_easy_setopt(e, CURLOPT_CAINFO, s->ca_file);
	if (s->insecure) {
		lib->curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		lib->curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

_Static_assert(sizeof((struct http_call *)0)->why >= CURL_ERROR_SIZE, "errors of curl fit");

int http_call_start(struct http_client *c, struct http_call *call)
{
	char url[2 * HTTP_URL_MAX];
	if ((size_t)snprintf(url, sizeof url, "%s%s", c->server.url, call->path) >= sizeof url)
		return SL_ELIMIT;
	if (call->head.max == 0) {
		buf_init(&call->head, HTTP_HEAD_MAX);
		buf_init(&call->text, HTTP_TEXT_MAX);
	}
	buf_clear(&call->head, SIZE_MAX);
	buf_clear(&call->text, SIZE_MAX);
	call->client = c;
	call->end = HTTP_DONE;
	call->status = call->version = 0;
	call->why[0] = '\0';
	call->us_connected = call->us_tls = call->us_first_byte = call->us_end = 0;
	call->lines = NULL;
	call->easy = c->lib->curl_easy_init();
	int rc = call->easy == NULL ? SL_ENOMEM : add_lines(call);
	if (rc == 0) {
		set_up(call, url);
		rc = c->lib->curl_multi_add_handle(c->multi, call->easy) == CURLM_OK ? 0 : SL_ENOMEM;
	}
	if (rc == 0) {
		list_push_back(&c->calls, &call->node);
		return 0;
	}
	c->lib->curl_slist_free_all(call->lines);
	c->lib->curl_easy_cleanup(call->easy);
	call->client = NULL;
	return rc;
}

static uint64_t micros(const struct http_call *call, CURLINFO what)
{
	curl_off_t us = 0;
	call->client->lib->curl_easy_getinfo(call->easy, what, &us);
	return us > 0 ? (uint64_t)us : 0;
}

static void note_facts(struct http_call *call)
{
	long status = 0, version = 0;
	call->client->lib->curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	call->client->lib->curl_easy_getinfo(call->easy, CURLINFO_HTTP_VERSION, &version);
	call->status = (int)status;
	call->version = version == CURL_HTTP_VERSION_1_0   ? 10
			: version == CURL_HTTP_VERSION_1_1 ? 11
			: version == CURL_HTTP_VERSION_2_0 ? 20
			: version == CURL_HTTP_VERSION_3   ? 30
							   : 0;
	call->us_connected = micros(call, CURLINFO_CONNECT_TIME_T);
	call->us_tls = micros(call, CURLINFO_APPCONNECT_TIME_T);
	call->us_first_byte = micros(call, CURLINFO_STARTTRANSFER_TIME_T);
	call->us_end = micros(call, CURLINFO_TOTAL_TIME_T);
}

/* Takes the call out of flight. */
static void release(struct http_call *call)
{
	struct http_client *c = call->client;
	c->lib->curl_multi_remove_handle(c->multi, call->easy);
	c->lib->curl_easy_cleanup(call->easy);
	c->lib->curl_slist_free_all(call->lines);
	list_remove(&call->node);
	call->easy = call->lines = NULL;
	call->client = NULL;
}

static void finish(struct http_call *call, CURLcode code)
{
	const struct curl_library *lib = call->client->lib;
	note_facts(call);
	if (code != CURLE_OK && call->end == HTTP_DONE)
		call->end = code == CURLE_OPERATION_TIMEDOUT ? HTTP_LATE : HTTP_LOST;
	if (code != CURLE_OK && call->why[0] == '\0')
		snprintf(call->why, sizeof call->why, "%s", lib->curl_easy_strerror(code));
	if (call->end == HTTP_TOO_BIG)
		snprintf(call->why, sizeof call->why, "the answer has over %d bytes", HTTP_TEXT_MAX);
	release(call);
	if (call->on_end != NULL)
		call->on_end(call);
}

void http_client_turn(struct http_client *c, int ms)
{
	int running, left;
	CURLMsg *m;
	c->lib->curl_multi_poll(c->multi, NULL, 0, ms, NULL);
	c->lib->curl_multi_perform(c->multi, &running);
	while ((m = c->lib->curl_multi_info_read(c->multi, &left)) != NULL) {
		char *call = NULL;
		c->lib->curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call);
		if (m->msg == CURLMSG_DONE && call != NULL)
			finish((struct http_call *)(void *)call, m->data.result);
	}
}

void http_client_destroy(struct http_client *c)
{
	if (c == NULL)
		return;
	while (!list_empty(&c->calls))
		release(list_entry(c->calls.next, struct http_call, node));
	c->lib->curl_multi_cleanup(c->multi);
	sl_free(c);
}

int http_call_run(struct http_client *c, struct http_call *call, const volatile int *stop)
{
	int rc = http_call_start(c, call);
	while (rc == 0 && call->client != NULL) {
		http_client_turn(c, 200);
		if (stop != NULL && *stop && call->client != NULL) {
			note_facts(call);
			release(call);
			call->end = HTTP_STOPPED;
		}
	}
	return rc;
}

void http_call_dispose(struct http_call *call)
{
	buf_dispose(&call->head);
	buf_dispose(&call->text);
}

bool http_call_field(const struct http_call *call, const char *name, char *out, size_t room)
{
	const char *at = (const char *)buf_data(&call->head), *end = at == NULL ? NULL : at + call->head.len;
	size_t n = strlen(name);
	while (at < end) {
		const char *line = at, *lf = memchr(at, '\n', (size_t)(end - at));
		at = lf == NULL ? end : lf + 1;
		if ((size_t)(at - line) <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
			continue;
		const char *from = line + n + 1, *to = at;
		while (from < to && (*from == ' ' || *from == '\t'))
			from++;
		while (to > from && (to[-1] == '\n' || to[-1] == '\r' || to[-1] == ' '))
			to--;
		snprintf(out, room, "%.*s", (int)(to - from), from);
		return true;
	}
	return false;
}

void http_call_explain(const struct http_call *call, char *out, size_t room)
{
	json_t *body = NULL;
	const char *message = NULL;
	if (call->end != HTTP_DONE) {
		snprintf(out, room, "%s", call->why[0] != '\0' ? call->why : "stopped");
		return;
	}
	if (call->text.len > 0)
		body = json_loadb((const char *)buf_data(&call->text), call->text.len, 0, NULL);
	const json_t *error = json_object_get(body, "error");
	message = json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
	if (message != NULL)
		snprintf(out, room, "%s (%d)", message, call->status);
	else
		snprintf(out, room, "status %d", call->status);
	text_one_line(out, ' '); /* it goes to a terminal */
	json_decref(body);
}
