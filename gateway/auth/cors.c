/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/cors.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool cors_is_origin(const char *o)
{
	const char *host = strncmp(o, "http://", 7) == 0 ? o + 7 : strncmp(o, "https://", 8) == 0 ? o + 8 : NULL;
	if (host == NULL || *host == '\0' || *host == ':' || strpbrk(host, "/?#@ ") != NULL)
		return false;
	const char *star = strchr(host, '*');
	return star == NULL || (star[1] == '\0' && star > host && star[-1] == ':');
}

bool cors_matches(const char *entry, const char *origin)
{
	size_t n = strlen(entry);
	if (n < 2 || strcmp(entry + n - 2, ":*") != 0)
		return strcmp(entry, origin) == 0;
	if (strncmp(entry, origin, n - 2) != 0)
		return false;
	/* Nothing, or a colon and a port. */
	const char *rest = origin + n - 2;
	if (*rest == '\0')
		return true;
	if (*rest++ != ':' || *rest == '\0' || strlen(rest) > 5)
		return false;
	return strspn(rest, "0123456789") == strlen(rest);
}

bool cors_allows(const struct gw_config *cfg, const char *origin)
{
	for (size_t i = 0; i < cfg->cors_origins.n; i++)
		if (cors_matches(cfg->cors_origins.items[i], origin))
			return true;
	return false;
}

size_t cors_fields(const struct gw_config *cfg, const struct http_request *r, struct http_field *out)
{
	return cors_origin_fields(cfg, http_header(r, "origin"), out);
}

size_t cors_origin_fields(const struct gw_config *cfg, const char *origin, struct http_field *out)
{
	size_t n = 0;
	if (cfg->cors_origins.n == 0)
		return 0;
	/* Also for refused origins: a cache must not serve one origin's response to another. */
	out[n++] = (struct http_field){"vary", "Origin"};
	if (origin == NULL || !cors_allows(cfg, origin))
		return n;
	out[n++] = (struct http_field){"access-control-allow-origin", origin};
	out[n++] = (struct http_field){
	    "access-control-expose-headers",
	    "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, "
	    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
	    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
	    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, x-sluice-stream-id, x-sluice-cleansed-bytes, "
	    "x-sluice-ignored-fields"};
	return n;
}

bool cors_is_preflight(const struct http_request *r)
{
	return strcmp(r->method, "OPTIONS") == 0 && http_header(r, "origin") != NULL &&
	       http_header(r, "access-control-request-method") != NULL;
}

static bool header_allowed(const char *name)
{
	static const char *const known[] = {"authorization",
					    "content-type",
					    "accept",
					    "idempotency-key",
					    "last-event-id",
					    "openai-organization",
					    "openai-project",
					    "openai-beta",
					    "user-agent",
					    "x-request-id",
					    "x-sluice-events",
					    "x-sluice-conversation",
					    "x-sluice-notify",
					    "x-api-key",
					    "anthropic-version",
					    "anthropic-beta",
					    "anthropic-dangerous-direct-browser-access"};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcasecmp(name, known[i]) == 0)
			return true;
	return strncasecmp(name, "x-stainless-", 12) == 0;
}

static bool is_token(const char *s)
{
	for (; *s != '\0'; s++)
		if (!http_is_token(*s))
			return false;
	return true;
}

/* The requested header names that are allowed; always Authorization and Content-Type by name, because `*` does not
 * cover Authorization. */
static void allowed_headers(const char *asked, char *out)
{
	size_t n = (size_t)snprintf(out, CORS_HEADERS_BYTES, "authorization, content-type");
	while (asked != NULL && *asked != '\0') {
		char name[64];
		size_t len = strcspn(asked, ", \t");
		if (len > 0 && len < sizeof name) {
			memcpy(name, asked, len);
			name[len] = '\0';
			if (is_token(name) && header_allowed(name) && strcasecmp(name, "authorization") != 0 &&
			    strcasecmp(name, "content-type") != 0 && n + len + 3 < CORS_HEADERS_BYTES)
				n += (size_t)snprintf(out + n, CORS_HEADERS_BYTES - n, ", %s", name);
		}
		asked += len;
		asked += strspn(asked, ", \t");
	}
}

size_t cors_preflight_fields(const struct http_request *r, const char *methods, char *headers, struct http_field *out)
{
	allowed_headers(http_header(r, "access-control-request-headers"), headers);
	out[0] = (struct http_field){"access-control-allow-methods", methods};
	out[1] = (struct http_field){"access-control-allow-headers", headers};
	out[2] = (struct http_field){"access-control-max-age", "7200"};
	return 3;
}
