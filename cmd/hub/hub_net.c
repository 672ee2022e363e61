/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "cmd/hub/hub_reply.h"
#include "version.h" /* made by the Makefile */

enum { MOST_REDIRECTS = 8, HEADERS_MOST = 64 << 10, REFUSED_BODY_MOST = 64 << 10 };

struct transfer {
	struct hub_net *net;
	const struct hub_ask *ask;
	struct hub_reply *reply;
	size_t header_bytes, ignored;
	bool begun;
	int rc; /* of begin or take, or of a bound */
	struct sl_err *err;
};

/* ---- where a token may go ---- */

static bool is_loopback(const char *origin)
{
	const char *host = strstr(origin, "://") + 3;
	size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	return (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n) ||
	       (n == 5 && strncmp(host, "[::1]", n) == 0) || (n == 9 && strncmp(host, "localhost", n) == 0);
}

/* Only to the endpoint, and not readable on the way. */
static bool may_have_token(const struct hub_net *n, const char *url)
{
	char origin[HUB_URL_BYTES];
	return n->token[0] != '\0' && hub_origin(url, origin, sizeof origin) && strcmp(origin, n->origin) == 0 &&
	       (!n->plain || is_loopback(origin));
}

static bool may_go(const struct hub_net *n, const char *url, struct sl_err *err)
{
	char origin[HUB_URL_BYTES];
	if (hub_origin(url, origin, sizeof origin) && (n->plain || strncmp(origin, "https:", 6) == 0))
		return true;
	sl_errf(err, SL_EPROTO, "%.200s: not an https address", url);
	return false;
}

/* ---- callbacks of libcurl ---- */

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	n *= size;
	t->header_bytes += n;
	if (t->header_bytes > HEADERS_MOST) {
		t->rc = sl_errf(t->err, SL_EPROTO, "the hub's headers are longer than %d KiB", HEADERS_MOST >> 10);
		return 0;
	}
	hub_reply_header(t->reply, line, n);
	return n;
}

static void begin(struct transfer *t)
{
	curl_off_t length = -1;
	t->begun = true;
	t->net->curl->curl_easy_getinfo(t->net->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	t->reply->length = length;
	t->rc = t->ask->begin(t->ask->ctx, t->reply, t->err);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	n *= size;
	t->net->curl->curl_easy_getinfo(t->net->easy, CURLINFO_RESPONSE_CODE, &t->reply->status);
	if (t->reply->status != 200 && t->reply->status != 206) {
		t->ignored += n;
		return t->ignored <= REFUSED_BODY_MOST ? n : 0;
	}
	if (!t->begun)
		begin(t);
	if (t->rc == 0)
		t->rc = t->ask->take(t->ask->ctx, bytes, n, t->err);
	return t->rc == 0 ? n : 0;
}

/* ---- one hop ---- */

static void set_transfer(struct hub_net *n, struct transfer *t)
{
	const struct curl_library *c = n->curl;
	c->curl_easy_setopt(n->easy, CURLOPT_HEADERFUNCTION, on_header);
	c->curl_easy_setopt(n->easy, CURLOPT_HEADERDATA, t);
	c->curl_easy_setopt(n->easy, CURLOPT_WRITEFUNCTION, on_body);
	c->curl_easy_setopt(n->easy, CURLOPT_WRITEDATA, t);
}

static void set_limits(struct hub_net *n)
{
	const struct curl_library *c = n->curl;
	const struct hub_settings *s = n->set;
	c->curl_easy_setopt(n->easy, CURLOPT_NOSIGNAL, 1L);
	c->curl_easy_setopt(n->easy, CURLOPT_PROTOCOLS_STR, n->plain ? "http,https" : "https");
	c->curl_easy_setopt(n->easy, CURLOPT_FOLLOWLOCATION, 0L);
	c->curl_easy_setopt(n->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	c->curl_easy_setopt(n->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	c->curl_easy_setopt(n->easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	c->curl_easy_setopt(n->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)s->connect_ms);
	c->curl_easy_setopt(n->easy, CURLOPT_LOW_SPEED_LIMIT, (long)s->least_rate);
	c->curl_easy_setopt(n->easy, CURLOPT_LOW_SPEED_TIME, (long)((s->stall_ms + 999) / 1000));
	c->curl_easy_setopt(n->easy, CURLOPT_BUFFERSIZE, 256L << 10);
	c->curl_easy_setopt(n->easy, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	if (n->ca != NULL) {
		struct curl_blob blob = {.data = buf_data(n->ca), .len = n->ca->len, .flags = CURL_BLOB_NOCOPY};
		c->curl_easy_setopt(n->easy, CURLOPT_CAINFO_BLOB, &blob);
	}
}

/* *list grows by "NAME: VALUE". */
static int add_header(struct hub_net *n, struct curl_slist **list, const char *name, const char *value)
{
	char line[1024];
	snprintf(line, sizeof line, "%s: %s", name, value);
	struct curl_slist *more = n->curl->curl_slist_append(*list, line);
	if (more != NULL)
		*list = more;
	return more != NULL ? 0 : SL_ENOMEM;
}

static int make_headers(struct hub_net *n, const char *url, const struct hub_ask *a, struct curl_slist **list)
{
	char bearer[600];
	int rc = 0;
	if (a->range[0] != '\0' && a->if_range != NULL && a->if_range[0] != '\0')
		rc = add_header(n, list, "If-Range", a->if_range);
	if (rc == 0 && may_have_token(n, url)) {
		snprintf(bearer, sizeof bearer, "Bearer %s", n->token);
		rc = add_header(n, list, "Authorization", bearer);
	}
	return rc;
}

/* What libcurl says it is; also whether that may pass. */
static int judge(struct transfer *t, CURLcode code, const char *detail)
{
	const struct hub_settings *s = t->net->set;
	const char *why = detail[0] != '\0' ? detail : t->net->curl->curl_easy_strerror(code);
	switch (code) {
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR: return sl_errf(t->err, SL_EAGAIN, "the connection was closed early");
	case CURLE_OPERATION_TIMEDOUT:
		if (t->header_bytes == 0 && !t->begun)
			return sl_errf(t->err, SL_EAGAIN, "no answer (%.200s)", why);
		return sl_errf(t->err, SL_EAGAIN, "slower than %" PRIu64 " bytes a second for %" PRIu64 " s",
			       s->least_rate, (s->stall_ms + 999) / 1000);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_SEND_ERROR:
	case CURLE_SSL_CONNECT_ERROR: return sl_errf(t->err, SL_EAGAIN, "%.200s", why);
	default: return sl_errf(t->err, SL_EPROTO, "%.200s", why);
	}
}

static int perform(struct hub_net *n, const char *url, struct transfer *t)
{
	char detail[CURL_ERROR_SIZE] = "";
	struct curl_slist *headers = NULL;
	*t->reply = (struct hub_reply){.length = -1, .start = -1, .total = -1, .linked_size = -1};
	n->curl->curl_easy_reset(n->easy);
	set_limits(n);
	set_transfer(n, t);
	int rc = make_headers(n, url, t->ask, &headers);
	if (rc == 0) {
		n->curl->curl_easy_setopt(n->easy, CURLOPT_URL, url);
		n->curl->curl_easy_setopt(n->easy, CURLOPT_ERRORBUFFER, detail);
		n->curl->curl_easy_setopt(n->easy, CURLOPT_HTTPHEADER, headers);
		if (t->ask->range[0] != '\0')
			n->curl->curl_easy_setopt(n->easy, CURLOPT_RANGE, t->ask->range);
		CURLcode code = n->curl->curl_easy_perform(n->easy);
		n->curl->curl_easy_getinfo(n->easy, CURLINFO_RESPONSE_CODE, &t->reply->status);
		bool refused = t->ignored > REFUSED_BODY_MOST; /* its status says enough */
		rc = t->rc != 0 ? t->rc : code == CURLE_OK || refused ? 0 : judge(t, code, detail);
	} else {
		sl_errf(t->err, rc, "no memory");
	}
	text_one_line(t->err->text, ' ');
	n->curl->curl_slist_free_all(headers);
	return rc;
}

/* ---- redirects ---- */

static bool is_redirect(long status) { return status >= 301 && status <= 308 && status != 304 && status != 305; }

/* Copies the target to urls[n]. The hub's own headers about the file come with its redirect. */
static int follow(struct hub_net *n, const struct hub_ask *a, char (*urls)[HUB_URL_BYTES], size_t at,
		  struct sl_err *err)
{
	char from[HUB_URL_BYTES], to[HUB_URL_BYTES];
	char *target = NULL;
	n->curl->curl_easy_getinfo(n->easy, CURLINFO_REDIRECT_URL, &target);
	if (target == NULL || strlen(target) >= HUB_URL_BYTES)
		return sl_errf(err, SL_EPROTO, "a redirect without a valid target");
	snprintf(urls[at], HUB_URL_BYTES, "%s", target);
	text_one_line(urls[at], '?');
	if (!may_go(n, urls[at], err))
		return sl_errf(err, SL_EPROTO, "refused a redirect to %.200s: not an https address", urls[at]);
	if (a->stays && (!hub_origin(urls[at - 1], from, sizeof from) || !hub_origin(urls[at], to, sizeof to) ||
			 strcmp(from, to) != 0))
		return sl_errf(err, SL_EPROTO, "refused a redirect of the list of files to another host, %.200s",
			       strstr(urls[at], "://") + 3);
	for (size_t i = 0; i < at; i++)
		if (strcmp(urls[i], urls[at]) == 0)
			return sl_errf(err, SL_EPROTO, "redirect loop at %.200s", urls[at]);
	return 0;
}

static int refuse_status(const struct hub_net *n, const struct hub_reply *r, const char *url, struct sl_err *err)
{
	char host[HUB_URL_BYTES] = "";
	hub_origin(url, host, sizeof host);
	const char *name = host[0] != '\0' ? strstr(host, "://") + 3 : url;
	bool at_hub = strcmp(host, n->origin) == 0;
	switch (r->status) {
	case 401:
	case 403:
		if (at_hub)
			return sl_errf(err, SL_EINVAL,
				       n->token[0] != '\0' ? "the token may not read it, or it does not exist (%ld)"
							   : "needs a token that may read it, or does not exist (%ld): "
							     "hub.token_file, --token-file",
				       r->status);
		return sl_errf(err, SL_EINVAL, "%.100s refuses it (%ld)", name, r->status);
	case 404: return sl_errf(err, SL_ENOTFOUND, "does not exist at %.100s (404)", name);
	case 408:
	case 429:
	case 500:
	case 502:
	case 503:
	case 504:
		return sl_errf(err, SL_EAGAIN, "%.100s answers %ld%s", name, r->status,
			       r->status == 429 ? " (too many requests)" : "");
	default: return sl_errf(err, SL_EPROTO, "%.100s answers %ld", name, r->status);
	}
}

/* What the hub says about a file, the host that it redirects to can't say. */
static void keep_hub_headers(struct hub_reply *to, const struct hub_reply *hub)
{
	to->linked_size = hub->linked_size;
	memcpy(to->linked_etag, hub->linked_etag, sizeof to->linked_etag);
	memcpy(to->commit, hub->commit, sizeof to->commit);
}

static int get(struct hub_net *n, const struct hub_ask *a, char (*urls)[HUB_URL_BYTES], struct hub_reply *r,
	       struct sl_err *err)
{
	struct hub_reply hub = {.status = 0};
	if (!may_go(n, a->url, err))
		return SL_EPROTO;
	snprintf(urls[0], HUB_URL_BYTES, "%s", a->url);
	for (size_t hop = 0; hop <= MOST_REDIRECTS; hop++) {
		struct transfer t = {.net = n, .ask = a, .reply = r, .err = err};
		int rc = perform(n, urls[hop], &t);
		if (hop == 0)
			hub = *r;
		else
			keep_hub_headers(r, &hub);
		if (rc == 0 && (r->status == 200 || r->status == 206) && !t.begun) {
			begin(&t);
			rc = t.rc;
		}
		if (rc != 0 || r->status == 200 || r->status == 206)
			return rc;
		if (!is_redirect(r->status))
			return refuse_status(n, r, urls[hop], err);
		rc = hop < MOST_REDIRECTS ? follow(n, a, urls, hop + 1, err)
					  : sl_errf(err, SL_EPROTO, "more than %d redirects", MOST_REDIRECTS);
		if (rc != 0)
			return rc;
	}
	return SL_EPROTO;
}

int hub_net_get(struct hub_net *n, const struct hub_ask *a, struct hub_reply *r, struct sl_err *err)
{
	static char urls[MOST_REDIRECTS + 1][HUB_URL_BYTES]; /* one thread, one request at a time */
	err->text[0] = '\0';
	return get(n, a, urls, r, err);
}

/* ---- life ---- */

int hub_net_open(struct hub_net *n, const struct sluice_config *cfg, const char *token, const struct sl_buf *ca,
		 struct sl_err *err)
{
	*n = (struct hub_net){.set = &cfg->hub, .token = token, .ca = ca};
	if (!hub_origin(cfg->hub.endpoint, n->origin, sizeof n->origin))
		return sl_errf(err, SL_EINVAL, "hub.endpoint: not an http(s) address");
	n->plain = strncmp(n->origin, "http:", 5) == 0;
	size_t length = strlen(cfg->hub.endpoint);
	while (length > 0 && cfg->hub.endpoint[length - 1] == '/')
		length--;
	snprintf(n->base, sizeof n->base, "%.*s", (int)length, cfg->hub.endpoint);
	if (n->plain && token[0] != '\0' && !is_loopback(n->origin))
		return sl_errf(err, SL_EINVAL, "hub.endpoint is http://: the token would be readable on its way");
	n->curl = curl_library(err);
	if (n->curl == NULL)
		return SL_EUNSUPPORTED;
	n->easy = n->curl->curl_easy_init();
	return n->easy != NULL ? 0 : sl_errf(err, SL_ENOMEM, "no memory");
}

void hub_net_close(struct hub_net *n)
{
	if (n->easy != NULL)
		n->curl->curl_easy_cleanup(n->easy);
	n->easy = NULL;
}
