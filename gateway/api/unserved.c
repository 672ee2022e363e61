/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths of OpenAI's API and of other servers that this version does not serve, with what to use instead: a client gets
 * a sentence, and not only that the path is unknown or its method is wrong.
 */
#include "gateway/api/unserved.h"

#include <string.h>

static const char text_only[] = "Only text is read and written.";
static const char chat[] = "Use POST /v1/chat/completions.";
static const char in_parts[] = "Send many requests at once; limits are by key.";
static const char no_tuning[] = "Models are configured: engine.models, and 'sluice model' for their files.";
static const char keep[] = "Use /v1/responses and /v1/conversations, which are stored.";
static const char no_files[] = "Put the text into the messages, or send it once by POST /v1/files.";
static const char rerank[] = "Use POST /v1/rerank.";
static const char score[] = "Use POST /v1/score.";
static const char keys[] = "Keys are managed by 'sluice keys', limits are in GET /v1/usage.";

/* A path and all below it; method NULL: any. */
static const struct {
	const char *method, *path, *instead;
} unserved[] = {
    {"GET", "/v1/chat/completions", keep},
    {NULL, "/v1/chat/completions/", keep},
    {"DELETE", "/v1/models/", no_tuning},
    {NULL, "/v1/responses/compact", "A key's tier decides how long conversations are shortened."},
    {"GET", "/v1/responses", "Responses are listed by conversation: GET /v1/conversations."},
    {NULL, "/v1/assistants", keep},
    {NULL, "/v1/threads", keep},
    {NULL, "/v1/audio", text_only},
    {NULL, "/v1/images", text_only},
    {NULL, "/v1/videos", text_only},
    {NULL, "/v1/realtime", "Use POST /v1/responses with 'stream'."},
    {NULL, "/v1/batches", in_parts},
    {NULL, "/v1/uploads", no_files},
    {NULL, "/v1/vector_stores", no_files},
    {NULL, "/v1/containers", no_files},
    {NULL, "/v1/skills", no_files},
    {NULL, "/v1/fine_tuning", no_tuning},
    {NULL, "/v1/fine-tunes", no_tuning},
    {NULL, "/v1/evals", chat},
    {NULL, "/v1/graders", chat},
    {NULL, "/v1/chatkit", keep},
    {NULL, "/v1/moderations", chat},
    {NULL, "/v1/edits", chat},
    {NULL, "/v1/engines", "Use GET /v1/models."},
    {NULL, "/v1/organization", keys},
    {NULL, "/v1/projects", keys},
    {NULL, "/v1/dashboard", keys},
    /* Of other servers. */
    {NULL, "/v1/messages/batches", in_parts},
    {NULL, "/v1/complete", "Use POST /v1/messages."},
    {NULL, "/v2/rerank", rerank},
    {NULL, "/rerank", rerank},
    {NULL, "/score", score},
    {NULL, "/pooling", "Use POST /v1/embeddings."},
    {NULL, "/classify", score},
    {NULL, "/generate", "Use POST /v1/completions."},
    {NULL, "/generate_stream", "Use POST /v1/completions with 'stream'."},
    {NULL, "/completion", "Use POST /v1/completions."},
    {NULL, "/completions", "Use POST /v1/completions."},
    {NULL, "/chat/completions", chat},
    {NULL, "/embeddings", "Use POST /v1/embeddings."},
    {NULL, "/responses", "Use POST /v1/responses."},
    {NULL, "/models", "Use GET /v1/models."},
    {NULL, "/infill", "Use POST /v1/completions."},
    {NULL, "/apply-template", "POST /tokenize has the tokens of a chat."},
    {NULL, "/props", "Use GET /v1/models."},
    {NULL, "/slots", "Use GET /metrics."},
    {NULL, "/api/pull", no_tuning},
    {NULL, "/api/push", no_tuning},
    {NULL, "/api/create", no_tuning},
    {NULL, "/api/delete", no_tuning},
    {NULL, "/api/copy", no_tuning},
    {NULL, "/api/blobs", no_tuning},
    {NULL, "/api/signin", keys},
    {NULL, "/api/signout", keys},
    {NULL, "/api/me", keys},
};

static bool is_below(const char *path, const char *of)
{
	size_t n = strlen(of);
	if (strncmp(path, of, n) != 0)
		return false;
	return of[n - 1] == '/' || path[n] == '\0' || path[n] == '/';
}

const char *unserved_instead(const char *method, const char *path)
{
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (size_t i = 0; i < sizeof unserved / sizeof *unserved; i++)
		if ((unserved[i].method == NULL || strcmp(unserved[i].method, method) == 0) &&
		    is_below(path, unserved[i].path))
			return unserved[i].instead;
	return NULL;
}
