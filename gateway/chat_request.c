/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of checks: bytes (UTF-8, depth) before parsing, types and ranges field by field, then the
 * messages, which are written out again in the one form the engine takes. null always counts as
 * absent.
 */
#include "gateway/chat_request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_depth.h"
#include "base/json_out.h"
#include "base/utf8.h"

enum { MAX_MODEL_NAME = PROTO_MAX_NAME, MAX_QUOTED = 40 };

static int bad(struct chat_error *e, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* What is quoted from the request may be long and is cut at a character; the JSON library quotes
 * what it could not read, which may be a part of one. */
static void make_valid(char *message)
{
	uint8_t *s = (uint8_t *)message;
	size_t n = utf8_whole_prefix(s, strlen(message));
	message[n] = '\0';
	for (size_t i = 0; i < n;) {
		uint32_t cp;
		int len = utf8_decode(s + i, n - i, &cp);
		if (len <= 0)
			s[i] = '?';
		i += len > 0 ? (size_t)len : 1;
	}
}

static int bad(struct chat_error *e, const char *code, const char *param, const char *fmt, ...)
{
	va_list ap;
	e->code = code;
	snprintf(e->param, sizeof e->param, "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	make_valid(e->message);
	return SL_EINVAL;
}

static const char *type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	case JSON_NULL: return "null";
	}
	return "something else";
}

static int wrong_type(struct chat_error *e, const char *param, const char *want, const json_t *got)
{
	return bad(e, "invalid_type", param, "Invalid type for '%s': expected %s, but got %s instead.", param,
		   want, type_name(got));
}

/* How many bytes of a string are quoted in a message: whole characters. */
static int quoted(const json_t *v)
{
	size_t n = strlen(json_string_value(v));
	return (int)utf8_whole_prefix((const uint8_t *)json_string_value(v), n < MAX_QUOTED ? n : MAX_QUOTED);
}

/* A field that is there and not null; else NULL. */
static json_t *field(const json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);
	return v == NULL || json_is_null(v) ? NULL : v;
}

/* ---- the bytes ---- */

/* How many bytes at the beginning are whole, correct characters. */
static size_t utf8_valid_bytes(const char *bytes, size_t n)
{
	size_t i = 0;
	uint32_t cp;
	if (utf8_valid(bytes, n))
		return n;
	for (int len; i < n && (len = utf8_decode((const uint8_t *)bytes + i, n - i, &cp)) > 0;)
		i += (size_t)len;
	return i;
}

static int parse_json(const char *bytes, size_t n, size_t max_depth, json_t **out, struct chat_error *e)
{
	if (n == 0)
		return bad(e, NULL, "", "The request has no body. A JSON object is needed.");
	size_t valid = utf8_valid_bytes(bytes, n);
	if (valid < n)
		return bad(e, NULL, "", "The body is not valid UTF-8 (byte %zu).", valid + 1);
	if (json_deeper_than(bytes, n, max_depth))
		return bad(e, NULL, "", "The body is nested deeper than %zu levels.", max_depth);
	json_error_t je;
	json_t *v = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	/* What is wrong with a text is always named; memory running out mostly is not. */
	if (v == NULL && je.text[0] == '\0')
		return SL_ENOMEM;
	if (v == NULL)
		return bad(e, NULL, "", "The body is not valid JSON: %s (line %d, column %d).", je.text, je.line,
			   je.column);
	if (!json_is_object(v)) {
		json_decref(v);
		return bad(e, NULL, "", "The body is not a JSON object.");
	}
	*out = v;
	return 0;
}

/* ---- scalars ---- */

static int get_number(const json_t *o, const char *key, double lo, double hi, bool lo_open, float *out,
		      struct chat_error *e)
{
	json_t *v = field(o, key);
	if (v == NULL)
		return 0;
	if (!json_is_number(v))
		return wrong_type(e, key, "a number", v);
	double d = json_number_value(v);
	if (!(d >= lo && d <= hi) || (lo_open && d == lo))
		return bad(e, "invalid_value", key, "Invalid value for '%s': %g is not %s %g and at most %g.", key, d,
			   lo_open ? "above" : "at least", lo, hi);
	*out = (float)d;
	return 0;
}

/* *present tells whether the field was there. */
static int get_integer(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out, bool *present,
		       struct chat_error *e)
{
	json_t *v = field(o, key);
	*present = v != NULL;
	if (v == NULL)
		return 0;
	if (!json_is_integer(v))
		return wrong_type(e, key, "an integer", v);
	json_int_t i = json_integer_value(v);
	if (i < lo || i > hi)
		return bad(e, "invalid_value", key,
			   "Invalid value for '%s': %lld is not at least %lld and at most %lld.", key,
			   (long long)i, (long long)lo, (long long)hi);
	*out = i;
	return 0;
}

static int get_bool(const json_t *o, const char *key, const char *param, bool *out, struct chat_error *e)
{
	json_t *v = field(o, key);
	if (v == NULL)
		return 0;
	if (!json_is_boolean(v))
		return wrong_type(e, param, "a boolean", v);
	*out = json_is_true(v);
	return 0;
}

/* ---- what is refused by name ---- */

static int refuse(struct chat_error *e, const char *key)
{
	return bad(e, "unsupported_parameter", key, "Unsupported parameter: '%s' is not supported by this version.",
		   key);
}

static bool is_empty(const json_t *v)
{
	return (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

static int refuse_unbuilt(const json_t *o, struct chat_error *e)
{
	static const char *const never[] = {"functions", "function_call", "audio", "prediction", "reasoning_effort",
					    "web_search_options", "verbosity"};
	for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
		json_t *v = field(o, never[i]);
		if (v != NULL && !is_empty(v))
			return refuse(e, never[i]);
	}
	json_t *v = field(o, "tools");
	if (v != NULL && !is_empty(v))
		return refuse(e, "tools");
	v = field(o, "tool_choice");
	if (v != NULL && !(json_is_string(v) && strcmp(json_string_value(v), "none") == 0))
		return refuse(e, "tool_choice");
	v = field(o, "response_format");
	if (v != NULL) {
		const json_t *type = json_is_object(v) ? json_object_get(v, "type") : NULL;
		if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
			return refuse(e, "response_format");
	}
	v = field(o, "logprobs");
	if (v != NULL && !json_is_false(v))
		return refuse(e, "logprobs");
	v = field(o, "top_logprobs");
	if (v != NULL && !(json_is_integer(v) && json_integer_value(v) == 0))
		return refuse(e, "top_logprobs");
	v = field(o, "logit_bias");
	if (v != NULL && !is_empty(v))
		return refuse(e, "logit_bias");
	v = field(o, "modalities");
	if (v != NULL && !(json_is_array(v) && json_array_size(v) == 1 &&
			   json_is_string(json_array_get(v, 0)) &&
			   strcmp(json_string_value(json_array_get(v, 0)), "text") == 0))
		return refuse(e, "modalities");
	int64_t n = 1;
	bool present;
	int rc = get_integer(o, "n", 1, 128, &n, &present, e);
	if (rc != 0)
		return rc;
	return n == 1 ? 0 : bad(e, "unsupported_value", "n", "Unsupported value: 'n' must be 1 in this version.");
}

/* ---- stop ---- */

static int add_stop(struct chat_request *r, const json_t *v, const char *param, struct chat_error *e)
{
	if (!json_is_string(v))
		return wrong_type(e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n == 0 || n > PROTO_MAX_STOP_BYTES)
		return bad(e, "invalid_value", param, "Invalid value for '%s': a stop string has 1 to %d bytes, not %zu.",
			   param, PROTO_MAX_STOP_BYTES, n);
	r->submit.stops[r->submit.n_stops++] = (struct proto_str){.at = json_string_value(v), .n = n};
	return 0;
}

static int get_stops(struct chat_request *r, struct chat_error *e)
{
	json_t *v = field(r->body, "stop");
	if (v == NULL)
		return 0;
	if (json_is_string(v))
		return add_stop(r, v, "stop", e);
	if (!json_is_array(v))
		return wrong_type(e, "stop", "a string or an array of strings", v);
	if (json_array_size(v) > PROTO_MAX_STOPS)
		return bad(e, "array_above_max_length", "stop", "Invalid 'stop': at most %d stop strings, not %zu.",
			   PROTO_MAX_STOPS, json_array_size(v));
	for (size_t i = 0; i < json_array_size(v); i++) {
		char param[32];
		snprintf(param, sizeof param, "stop[%zu]", i);
		int rc = add_stop(r, json_array_get(v, i), param, e);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* ---- messages ---- */

static int get_role(const json_t *m, const char *param, const char **out, struct chat_error *e)
{
	static const char *const roles[][2] = {
	    {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}};
	const json_t *v = json_object_get(m, "role");
	if (v == NULL)
		return bad(e, "missing_required_parameter", param, "Missing required parameter: '%s'.", param);
	if (!json_is_string(v))
		return wrong_type(e, param, "a string", v);
	const char *role = json_string_value(v);
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
		if (strcmp(role, roles[i][0]) == 0) {
			*out = roles[i][1];
			return 0;
		}
	if (strcmp(role, "tool") == 0 || strcmp(role, "function") == 0)
		return bad(e, "unsupported_value", param, "Unsupported value: '%s' is '%s', and tools are not supported by this version.",
			   param, role);
	return bad(e, "invalid_value", param,
		   "Invalid value for '%s': '%.*s'. Supported values are 'system', 'developer', 'user' and 'assistant'.",
		   param, quoted(v), role);
}

static int check_text(const json_t *v, const char *param, struct chat_error *e)
{
	if (memchr(json_string_value(v), 0, json_string_length(v)) != NULL)
		return bad(e, "invalid_value", param, "Invalid value for '%s': it holds the character U+0000.", param);
	return 0;
}

/* Appends the parts' texts as one string value. */
static int put_parts(struct sl_buf *out, const json_t *parts, const char *param, struct chat_error *e)
{
	struct sl_buf text;
	char at[128];
	int rc = 0;
	if (json_array_size(parts) == 0)
		return bad(e, "invalid_value", param, "Invalid value for '%s': it has no parts.", param);
	buf_init(&text, SIZE_MAX);
	for (size_t i = 0; i < json_array_size(parts) && rc == 0; i++) {
		const json_t *part = json_array_get(parts, i);
		snprintf(at, sizeof at, "%.80s[%zu]", param, i);
		if (!json_is_object(part)) {
			rc = wrong_type(e, at, "an object", part);
			break;
		}
		const json_t *type = json_object_get(part, "type"), *v = json_object_get(part, "text");
		snprintf(at, sizeof at, "%.80s[%zu].type", param, i);
		if (!json_is_string(type)) {
			rc = bad(e, "invalid_type", at, "'%s' must be a string.", at);
		} else if (strcmp(json_string_value(type), "text") != 0) {
			rc = bad(e, "unsupported_value", at, "Unsupported value: '%s' is '%.*s', and only 'text' is supported by this version.",
				 at, quoted(type), json_string_value(type));
		} else if (!json_is_string(v)) {
			snprintf(at, sizeof at, "%.80s[%zu].text", param, i);
			rc = bad(e, "invalid_type", at, "'%s' must be a string.", at);
		} else {
			snprintf(at, sizeof at, "%.80s[%zu].text", param, i);
			rc = check_text(v, at, e);
			if (rc == 0)
				rc = buf_append(&text, json_string_value(v), json_string_length(v));
		}
	}
	if (rc == 0)
		rc = json_out_string(out, text.len ? (const char *)buf_data(&text) : "", text.len);
	buf_dispose(&text);
	return rc;
}

static int put_message(struct chat_request *r, const json_t *m, size_t i, struct chat_error *e)
{
	char param[64];
	const char *role = "";
	snprintf(param, sizeof param, "messages[%zu]", i);
	if (!json_is_object(m))
		return wrong_type(e, param, "an object", m);
	static const char *const unbuilt[] = {"tool_calls", "function_call", "tool_call_id", "audio"};
	for (size_t k = 0; k < sizeof unbuilt / sizeof unbuilt[0]; k++) {
		const json_t *v = field(m, unbuilt[k]);
		if (v != NULL && !is_empty(v)) {
			snprintf(param, sizeof param, "messages[%zu].%s", i, unbuilt[k]);
			return refuse(e, param);
		}
	}
	snprintf(param, sizeof param, "messages[%zu].role", i);
	int rc = get_role(m, param, &role, e);
	if (rc != 0)
		return rc;
	rc = buf_printf(&r->prompt, "%s{\"role\":\"%s\",\"content\":", i ? "," : "", role);
	snprintf(param, sizeof param, "messages[%zu].content", i);
	const json_t *v = field(m, "content");
	if (rc != 0)
		return rc;
	if (v == NULL)
		return bad(e, "missing_required_parameter", param, "Missing required parameter: '%s'.", param);
	if (json_is_string(v)) {
		rc = check_text(v, param, e);
		if (rc == 0)
			rc = json_out_string(&r->prompt, json_string_value(v), json_string_length(v));
	} else if (json_is_array(v)) {
		rc = put_parts(&r->prompt, v, param, e);
	} else {
		return wrong_type(e, param, "a string or an array of parts", v);
	}
	return rc != 0 ? rc : buf_append_str(&r->prompt, "}");
}

static int put_messages(struct chat_request *r, const struct chat_limits *limits, struct chat_error *e)
{
	const json_t *v = field(r->body, "messages");
	if (v == NULL)
		return bad(e, "missing_required_parameter", "messages", "Missing required parameter: 'messages'.");
	if (!json_is_array(v))
		return wrong_type(e, "messages", "an array of objects", v);
	size_t n = json_array_size(v);
	if (n == 0)
		return bad(e, "empty_array", "messages", "Invalid 'messages': at least one message is needed.");
	if (n > limits->messages)
		return bad(e, "array_above_max_length", "messages", "Invalid 'messages': at most %zu messages, not %zu.",
			   limits->messages, n);
	int rc = buf_append_str(&r->prompt, "{\"messages\":[");
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = put_message(r, json_array_get(v, i), i, e);
	return rc != 0 ? rc : buf_append_str(&r->prompt, "]}");
}

/* ---- the whole ---- */

static int get_model(struct chat_request *r, struct chat_error *e)
{
	const json_t *v = field(r->body, "model");
	if (v == NULL)
		return bad(e, "missing_required_parameter", "model", "Missing required parameter: 'model'.");
	if (!json_is_string(v))
		return wrong_type(e, "model", "a string", v);
	if (json_string_length(v) == 0 || json_string_length(v) > MAX_MODEL_NAME ||
	    strlen(json_string_value(v)) != json_string_length(v))
		return bad(e, "invalid_value", "model", "Invalid value for 'model': a name has 1 to %d bytes.",
			   MAX_MODEL_NAME);
	r->model = json_string_value(v);
	return 0;
}

static int get_stream(struct chat_request *r, struct chat_error *e)
{
	int rc = get_bool(r->body, "stream", "stream", &r->stream, e);
	if (rc != 0)
		return rc;
	const json_t *v = field(r->body, "stream_options");
	if (v == NULL)
		return 0;
	if (!json_is_object(v))
		return wrong_type(e, "stream_options", "an object", v);
	if (!r->stream)
		return bad(e, "invalid_value", "stream_options", "'stream_options' is only allowed when 'stream' is true.");
	return get_bool(v, "include_usage", "stream_options.include_usage", &r->include_usage, e);
}

static int get_limits(struct chat_request *r, struct chat_error *e)
{
	int64_t n = 0;
	bool old, present;
	int rc = get_integer(r->body, "max_tokens", 1, INT32_MAX, &n, &old, e);
	if (rc == 0)
		rc = get_integer(r->body, "max_completion_tokens", 1, INT32_MAX, &n, &present, e);
	if (rc == 0 && (old || present)) {
		r->has_max_tokens = true;
		r->max_tokens = (uint32_t)n;
	}
	int64_t seed = 0;
	if (rc == 0)
		rc = get_integer(r->body, "seed", INT64_MIN, INT64_MAX, &seed, &r->has_seed, e);
	r->submit.seed = (uint64_t)seed;
	int64_t top_k = 0;
	if (rc == 0)
		rc = get_integer(r->body, "top_k", 0, INT32_MAX, &top_k, &present, e);
	r->submit.top_k = (uint32_t)top_k;
	return rc;
}

static int get_all(struct chat_request *r, const struct chat_limits *limits, struct chat_error *e)
{
	struct proto_submit *s = &r->submit;
	const json_t *o = r->body;
	int rc;
	if ((rc = get_model(r, e)) != 0 || (rc = refuse_unbuilt(o, e)) != 0 || (rc = get_stream(r, e)) != 0 ||
	    (rc = get_limits(r, e)) != 0 || (rc = get_stops(r, e)) != 0 ||
	    (rc = get_number(o, "temperature", 0, 2, false, &s->temperature, e)) != 0 ||
	    (rc = get_number(o, "top_p", 0, 1, true, &s->top_p, e)) != 0 ||
	    (rc = get_number(o, "min_p", 0, 1, false, &s->min_p, e)) != 0 ||
	    (rc = get_number(o, "presence_penalty", -2, 2, false, &s->presence_penalty, e)) != 0 ||
	    (rc = get_number(o, "frequency_penalty", -2, 2, false, &s->frequency_penalty, e)) != 0)
		return rc;
	return put_messages(r, limits, e);
}

int chat_request_parse(const void *bytes, size_t n, const struct chat_limits *limits,
		       struct chat_request *out, struct chat_error *error)
{
	*out = (struct chat_request){.submit = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_CHAT, .temperature = 1, .top_p = 1}};
	*error = (struct chat_error){0};
	/* Escaping can make text six times as long; the protocol's bound is what counts. */
	buf_init(&out->prompt, PROTO_MAX_PAYLOAD - 8192);
	int rc = parse_json(bytes, n, limits->json_depth, &out->body, error);
	if (rc == 0)
		rc = get_all(out, limits, error);
	if (rc == SL_ELIMIT)
		rc = bad(error, "string_above_max_length", "messages", "The messages are too long.");
	if (rc != 0) {
		chat_request_dispose(out);
		return rc;
	}
	out->submit.prompt = (struct proto_str){.at = (const char *)buf_data(&out->prompt), .n = out->prompt.len};
	return 0;
}

void chat_request_dispose(struct chat_request *r)
{
	json_decref(r->body);
	r->body = NULL;
	buf_dispose(&r->prompt);
}
