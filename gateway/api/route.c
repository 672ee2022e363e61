/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/exchange/route.h"

#include <string.h>

#include "base/utf8.h"
#include "gateway/admin/admin.h"
#include "gateway/api/handlers.h"
#include "gateway/files/files.h"
#include "gateway/probe/probe.h"

const struct route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_KEY, BODY_JSON, api_chat, "chat", true},
    {"GET", "/v1/streams/{id}", ACCESS_KEY, BODY_NONE, api_stream, "stream", false},
    {"DELETE", "/v1/streams/{id}", ACCESS_KEY, BODY_NONE, api_stream_stop, "stream", false},
    {"GET", "/v1/models", ACCESS_KEY, BODY_NONE, api_models, "models", false},
    {"GET", "/v1/models/{model}", ACCESS_KEY, BODY_NONE, api_model, "model", false},
    {"POST", "/v1/load_lora_adapter", ACCESS_ADMIN_ONLY, BODY_JSON, api_load_adapter, "load_adapter", false},
    {"POST", "/v1/unload_lora_adapter", ACCESS_ADMIN_ONLY, BODY_JSON, api_unload_adapter, "unload_adapter", false},
    {"POST", "/v1/completions", ACCESS_KEY, BODY_JSON, api_completions, "completions", true},
    {"POST", "/v1/responses", ACCESS_KEY, BODY_JSON, api_response_create, "responses", true},
    {"POST", "/v1/responses/input_tokens", ACCESS_KEY, BODY_JSON, api_response_count, "input_tokens", false},
    {"GET", "/v1/responses/{id}", ACCESS_KEY, BODY_NONE, api_response, "response", false},
    {"DELETE", "/v1/responses/{id}", ACCESS_KEY, BODY_NONE, api_response_delete, "response", false},
    {"POST", "/v1/responses/{id}/cancel", ACCESS_KEY, BODY_NONE, api_response_cancel, "response", false},
    {"GET", "/v1/responses/{id}/input_items", ACCESS_KEY, BODY_NONE, api_response_items, "response_items", false},
    {"POST", "/v1/conversations", ACCESS_KEY, BODY_JSON, api_conversation_create, "conversations", false},
    {"GET", "/v1/conversations", ACCESS_KEY, BODY_NONE, api_conversations, "conversations", false},
    {"GET", "/v1/conversations/{id}", ACCESS_KEY, BODY_NONE, api_conversation, "conversation", false},
    {"POST", "/v1/conversations/{id}", ACCESS_KEY, BODY_JSON, api_conversation_update, "conversation", false},
    {"DELETE", "/v1/conversations/{id}", ACCESS_KEY, BODY_NONE, api_conversation_delete, "conversation", false},
    {"GET", "/v1/conversations/{id}/export", ACCESS_KEY, BODY_NONE, api_conversation_export, "conversation_export",
     false},
    {"GET", "/v1/conversations/{id}/items", ACCESS_KEY, BODY_NONE, api_conversation_items, "conversation_items", false},
    {"POST", "/v1/conversations/{id}/items", ACCESS_KEY, BODY_JSON, api_conversation_items_add, "conversation_items",
     false},
    {"GET", "/v1/conversations/{id}/items/{item}", ACCESS_KEY, BODY_NONE, api_conversation_item, "conversation_item",
     false},
    {"DELETE", "/v1/conversations/{id}/items/{item}", ACCESS_KEY, BODY_NONE, api_conversation_item_delete,
     "conversation_item", false},
    {"POST", "/v1/files", ACCESS_KEY, BODY_FORM, files_create, "files", false},
    {"GET", "/v1/files", ACCESS_KEY, BODY_NONE, files_list, "files", false},
    {"GET", "/v1/files/{id}", ACCESS_KEY, BODY_NONE, files_get, "file", false},
    {"DELETE", "/v1/files/{id}", ACCESS_KEY, BODY_NONE, files_delete, "file", false},
    {"GET", "/v1/files/{id}/content", ACCESS_KEY, BODY_NONE, files_content, "file_content", false},
    {"POST", "/v1/browser_tokens", ACCESS_KEY, BODY_JSON, api_browser_tokens, "browser_tokens", false},
    {"GET", "/v1/usage", ACCESS_KEY, BODY_NONE, api_usage, "usage", false},
    {"GET", "/v1/probe", ACCESS_KEY, BODY_NONE, probe_stream, "probe", false},
    {"GET", "/v1/probe/{id}", ACCESS_KEY, BODY_NONE, probe_end, "probe", false},
    {"POST", "/v1/embeddings", ACCESS_KEY, BODY_JSON, api_embeddings, "embeddings", false},
    {"POST", "/v1/rerank", ACCESS_KEY, BODY_JSON, api_rerank, "rerank", false},
    {"POST", "/v1/score", ACCESS_KEY, BODY_JSON, api_score, "score", false},
    {"POST", "/tokenize", ACCESS_KEY, BODY_JSON, api_tokenize, "tokenize", false},
    {"POST", "/detokenize", ACCESS_KEY, BODY_JSON, api_detokenize, "detokenize", false},
    {"POST", "/v1/messages", ACCESS_KEY, BODY_JSON, api_messages, "messages", true},
    {"POST", "/v1/messages/count_tokens", ACCESS_KEY, BODY_JSON, api_messages_count, "messages_count", false},
    {"POST", "/api/chat", ACCESS_KEY, BODY_JSON, api_ollama_chat, "ollama_chat", true},
    {"POST", "/api/generate", ACCESS_KEY, BODY_JSON, api_ollama_generate, "ollama_generate", true},
    {"POST", "/api/embed", ACCESS_KEY, BODY_JSON, api_ollama_embed, "ollama_embed", false},
    {"POST", "/api/embeddings", ACCESS_KEY, BODY_JSON, api_ollama_embeddings, "ollama_embed", false},
    {"POST", "/api/show", ACCESS_KEY, BODY_JSON, api_ollama_show, "ollama_show", false},
    {"GET", "/api/tags", ACCESS_KEY, BODY_NONE, api_ollama_tags, "ollama_tags", false},
    {"GET", "/api/ps", ACCESS_KEY, BODY_NONE, api_ollama_ps, "ollama_ps", false},
    {"GET", "/api/version", ACCESS_KEY, BODY_NONE, api_ollama_version, "ollama_version", false},
    {"GET", "/live", ACCESS_PUBLIC, BODY_NONE, api_live, "live", false},
    {"GET", "/ready", ACCESS_PUBLIC, BODY_NONE, api_ready, "ready", false},
    {"GET", "/health", ACCESS_PUBLIC, BODY_NONE, api_health, "health", false},
    {"GET", "/metrics", ACCESS_ADMIN, BODY_NONE, api_metrics, "metrics", false},
    {"GET", "/v1/admin/status", ACCESS_ADMIN_ONLY, BODY_NONE, admin_status, "admin", false},
    {"GET", "/v1/admin/streams", ACCESS_ADMIN_ONLY, BODY_NONE, admin_streams, "admin_streams", false},
    {"DELETE", "/v1/admin/streams/{id}", ACCESS_ADMIN_ONLY, BODY_NONE, admin_cancel, "admin_streams", false},
    {"GET", "/v1/admin/history", ACCESS_ADMIN_ONLY, BODY_NONE, admin_history, "admin", false},
    {"GET", "/v1/admin/log", ACCESS_ADMIN_ONLY, BODY_NONE, admin_log, "admin", false},
    {"POST", "/v1/admin/log", ACCESS_ADMIN_ONLY, BODY_JSON, admin_log_set, "admin", false},
    {"POST", "/v1/admin/reload", ACCESS_ADMIN_ONLY, BODY_NONE, admin_reload, "admin", false},
    {"POST", "/v1/admin/drain", ACCESS_ADMIN_ONLY, BODY_NONE, admin_drain, "admin", false},
    {"GET", "/v1/admin/variants", ACCESS_ADMIN_ONLY, BODY_NONE, admin_variants, "admin", false},
    {"POST", "/v1/admin/variants", ACCESS_ADMIN_ONLY, BODY_JSON, admin_variants_set, "admin", false},
    {"POST", "/v1/admin/flight", ACCESS_ADMIN_ONLY, BODY_NONE, admin_flight, "admin", false},
    {"GET", "/openapi.json", ACCESS_PUBLIC, BODY_NONE, api_openapi, "openapi", false},
    {"GET", "/", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/admin", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/www/{file}", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/www/vendor/{file}", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/favicon.ico", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/client.js", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
    {"GET", "/client.d.ts", ACCESS_PUBLIC, BODY_NONE, page_serve, "page", false},
};

const size_t n_routes = sizeof routes / sizeof routes[0];

/* A model's name may have parts itself (org/name). None of them is empty. */
static size_t name_length(const char *path)
{
	size_t n = 0, part;
	while ((part = strcspn(path + n, "/")) > 0 && path[n + part] == '/')
		n += part + 1;
	return part > 0 ? n + part : 0;
}

/* Segment by segment; `{name}` matches one that is not empty, `{model}` all that are left. *part: the first match. */
static bool path_matches(const struct route *r, const char *path, const char **part, size_t *n_part)
{
	const char *pattern = r->path;
	bool first = true;
	while (*pattern != '\0') {
		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		size_t n = strncmp(pattern, "{model}", 7) == 0 ? name_length(path) : strcspn(path, "/");
		if (n == 0)
			return false;
		if (first) {
			*part = path;
			*n_part = n;
		}
		first = false;
		path += n;
		pattern += strcspn(pattern, "}") + 1; /* each has one */
	}
	return *path == '\0';
}

static bool matches(const struct route *r, const char *path)
{
	const char *part = NULL;
	size_t n;
	return path_matches(r, path, &part, &n);
}

bool route_part(const struct route *r, const char *path, char *out, size_t room)
{
	const char *part = NULL;
	size_t n = 0;
	bool is = path_matches(r, path, &part, &n) && part != NULL && n < room;
	if (is) {
		memcpy(out, part, n);
		out[n] = '\0';
	}
	return is;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool route_unescape(char *part)
{
	char *out = part;
	for (const char *p = part; *p != '\0'; p++) {
		char c = *p;
		if (c == '%') {
			int high = hex_digit(p[1]), low = high < 0 ? -1 : hex_digit(p[2]);
			if (low < 0)
				return false;
			c = (char)(high << 4 | low);
			if ((c >= 0 && c < ' ') || c == 0x7f)
				return false;
			p += 2;
		}
		*out++ = c;
	}
	*out = '\0';
	return utf8_valid(part, (size_t)(out - part));
}

static bool has_method(const char *path, const char *method)
{
	for (size_t i = 0; i < n_routes; i++)
		if (matches(&routes[i], path) && strcmp(routes[i].method, method) == 0)
			return true;
	return false;
}

const char *route_methods(const char *path)
{
	static const char *const lists[] = {NULL,
					    "GET, HEAD, OPTIONS",
					    "POST, OPTIONS",
					    "GET, HEAD, POST, OPTIONS",
					    "DELETE, OPTIONS",
					    "GET, HEAD, DELETE, OPTIONS",
					    "POST, DELETE, OPTIONS",
					    "GET, HEAD, POST, DELETE, OPTIONS"};
	return lists[has_method(path, "GET") + 2 * has_method(path, "POST") + 4 * has_method(path, "DELETE")];
}

/* What the names of a kind begin with, so that /v1/responses/compact is no response asked for by a wrong method. */
static const struct {
	const char *under, *prefix;
} names[] = {{"/v1/responses/", "resp_"}, {"/v1/conversations/", "conv_"}, {"/v1/streams/", "chatcmpl-"},
	     {"/v1/streams/", "cmpl-"},   {"/v1/streams/", "resp_"},       {"/v1/probe/", "probe_"},
	     {"/v1/files/", "file-"}};

/* Whether a path that has a route by another method is one of those that are served. A model's name may have several
 * parts, so any path below one would be a model: here only those of one part count. */
static bool is_served(const char *path)
{
	bool is_name = true;
	if (strcmp(path, "/v1/responses/input_tokens") == 0)
		return true;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t n = strlen(names[i].under);
		if (strncmp(path, names[i].under, n) != 0)
			continue;
		if (strncmp(path + n, names[i].prefix, strlen(names[i].prefix)) == 0)
			return true;
		is_name = false;
	}
	bool is_model = strncmp(path, "/v1/models/", 11) == 0;
	return is_name && !(is_model && strchr(path + 11, '/') != NULL);
}

const struct route *route_find(const char *method, const char *path, const char **allow)
{
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	*allow = NULL;
	for (size_t i = 0; i < n_routes; i++)
		if (matches(&routes[i], path) && strcmp(routes[i].method, method) == 0)
			return &routes[i];
	/* What another site's page asks for beforehand (CORS) may be any model. */
	*allow = strcmp(method, "OPTIONS") == 0 || is_served(path) ? route_methods(path) : NULL;
	return NULL;
}
