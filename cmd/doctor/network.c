/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses that the gateway listens on, and the store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache/redis_check.h"
#include "cmd/doctor/doctor.h"
#include "cmd/state/private_redis.h"
#include "gateway/auth/store.h"
#include "gateway/transport/transport.h"

enum { SLOW_STORE_US = 20000 };

/* ---- ports ---- */

/* Where this machine reaches a listener itself. */
static void url_of(const struct conf_address *a, bool tls, char out[HTTP_URL_MAX])
{
	bool any = a->host[0] == '\0' || strcmp(a->host, "0.0.0.0") == 0 || strcmp(a->host, "::") == 0;
	bool six = strchr(a->host, ':') != NULL;
	snprintf(out, HTTP_URL_MAX, "http%s://%s%s%s:%u", tls ? "s" : "", six && !any ? "[" : "",
		 any ? "localhost" : a->host, six && !any ? "]" : "", (unsigned)a->port);
}

/* Whether a Sluice answers there. */
static bool is_sluice(const struct conf_address *a, bool tls)
{
	char url[HTTP_URL_MAX];
	const struct http_server server = {.url = url, .insecure = true};
	struct http_call call = {.method = "GET", .path = "/live", .idle_s = 5};
	struct http_client *c = NULL;
	url_of(a, tls, url);
	bool is = http_client_create(&server, &c, NULL) == 0 && http_call_run(c, &call, NULL) == 0 &&
		  call.status == 200 && call.text.len > 0 &&
		  memmem(buf_data(&call.text), call.text.len, "\"live\"", 6) != NULL;
	http_call_dispose(&call);
	http_client_destroy(c);
	return is;
}

/* cfg: with this listener only. */
static void check_listener(struct report *r, const struct gw_config *cfg, const struct conf_address *a, bool tls,
			   const char *key)
{
	struct sl_err err = {0};
	if (transport_check_ports(cfg, &err) == 0) {
		report_add(r, REPORT_OK, "ports", "%s: %s is free", key, a->text);
	} else if (strstr(err.text, "in use") == NULL) {
		report_add(r, REPORT_FAIL, "ports", "%s: %s", key, err.text);
		report_change(r, "%s: an address of this machine, with a port that this user may use", key);
	} else if (is_sluice(a, tls)) {
		report_add(r, REPORT_OK, "ports", "%s: a running Sluice serves %s", key, a->text);
	} else {
		report_add(r, REPORT_FAIL, "ports", "%s: %s is taken by another program", key, a->text);
		report_change(r, "%s: another port, or stop that program (`ss -ltnp` names it)", key);
	}
}

void check_ports(struct report *r, const struct sluice_config *cfg)
{
	const struct gw_config *g = &cfg->gateway;
	struct gw_config one = *g;
	struct gw_listener_config *more = g->listeners.items;
	char key[128];
	one.https.off = one.http.off = true;
	one.listeners.n = 0;
	if (!g->https.off) {
		one.https = g->https;
		check_listener(r, &one, &g->https, true, "gateway.https");
		one.https.off = true;
	}
	if (!g->http.off) {
		one.http = g->http;
		check_listener(r, &one, &g->http, false, "gateway.http");
		one.http.off = true;
	}
	one.listeners.n = 1;
	for (size_t i = 0; i < g->listeners.n; i++) {
		one.listeners.items = &more[i];
		snprintf(key, sizeof key, "gateway.listeners.%s", more[i].name);
		if (more[i].unix_path[0] == '\0')
			check_listener(r, &one, &more[i].address, more[i].tls, key);
	}
}

/* ---- the store ---- */

static void explain_store(struct report *r, const struct cache_config *c, const struct redis_facts *f,
			  const struct sl_err *err)
{
	report_add(r, REPORT_FAIL, "store", "Redis at %s: %s", c->address, err->text);
	const char *key = f->of_sentinel ? "cache.sentinel_password_file" : "cache.password_file";
	if (f->is_password_file)
		report_change(r, "%s: a file that this user may read", key);
	else if (f->is_refused)
		report_change(r, "%s: a file whose first line is the password%s", key,
			      c->user != NULL && !f->of_sentinel ? " of cache.user" : "");
	else if (f->of_sentinel)
		report_change(r, "cache.address: the name that the sentinels watch, and where they listen");
	else
		report_change(r, "cache.address: where Redis listens; or start it there");
}

static void judge_store(struct report *r, const struct cache_config *c, const struct redis_facts *f)
{
	/* Keys of tenants have no lifetime: a policy that drops any key loses them. */
	bool drops = strncmp(f->policy, "allkeys", 7) == 0, slow = f->latency_us > SLOW_STORE_US;
	report_add(r, slow ? REPORT_WARN : REPORT_OK, "store", "Redis %s at %s answers in %.2f ms", f->version,
		   c->address, (double)f->latency_us / 1000);
	if (slow)
		report_change(r, "cache.address: a Redis nearer to this machine");
	if (strcmp(f->role, "slave") == 0) {
		report_add(r, REPORT_FAIL, "store", "this Redis is a replica, which refuses writes");
		report_change(r, "cache.address: the primary's address");
	}
	if (drops && f->max_memory > 0) {
		report_add(r, REPORT_WARN, "store", "maxmemory-policy %s may drop keys and limits", f->policy);
		report_change(r, "maxmemory-policy volatile-lru  # in redis.conf");
	}
}

static void check_private(struct report *r, const struct sluice_config *cfg)
{
	struct private_redis own;
	const struct gw_store_settings *s = &cfg->gateway.store;
	if (private_redis_find(&own, cfg->state, s->server_memory)) {
		report_add(r, REPORT_OK, "store", "`sluice serve` starts a Redis of its own: %s", own.exe);
	} else if (s->kind == GW_STORE_REDIS) {
		report_add(r, REPORT_FAIL, "store",
			   "cache.store is redis, but cache.address is empty and no redis-server is installed");
		report_change(r, "cache.address: HOST:PORT of a Redis; or apt install redis-server");
	} else {
		report_add(r, REPORT_WARN, "store",
			   "no redis-server is installed: limits and streams do not outlive a "
			   "restart of the gateway");
		report_change(r, "apt install redis-server; or cache.address: HOST:PORT of a Redis");
	}
}

void check_store(struct report *r, const struct sluice_config *cfg)
{
	const struct gw_store_settings *s = &cfg->gateway.store;
	struct cache_config c;
	struct redis_facts facts;
	struct sl_err err = {0};
	gw_store_config(s, &c);
	if (s->kind == GW_STORE_MEMORY)
		report_add(r, REPORT_OK, "store", "memory, lost when the gateway ends");
	else if (c.address == NULL)
		check_private(r, cfg);
	else if (redis_check(&c, &facts, &err) != 0)
		explain_store(r, &c, &facts, &err);
	else
		judge_store(r, &c, &facts);
}
