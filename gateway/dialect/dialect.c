/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of both APIs, and the choice between them by path. Neither API has a member for the field: the message names
 * it.
 */
#include "gateway/dialect/dialect.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json/json_out.h"
#include "base/json/json_scan.h"

void dialect_time(int64_t s, uint32_t ns, char out[DIALECT_TIME_BYTES])
{
	time_t t = (time_t)s;
	struct tm tm;
	if (gmtime_r(&t, &tm) == NULL)
		tm = (struct tm){.tm_year = 70, .tm_mday = 1};
	size_t n = strftime(out, DIALECT_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	if (ns > 0)
		n += (size_t)snprintf(out + n, DIALECT_TIME_BYTES - n, ".%09u", (unsigned)(ns % 1000000000));
	snprintf(out + n, DIALECT_TIME_BYTES - n, "Z");
}

static bool is_object(const char *text, size_t n)
{
	struct json_scan s;
	json_scan_init(&s, text, n);
	return json_scan_peek(&s) == '{' && json_scan_skip(&s) && json_scan_end(&s);
}

/* Line ends are blanks between values; inside strings they are escaped. */
int dialect_put_arguments(struct sl_buf *out, const struct sl_buf *arguments)
{
	const char *text = (const char *)buf_data(arguments);
	uint8_t *to;
	if (arguments->len == 0 || !is_object(text, arguments->len))
		return buf_append_str(out, "{}");
	int rc = buf_reserve(out, arguments->len, &to);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < arguments->len; i++)
		to[i] = text[i] == '\n' || text[i] == '\r' ? ' ' : (uint8_t)text[i];
	buf_commit(out, arguments->len);
	return 0;
}

/* ---- Anthropic's ---- */

enum { OVERLOADED = 529 }; /* its status for an overloaded server */

static const char *messages_error_type(int status)
{
	switch (status) {
	case 401: return "authentication_error";
	case 403: return "permission_error";
	case 404: return "not_found_error";
	case 413: return "request_too_large";
	case 429: return "rate_limit_error";
	case 503: return "overloaded_error";
	default: return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

static int messages_status_of(int status) { return status == 503 ? OVERLOADED : status; }

static int put_request_id(struct sl_buf *out, const char *id)
{
	int rc = buf_append_str(out, "},\"request_id\":");
	if (rc == 0)
		rc = json_out_string(out, id, strlen(id));
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int messages_print_error(struct sl_buf *out, const struct exchange *x, const struct api_error *e,
				const char *message)
{
	int rc = buf_printf(
	    out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", messages_error_type(e->status));
	if (rc == 0)
		rc = json_out_string(out, message, strlen(message));
	if (rc == 0)
		rc = x != NULL ? put_request_id(out, x->id) : buf_append_str(out, "},\"request_id\":null}");
	return rc;
}

const struct reply_form messages_form = {.stream_type = "text/event-stream",
					 .id_field = "request-id",
					 .print_error = messages_print_error,
					 .status_of = messages_status_of};

int messages_put_model(struct sl_buf *out, const char *id, int64_t created_s)
{
	char created[DIALECT_TIME_BYTES];
	dialect_time(created_s, 0, created);
	int rc = buf_append_str(out, "{\"type\":\"model\",\"id\":");
	if (rc == 0)
		rc = json_out_string(out, id, strlen(id));
	if (rc == 0)
		rc = buf_append_str(out, ",\"display_name\":");
	if (rc == 0)
		rc = json_out_string(out, id, strlen(id));
	return rc == 0 ? buf_printf(out, ",\"created_at\":\"%s\"}", created) : rc;
}

/* ---- Ollama's ---- */

static int ollama_print_error(struct sl_buf *out, const struct exchange *x, const struct api_error *e,
			      const char *message)
{
	(void)x, (void)e;
	int rc = buf_append_str(out, "{\"error\":");
	if (rc == 0)
		rc = json_out_string(out, message, strlen(message));
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

const struct reply_form ollama_form = {.stream_type = "application/x-ndjson", .print_error = ollama_print_error};

/* ---- which ---- */

static bool is_below(const char *path, const char *of)
{
	size_t n = strlen(of);
	return strncmp(path, of, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const struct reply_form *dialect_form(const struct http_request *r)
{
	if (is_below(r->path, "/api"))
		return &ollama_form;
	if (is_below(r->path, "/v1/messages") ||
	    (is_below(r->path, "/v1/models") && http_header(r, "anthropic-version") != NULL))
		return &messages_form;
	return NULL;
}
