/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/exchange/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/json/json_out.h"
#include "base/utf8.h"
#include "gateway/auth/cors.h"
#include "gateway/loop/thread.h"
#include "gateway/request/request_fields.h"
#include "gateway/variant/variant.h"

enum {
	MAX_REPLY_BYTES = 64 << 20,
	MAX_ERROR_BYTES = 8192,
	LONGEST_RETRY_S = 60, /* the Node libraries; those for Python take 120 */
};

struct field_list {
	struct http_field at[EXCHANGE_MAX_FIELDS + 7 + CORS_MAX_FIELDS + QUOTA_MAX_FIELDS];
	size_t n;
	struct quota_text quota;
	char cleansed[24];
};

void exchange_set_quota(struct exchange *x, const struct quota_result *r)
{
	if (x->quota == NULL)
		x->quota = sl_alloc(sizeof *x->quota);
	if (x->quota != NULL)
		*x->quota = *r;
}

/* The common fields of every response, then the handler's. */
static void gather(struct exchange *x, struct field_list *out, const char *content_type,
		   const struct http_field *fields, size_t n_fields)
{
	BUG_IF(n_fields > EXCHANGE_MAX_FIELDS, "an answer with %zu own fields", n_fields);
	out->n = 0;
	if (content_type != NULL)
		out->at[out->n++] = (struct http_field){"content-type", content_type};
	out->at[out->n++] = (struct http_field){"x-request-id", x->id};
	if (x->form != NULL && x->form->id_field != NULL)
		out->at[out->n++] = (struct http_field){x->form->id_field, x->id};
	out->n += cors_fields(http_thread(x->stream)->cfg, http_request(x->stream), out->at + out->n);
	if (x->quota != NULL)
		out->n += quota_fields(x->quota, &out->quota, out->at + out->n);
	if (x->cleansed) {
		snprintf(out->cleansed, sizeof out->cleansed, "%llu", (unsigned long long)x->cleansed_bytes);
		out->at[out->n++] = (struct http_field){"x-sluice-cleansed-bytes", out->cleansed};
	}
	if (x->ignored != NULL)
		out->at[out->n++] = (struct http_field){"x-sluice-ignored-fields", x->ignored};
	if (x->degraded != NULL)
		out->at[out->n++] = (struct http_field){"x-sluice-degraded", x->degraded};
	if (x->variant != NULL)
		out->at[out->n++] = (struct http_field){"x-sluice-variant", x->variant->cfg->name};
	for (size_t i = 0; i < n_fields; i++)
		out->at[out->n++] = fields[i];
}

void exchange_reply(struct exchange *x, int status, const char *content_type, const struct http_field *fields,
		    size_t n_fields, const void *body, size_t n)
{
	struct field_list all;
	gather(x, &all, content_type, fields, n_fields);
	x->status = status;
	if (http_reply(x->stream, status, all.at, all.n, body, n) != 0)
		http_reset(x->stream);
}

static void reply_json(struct exchange *x, const struct http_field *fields, size_t n_fields, json_t *v)
{
	struct sl_buf out;
	buf_init(&out, MAX_REPLY_BYTES);
	if (v != NULL && request_put_json(&out, v) == 0)
		exchange_reply(x, 200, "application/json", fields, n_fields, buf_data(&out), out.len);
	else
		exchange_reply_no_memory(x);
	buf_dispose(&out);
	json_decref(v);
}

void exchange_reply_json(struct exchange *x, json_t *v) { reply_json(x, NULL, 0, v); }

void exchange_reply_json_no_store(struct exchange *x, json_t *v)
{
	reply_json(x, &(struct http_field){"cache-control", "no-store"}, 1, v);
}

void exchange_reply_text(struct exchange *x, struct sl_buf *out, int rc)
{
	if (rc == 0)
		exchange_reply(x, 200, "application/json", NULL, 0, buf_data(out), out->len);
	else
		exchange_reply_no_memory(x);
	buf_dispose(out);
}

static void reply_pulled(struct exchange *x, const char *content_type, const struct http_field *fields, size_t n_fields,
			 struct http_source src)
{
	struct field_list all;
	gather(x, &all, content_type, fields, n_fields);
	x->status = 200;
	if (http_reply_stream(x->stream, 200, all.at, all.n, src) != 0)
		http_reset(x->stream);
}

void exchange_reply_stream(struct exchange *x, const struct http_field *fields, size_t n_fields, struct http_source src)
{
	reply_pulled(x, exchange_stream_type(x), fields, n_fields, src);
}

const char *exchange_stream_type(const struct exchange *x)
{
	return x->form != NULL ? x->form->stream_type : "text/event-stream";
}

void exchange_reply_json_stream(struct exchange *x, struct http_source src)
{
	reply_pulled(x, "application/json", NULL, 0, src);
}

static int put_string_or_null(struct sl_buf *out, const char *s)
{
	return s == NULL || s[0] == '\0' ? buf_append_str(out, "null") : json_out_string(out, s, strlen(s));
}

int api_error_print(struct sl_buf *out, const struct api_error *e, const char *message)
{
	int rc;
	if ((rc = buf_append_str(out, "{\"error\":{\"message\":")) != 0 ||
	    (rc = json_out_string(out, message, strlen(message))) != 0 ||
	    (rc = buf_append_str(out, ",\"type\":")) != 0 || (rc = put_string_or_null(out, e->type)) != 0 ||
	    (rc = buf_append_str(out, ",\"param\":")) != 0 || (rc = put_string_or_null(out, e->param)) != 0 ||
	    (rc = buf_append_str(out, ",\"code\":")) != 0 || (rc = put_string_or_null(out, e->code)) != 0)
		return rc;
	return buf_append_str(out, "}}");
}

int exchange_print_error(struct sl_buf *out, const struct exchange *x, const struct api_error *e, const char *message)
{
	return x->form != NULL ? x->form->print_error(out, x, e, message) : api_error_print(out, e, message);
}

static void error_va(struct exchange *x, const struct api_error *e, const char *fmt, va_list ap)
{
	char message[1024], retry[16], retry_ms[16];
	struct http_field fields[4];
	size_t n = 0;
	vsnprintf(message, sizeof message, fmt, ap);
	/* Text quoted from the request may have been cut inside a character. */
	message[utf8_whole_prefix((const uint8_t *)message, strlen(message))] = '\0';
	if (e->retry_after_s > 0) {
		snprintf(retry, sizeof retry, "%u", e->retry_after_s);
		fields[n++] = (struct http_field){"retry-after", retry};
		if (x->retry_ms > 0) {
			snprintf(retry_ms, sizeof retry_ms, "%u", x->retry_ms);
			fields[n++] = (struct http_field){"retry-after-ms", retry_ms};
		}
		/* Client libraries do not wait that long: they would retry at once, in vain. */
		if (e->retry_after_s > LONGEST_RETRY_S)
			fields[n++] = (struct http_field){"x-should-retry", "false"};
	}
	if (e->status == 401)
		fields[n++] = (struct http_field){"www-authenticate", "Bearer"};

	struct sl_buf body;
	buf_init(&body, MAX_ERROR_BYTES);
	int status = x->form != NULL && x->form->status_of != NULL ? x->form->status_of(e->status) : e->status;
	if (exchange_print_error(&body, x, e, message) == 0)
		exchange_reply(x, status, "application/json", fields, n, buf_data(&body), body.len);
	else
		exchange_reply(x, status, NULL, fields, n, NULL, 0);
	buf_dispose(&body);
}

void exchange_error(struct exchange *x, const struct api_error *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	error_va(x, e, fmt, ap);
	va_end(ap);
}

bool exchange_refuse(struct exchange *x, int status, const char *code, const char *param, const char *fmt, ...)
{
	const char *type = status == 429   ? "rate_limit_error"
			   : status >= 500 ? "server_error"
					   : "invalid_request_error";
	va_list ap;
	va_start(ap, fmt);
	error_va(x, &(struct api_error){status, type, code, param, status == 409 || status == 429 || status == 503},
		 fmt, ap);
	va_end(ap);
	return false;
}

const struct api_error exchange_no_memory = {503, "server_error", "overloaded", NULL, 1};

void exchange_reply_no_memory(struct exchange *x)
{
	exchange_error(x, &exchange_no_memory, "The server is out of memory.");
}

void *exchange_own(struct exchange *x, size_t size, void (*on_close)(struct exchange *x))
{
	void *state = sl_zalloc(size);
	if (state == NULL) {
		exchange_reply_no_memory(x);
		return NULL;
	}
	x->state = state;
	x->on_close = on_close;
	return state;
}

void exchange_disown(struct exchange *x)
{
	x->state = NULL;
	x->on_close = NULL;
}

const char *exchange_body(const struct exchange *x) { return x->body.len > 0 ? (const char *)buf_data(&x->body) : ""; }

const struct http_field stream_fields[STREAM_FIELDS] = {
    {"cache-control", "no-cache, no-transform"},
    {"x-accel-buffering", "no"},
};
