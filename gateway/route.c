/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/route.h"

#include <string.h>

#include "gateway/handlers.h"

const struct route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_KEY, true, api_chat, "chat"},
    {"GET", "/v1/models", ACCESS_KEY, false, api_models, "models"},
    {"GET", "/v1/models/", ACCESS_KEY, false, api_model, "model"},
    {"POST", "/v1/completions", ACCESS_KEY, true, api_unbuilt, "completions"},
    {"POST", "/v1/responses", ACCESS_KEY, true, api_unbuilt, "responses"},
    {"POST", "/v1/embeddings", ACCESS_KEY, true, api_unbuilt, "embeddings"},
    {"GET", "/live", ACCESS_PUBLIC, false, api_live, "live"},
    {"GET", "/ready", ACCESS_PUBLIC, false, api_ready, "ready"},
    {"GET", "/health", ACCESS_PUBLIC, false, api_health, "health"},
    {"GET", "/metrics", ACCESS_ADMIN, false, api_metrics, "metrics"},
    {"GET", "/openapi.json", ACCESS_PUBLIC, false, api_openapi, "openapi"},
    {"GET", "/", ACCESS_PUBLIC, false, page_serve, "page"},
    {"GET", "/www/", ACCESS_PUBLIC, false, page_serve, "page"},
    {"GET", "/favicon.ico", ACCESS_PUBLIC, false, page_serve, "page"},
    {"GET", "/client.js", ACCESS_PUBLIC, false, page_serve, "page"},
    {"GET", "/client.d.ts", ACCESS_PUBLIC, false, page_serve, "page"},
};

const size_t n_routes = sizeof routes / sizeof routes[0];

static bool path_matches(const struct route *r, const char *path)
{
	size_t n = strlen(r->path);
	if (n == 1 || r->path[n - 1] != '/')
		return strcmp(r->path, path) == 0;
	return strncmp(r->path, path, n) == 0 && path[n] != '\0' && strchr(path + n, '/') == NULL;
}

const char *route_methods(const char *path)
{
	for (size_t i = 0; i < n_routes; i++)
		if (path_matches(&routes[i], path))
			return strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
	return NULL;
}

const struct route *route_find(const char *method, const char *path, const char **allow)
{
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	*allow = route_methods(path);
	for (size_t i = 0; i < n_routes; i++)
		if (path_matches(&routes[i], path) && strcmp(routes[i].method, method) == 0)
			return &routes[i];
	return NULL;
}
