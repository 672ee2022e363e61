/* SPDX-License-Identifier: Apache-2.0
 *
 * A struct access_wait is a check that waits for the store: for a day's secret, then for a key. It belongs to its
 * exchange. A browser token grants what the key grants that made it: a configured key must still exist, a stored key
 * must not be revoked. When the store does not answer, the token's own claims count: they are signed and at most an
 * hour old.
 */
#include "gateway/exchange/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/exchange/app_state.h"
#include "gateway/auth/browser_token.h"
#include "gateway/auth/cors.h"
#include "gateway/auth/identities.h"
#include "gateway/auth/key_memo.h"
#include "gateway/loop/net_addr.h"
#include "gateway/exchange/route.h"
#include "gateway/auth/snapshot.h"
#include "gateway/auth/token_secrets.h"

struct access_wait {
	struct exchange *x;
	void (*granted)(struct exchange *x);
	struct identity_wait identity;
	struct secret_wait secret;
	bool waits_identity, waits_secret;
	bool is_token;
	uint8_t digest[AUTH_DIGEST_BYTES];
	struct browser_token token;
};

#define LIMITED(var, limit)                                                             \
	METRIC(var, METRIC_COUNTER, "sluice_http_limited_total", "limit=\"" limit "\"", \
	       "Requests refused and connections ended because of a limit, by limit.")
LIMITED(limited_key, "requests_per_key");
LIMITED(limited_unknown, "unknown_keys");

/* ---- refusals ---- */

static enum access_verdict refuse(struct exchange *x, int status, const char *code, const char *message)
{
	exchange_refuse(x, status, code, NULL, "%s", message);
	return ACCESS_REFUSED;
}

static enum access_verdict refuse_unknown(struct exchange *x, const char *message)
{
	return refuse(x, 401, "invalid_api_key", message);
}

static enum access_verdict refuse_forbidden(struct exchange *x, const char *message)
{
	return refuse(x, 403, "insufficient_permissions", message);
}

static enum access_verdict refuse_no_memory(struct exchange *x)
{
	exchange_reply_no_memory(x);
	return ACCESS_REFUSED;
}

static const char wrong_key[] = "Incorrect API key provided.";

static enum access_verdict refuse_by(struct exchange *x, enum identity_verdict v)
{
	if (v == IDENTITY_UNAVAILABLE)
		return refuse(x, 503, "overloaded", "The server is busy: the API key could not be checked in time.");
	if (v != IDENTITY_TOO_MANY)
		return refuse_unknown(x, wrong_key);
	metric_add(&limited_unknown, 1);
	return refuse(x, 429, "too_many_requests", "Too many unknown API keys from this address.");
}

/* ---- granting ---- */

/* A shared or leaked key may have as many open requests as its tier has concurrent answers, plus a few: bodies in
 * transit cost memory, too. */
static bool count_open(struct exchange *x, struct auth_key *key)
{
	int64_t beside = x->app->t->cfg->limits.requests_per_key;
	int64_t most = beside + (key->tier != NULL ? key->tier->concurrency : 0);
	if (atomic_fetch_add(key->n_open, 1) < most || beside == 0) {
		x->counted = key;
		return true;
	}
	atomic_fetch_sub(key->n_open, 1);
	metric_add(&limited_key, 1);
	return false;
}

/* Takes key. */
static enum access_verdict grant(struct exchange *x, struct auth_key *key)
{
	const char *origin = http_header(http_request(x->stream), "origin");
	x->key = key;
	x->subject = key->subject;
	if (origin != NULL && !auth_origin_allowed(key->origins, origin)) {
		exchange_refuse(x, 403, "origin_not_allowed", NULL, "This key can't be used from %.200s.", origin);
		return ACCESS_REFUSED;
	}
	if (!count_open(x, key))
		return refuse(x, 429, "too_many_requests", "This key has too many requests in progress.");
	if ((x->route->access != ACCESS_KEY) == (key->tier == NULL))
		return ACCESS_GRANTED;
	return refuse_forbidden(x, key->tier ? "This needs an administrator's key."
					     : "An administrator's key can't be used here.");
}

static enum access_verdict grant_new(struct exchange *x, const struct auth_person *p)
{
	struct auth_key *key = auth_key_create(p);
	return key == NULL ? refuse_no_memory(x) : grant(x, key);
}

static struct auth_person person_of(const struct identity *id)
{
	return (struct auth_person){.kind = AUTH_STORED,
				    .name = id->name,
				    .tenant_name = id->tenant,
				    .origins = id->origins,
				    .tenant = auth_tenant_number("tenant:", id->tenant, strlen(id->tenant)),
				    .expires_s = id->expires_s};
}

/* False: this configuration has no such tier. */
static bool find_tier(const struct exchange *x, const char *name, struct auth_person *p)
{
	p->tier = auth_tier(&x->snapshot->cfg, name);
	return p->tier != NULL || strcmp(name, "admin") == 0;
}

static enum access_verdict grant_stored(struct exchange *x, const struct identity *id, const uint8_t *digest)
{
	struct auth_person p = person_of(id);
	p.digest = digest;
	if (!find_tier(x, id->tier, &p))
		return refuse_forbidden(x, "The tier of this key is not configured here.");
	return grant_new(x, &p);
}

static void be_token(struct auth_person *p, const struct browser_token *t)
{
	p->kind = AUTH_TOKEN;
	p->subject = t->subject;
	p->origins = t->origins;
	p->expires_s = t->expires_s;
}

/* id: the key that made the token, from the store; NULL: the store did not answer. */
static enum access_verdict grant_stored_token(struct exchange *x, const struct identity *id,
					      const struct browser_token *t)
{
	struct identity said = {0};
	if (id == NULL) {
		memcpy(said.name, t->name, sizeof said.name);
		memcpy(said.tier, t->tier, sizeof said.tier);
		memcpy(said.tenant, t->tenant, sizeof said.tenant);
		id = &said;
	}
	struct auth_person p = person_of(id);
	be_token(&p, t);
	if (!find_tier(x, id->tier, &p) || p.tier == NULL)
		return refuse_forbidden(x, "The tier of this token is not configured here.");
	return grant_new(x, &p);
}

static enum access_verdict grant_configured_token(struct exchange *x, const struct browser_token *t)
{
	const struct auth_key *of = auth_find_name(x->snapshot->shared, t->name);
	if (of == NULL || of->tier == NULL)
		return refuse_unknown(x, "The key that created this token no longer exists.");
	struct auth_person p = {.name = of->name, .tier = of->tier, .tenant = of->tenant, .of = of};
	be_token(&p, t);
	return grant_new(x, &p);
}

/* Zero for unix sockets. */
static struct net_addr address_of(const struct exchange *x)
{
	const char *peer = http_request(x->stream)->peer;
	struct net_addr addr = {0};
	(void)net_addr_parse(peer, strlen(peer), &addr);
	return addr;
}

/* ---- requests without a key ---- */

/* A host that no page from elsewhere can have: an address, a name without dots, or one below localhost. */
static bool is_local_host(const char *authority)
{
	const char *end = authority[0] == '[' ? strchr(authority, ']') : NULL;
	size_t n = end != NULL ? (size_t)(end + 1 - authority) : strcspn(authority, ":");
	struct net_addr addr;
	return end != NULL || memchr(authority, '.', n) == NULL || net_addr_parse(authority, n, &addr) ||
	       (n > 10 && strncasecmp(authority + n - 10, ".localhost", 10) == 0);
}

static bool is_own_origin(const char *origin, const char *authority)
{
	const char *host = strstr(origin, "://");
	return host != NULL && authority[0] != '\0' && strcasecmp(host + 3, authority) == 0;
}

static bool is_listed_host(const struct gw_config *cfg, const char *authority)
{
	char origin[300];
	int n = snprintf(origin, sizeof origin, "https://%s", authority);
	if (n < 0 || (size_t)n >= sizeof origin)
		return false;
	if (cors_allows(cfg, origin))
		return true;
	snprintf(origin, sizeof origin, "http://%s", authority);
	return cors_allows(cfg, origin);
}

/* Did a page of another site send the request? A browser sends simple requests to any address for any page, a loopback
 * address included (Fetch standard, "CORS protocol"), and a page whose name resolves to a loopback address (DNS
 * rebinding) is of the same origin. Only a key would tell such pages from the user's own programs. */
static bool is_foreign_page(const struct exchange *x)
{
	const struct gw_config *cfg = &x->snapshot->cfg;
	const struct http_request *r = http_request(x->stream);
	const char *origin = http_header(r, "origin"), *site = http_header(r, "sec-fetch-site");
	struct net_addr peer = address_of(x);
	if (origin != NULL && cors_allows(cfg, origin))
		return false;
	if (origin != NULL ? !is_own_origin(origin, r->authority) : site != NULL && strcmp(site, "cross-site") == 0)
		return true;
	return net_addr_is_loopback(&peer) && !is_local_host(r->authority) && !is_listed_host(cfg, r->authority);
}

static enum access_verdict grant_anonymous(struct exchange *x)
{
	const struct gw_config *cfg = &x->snapshot->cfg;
	if (is_foreign_page(x)) {
		exchange_refuse(
		    x, 403, "origin_not_allowed", NULL,
		    "Without a key this server answers its own page and local programs. Send a key, or add the "
		    "page's origin to gateway.cors_origins.");
		return ACCESS_REFUSED;
	}
	struct net_addr addr = address_of(x), group = net_addr_group(&addr);
	const struct auth_person p = {.kind = AUTH_ANONYMOUS,
				      .name = "anonymous",
				      .tier = auth_tier(cfg, cfg->anonymous),
				      .tenant = auth_tenant_number("address:", group.b, sizeof group.b)};
	return p.tier == NULL ? refuse_unknown(x, wrong_key) : grant_new(x, &p);
}

/* ---- waiting ---- */

/* A late decision. granted may free x. */
static void decide(struct access_wait *a, enum access_verdict v)
{
	struct exchange *x = a->x;
	void (*granted)(struct exchange *) = a->granted;
	if (v == ACCESS_WAITS)
		return;
	access_cancel(x);
	if (v == ACCESS_GRANTED)
		granted(x);
}

/* x was answered meanwhile: the body was too large, for example. */
static bool is_over(const struct access_wait *a) { return http_answered(a->x->stream); }

static enum access_verdict by_identity(struct access_wait *a, enum identity_verdict v, const struct identity *id)
{
	struct exchange *x = a->x;
	if (a->is_token && (v == IDENTITY_KNOWN || v == IDENTITY_UNAVAILABLE))
		return grant_stored_token(x, id, &a->token);
	if (v == IDENTITY_KNOWN)
		return grant_stored(x, id, a->digest);
	return a->is_token && v == IDENTITY_UNKNOWN
		   ? refuse_unknown(x, "The key that created this token no longer exists.")
		   : refuse_by(x, v);
}

static void on_identity(struct identity_wait *w, enum identity_verdict v, const struct identity *id)
{
	struct access_wait *a = list_entry(w, struct access_wait, identity);
	a->waits_identity = false;
	decide(a, is_over(a) ? ACCESS_REFUSED : by_identity(a, v, id));
}

static enum access_verdict find_identity(struct access_wait *a)
{
	const struct identity *id = NULL;
	struct net_addr addr = address_of(a->x);
	enum identity_verdict v = identities_find(a->x->app->identities, a->digest, &addr, &a->identity, &id);
	a->waits_identity = v == IDENTITY_ASKED;
	return a->waits_identity ? ACCESS_WAITS : by_identity(a, v, id);
}

static bool has_stored_keys(const struct exchange *x)
{
	return x->app->identities != NULL && cache_client_state(x->app->t->cache) != CACHE_IS_MEMORY;
}

static enum access_verdict by_secret(struct access_wait *a, enum secret_verdict v, const uint8_t *secret)
{
	struct exchange *x = a->x;
	if (v == SECRET_UNAVAILABLE)
		return refuse_by(x, IDENTITY_UNAVAILABLE);
	int rc = v == SECRET_THERE ? browser_token_read(auth_bearer(http_request(x->stream), &(bool){false}), secret,
							clock_unix_s(), &a->token)
				   : SL_EINVAL;
	if (rc == SL_ENOMEM)
		return refuse_no_memory(x);
	if (rc == SL_ETIMEOUT)
		return refuse_unknown(x, "This token has expired. Request a new one.");
	if (rc != 0)
		return refuse_unknown(x, "Incorrect browser token provided.");
	if (!a->token.stored)
		return grant_configured_token(x, &a->token);
	if (!has_stored_keys(x))
		return grant_stored_token(x, NULL, &a->token);
	memcpy(a->digest, a->token.digest, sizeof a->digest);
	return find_identity(a);
}

static void on_secret(struct secret_wait *w, enum secret_verdict v, const uint8_t *secret)
{
	struct access_wait *a = list_entry(w, struct access_wait, secret);
	a->waits_secret = false;
	decide(a, is_over(a) ? ACCESS_REFUSED : by_secret(a, v, secret));
}

static enum access_verdict find_token(struct access_wait *a, int64_t period)
{
	const uint8_t *secret = NULL;
	a->is_token = true;
	enum secret_verdict v = token_secrets_find(a->x->app->secrets, period, &a->secret, &secret);
	a->waits_secret = v == SECRET_ASKED;
	return a->waits_secret ? ACCESS_WAITS : by_secret(a, v, secret);
}

static struct access_wait *access_create(struct exchange *x, void (*granted)(struct exchange *x))
{
	struct access_wait *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return NULL;
	a->x = x;
	a->granted = granted;
	a->identity.done = on_identity;
	a->secret.done = on_secret;
	x->access = a;
	return a;
}

void access_cancel(struct exchange *x)
{
	struct access_wait *a = x->access;
	if (a == NULL)
		return;
	if (a->waits_identity)
		identity_wait_cancel(&a->identity);
	if (a->waits_secret)
		secret_wait_cancel(&a->secret);
	x->access = NULL;
	sl_free(a);
}

void access_release(struct exchange *x)
{
	if (x->counted != NULL)
		atomic_fetch_sub(x->counted->n_open, 1);
	auth_key_unref(x->key);
	x->key = x->counted = NULL;
}

enum access_verdict access_check(struct exchange *x, void (*granted)(struct exchange *x))
{
	const struct gw_config *cfg = &x->snapshot->cfg;
	struct auth *keys = x->snapshot->shared;
	enum access on = x->route->access;
	uint8_t digest[AUTH_DIGEST_BYTES];
	int64_t period = 0;
	bool given;
	if (on == ACCESS_PUBLIC || (on == ACCESS_ADMIN && cfg->metrics_public))
		return ACCESS_GRANTED;
	const char *bearer = auth_bearer(http_request(x->stream), &given);
	if (!given && on == ACCESS_KEY && cfg->anonymous != NULL && cfg->anonymous[0] != '\0')
		return grant_anonymous(x);
	if (!given)
		return refuse_unknown(x, "You didn't provide an API key. Send it in an Authorization header: "
					 "'Authorization: Bearer YOUR_KEY'.");
	bool is_token = bearer != NULL && browser_token_period(bearer, &period) && x->app->secrets != NULL;
	bool is_key = bearer != NULL && !is_token && key_memo_digest(x->stream, keys, bearer, digest);
	struct auth_key *key = is_key ? auth_find(keys, digest) : NULL;
	if (key != NULL)
		return grant(x, key);
	if (!is_token && (!is_key || !has_stored_keys(x)))
		return refuse_unknown(x, wrong_key);
	struct access_wait *a = access_create(x, granted);
	if (a == NULL)
		return refuse_no_memory(x);
	if (is_key)
		memcpy(a->digest, digest, sizeof a->digest);
	enum access_verdict v = is_token ? find_token(a, period) : find_identity(a);
	if (v != ACCESS_WAITS)
		access_cancel(x);
	return v;
}
