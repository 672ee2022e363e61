/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields that chat, completion and response requests share, into the submit that the engine gets.
 * request_check has passed before: types and ranges of the table need no second look, only rules
 * beyond the table.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/request/request_fields.h"

/* The default length of a completion: OpenAI's. */
enum { COMPLETION_TOKENS = 16 };

static int get_model(const json_t *body, struct request_common *c, struct request_error *e)
{
	const json_t *v = request_get(body, "model");
	if (v == NULL)
		return request_missing(e, "model");
	if (!json_is_string(v))
		return request_wrong_type(e, "model", "a string", v);
	size_t n = json_string_length(v);
	if (n == 0 || n > PROTO_MAX_NAME || strlen(json_string_value(v)) != n)
		return request_bad(e, "invalid_value", "model", "Invalid value for 'model': a name has 1 to %d bytes.",
				   PROTO_MAX_NAME);
	c->model = json_string_value(v);
	return 0;
}

static int get_stream(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	const json_t *options = values->at[VALUE_STREAM_OPTIONS];
	c->stream = json_is_true(values->at[VALUE_STREAM]);
	if (options == NULL)
		return 0;
	if (!c->stream)
		return request_bad(e, "invalid_value", "stream_options",
				   "'stream_options' is only allowed when 'stream' is true.");
	c->include_usage = json_is_true(json_object_get(options, "include_usage"));
	c->obfuscate = json_is_true(json_object_get(options, "include_obfuscation"));
	c->no_obfuscation = json_is_false(json_object_get(options, "include_obfuscation"));
	return 0;
}

static float get_float(const struct request_values *values, enum request_value which, float otherwise)
{
	const json_t *v = values->at[which];
	return v != NULL ? (float)json_number_value(v) : otherwise;
}

/* request_check knows that it fits. */
static int64_t get_int(const struct request_values *values, enum request_value which, int64_t otherwise)
{
	const json_t *v = values->at[which];
	return v != NULL ? json_integer_value(v) : otherwise;
}

/* A tiny number may be 0 as a float, which is outside an open range. */
static float get_above_zero(const struct request_values *values, enum request_value which)
{
	float f = get_float(values, which, 1);
	return f > 0 ? f : 1e-30f;
}

static void get_sampling(const struct request_values *values, struct request_common *c)
{
	struct proto_submit *s = &c->submit;
	s->temperature = get_float(values, VALUE_TEMPERATURE, 1);
	s->top_p = get_above_zero(values, VALUE_TOP_P);
	s->min_p = get_float(values, VALUE_MIN_P, 0);
	s->typical_p = get_above_zero(values, VALUE_TYPICAL_P);
	s->repetition_penalty = get_above_zero(values, VALUE_REPETITION_PENALTY);
	s->presence_penalty = get_float(values, VALUE_PRESENCE_PENALTY, 0);
	s->frequency_penalty = get_float(values, VALUE_FREQUENCY_PENALTY, 0);
	int64_t top_k = get_int(values, VALUE_TOP_K, 0);
	s->top_k = top_k > 0 ? (uint32_t)top_k : 0; /* -1: all, as vLLM has it */
	c->has_seed = values->at[VALUE_SEED] != NULL;
	s->seed = (uint64_t)get_int(values, VALUE_SEED, 0);
	if (json_is_true(values->at[VALUE_IGNORE_EOS]))
		s->flags |= PROTO_SUBMIT_IGNORE_EOS;
}

static int get_max_tokens(const struct request_values *values, enum request_endpoint endpoint, struct request_common *c,
			  struct request_error *e)
{
	const char *name = "max_tokens";
	enum request_value which = VALUE_MAX_TOKENS;
	if (endpoint == REQUEST_RESPONSE) {
		name = "max_output_tokens";
		which = VALUE_MAX_OUTPUT_TOKENS;
	}
	/* The newer name wins. */
	if (endpoint == REQUEST_CHAT && values->at[VALUE_MAX_COMPLETION_TOKENS] != NULL) {
		name = "max_completion_tokens";
		which = VALUE_MAX_COMPLETION_TOKENS;
	}
	int64_t n = get_int(values, which, endpoint == REQUEST_COMPLETION ? COMPLETION_TOKENS : 0);
	c->has_max_tokens = n > 0;
	c->max_tokens = (uint32_t)n;
	c->submit.min_tokens = (uint32_t)get_int(values, VALUE_MIN_TOKENS, 0);
	if (c->has_max_tokens && c->submit.min_tokens > c->max_tokens)
		return request_bad(e, "invalid_value", "min_tokens",
				   "Invalid value for 'min_tokens': %u is more than '%s' (%u).", c->submit.min_tokens,
				   name, c->max_tokens);
	return 0;
}

/* Choices of a streamed answer are sent as they are generated, so all of them are sent. */
static int get_choices(const struct request_values *values, enum request_endpoint endpoint, struct request_common *c,
		       struct request_error *e)
{
	if (endpoint == REQUEST_RESPONSE)
		return 0;
	int64_t n = get_int(values, VALUE_N, 1), best_of = get_int(values, VALUE_BEST_OF, n);
	if (best_of < n)
		return request_bad(e, "invalid_value", "best_of",
				   "Invalid value for 'best_of': %d is less than 'n' (%d).", (int)best_of, (int)n);
	if (best_of > n && c->stream)
		return request_bad(e, "invalid_value", "best_of",
				   "Invalid value for 'best_of': when 'stream' is true it can't be more than 'n'.");
	c->submit.n = (uint8_t)n;
	c->submit.best_of = (uint8_t)best_of;
	return 0;
}

static int add_stop(struct proto_submit *s, const json_t *v, const char *param, struct request_error *e)
{
	if (!json_is_string(v))
		return request_wrong_type(e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n == 0 || n > PROTO_MAX_STOP_BYTES)
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': a stop string has 1 to %d bytes, not %zu.", param,
				   PROTO_MAX_STOP_BYTES, n);
	s->stops[s->n_stops++] = (struct proto_str){.at = json_string_value(v), .n = n};
	return 0;
}

static int check_count(const json_t *v, const char *param, size_t most, struct request_error *e)
{
	if (json_array_size(v) <= most)
		return 0;
	return request_bad(e, "array_above_max_length", param, "Invalid '%s': it has at most %zu elements, not %zu.",
			   param, most, json_array_size(v));
}

static int get_stops(const struct request_values *values, struct proto_submit *s, struct request_error *e)
{
	const json_t *v = values->at[VALUE_STOP];
	char param[32];
	if (json_is_string(v))
		return add_stop(s, v, "stop", e);
	int rc = check_count(v, "stop", PROTO_MAX_STOPS, e);
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		snprintf(param, sizeof param, "stop[%zu]", i);
		rc = add_stop(s, json_array_get(v, i), param, e);
	}
	return rc;
}

static int get_stop_ids(const struct request_values *values, struct proto_submit *s, struct request_error *e)
{
	const json_t *v = values->at[VALUE_STOP_TOKEN_IDS];
	char param[64];
	int rc = check_count(v, "stop_token_ids", PROTO_MAX_STOP_IDS, e);
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		const json_t *id = json_array_get(v, i);
		snprintf(param, sizeof param, "stop_token_ids[%zu]", i);
		if (!json_is_integer(id))
			return request_wrong_type(e, param, "an integer", id);
		if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
			return request_out_of_range(e, param, 0, false, INT32_MAX, (double)json_integer_value(id));
		s->stop_ids[s->n_stop_ids++] = (uint32_t)json_integer_value(id);
	}
	return rc;
}

/* A token's id as a key has it: digits and nothing else, without zeros before them, so that no token
 * has two biases. */
static bool token_of_key(const char *key, uint32_t *out)
{
	uint64_t id = 0;
	size_t n = strlen(key);
	if (n == 0 || n > 10 || (key[0] == '0' && n > 1) || strspn(key, "0123456789") != n)
		return false;
	for (size_t i = 0; i < n; i++)
		id = id * 10 + (uint64_t)(key[i] - '0');
	*out = (uint32_t)id;
	return id <= INT32_MAX;
}

static int get_biases(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	json_t *o = values->at[VALUE_LOGIT_BIAS];
	size_t n = json_object_size(o);
	const char *key;
	json_t *v;
	if (n == 0)
		return 0;
	if (n > PROTO_MAX_LOGIT_BIAS)
		return request_bad(e, "object_above_max_properties", "logit_bias",
				   "Invalid 'logit_bias': at most %d tokens, not %zu.", PROTO_MAX_LOGIT_BIAS, n);
	c->bias = sl_zalloc_n(n, sizeof *c->bias);
	if (c->bias == NULL)
		return SL_ENOMEM;
	json_object_foreach(o, key, v)
	{
		char param[64];
		struct proto_id_f32 *b = &c->bias[c->submit.n_logit_bias];
		snprintf(param, sizeof param, "logit_bias.%s", key);
		if (!token_of_key(key, &b->id))
			return request_bad(e, "invalid_value", "logit_bias",
					   "Invalid key in 'logit_bias': '%.40s' is no token id.", key);
		if (!json_is_number(v))
			return request_wrong_type(e, param, "a number", v);
		if (!(json_number_value(v) >= -100 && json_number_value(v) <= 100))
			return request_out_of_range(e, param, -100, false, 100, json_number_value(v));
		b->v = (float)json_number_value(v);
		c->submit.n_logit_bias++;
	}
	c->submit.logit_bias = c->bias;
	return 0;
}

int request_common_read(const json_t *body, enum request_endpoint endpoint, struct request_values *values,
			struct request_common *c, struct request_error *e)
{
	const char *user;
	*c = (struct request_common){.submit = {PROTO_SUBMIT_OFF, .temperature = 1, .top_p = 1}};
	int rc;
	if ((rc = get_model(body, c, e)) != 0 || (rc = request_check(body, endpoint, values, e)) != 0)
		return rc;
	get_sampling(values, c);
	if ((rc = get_stream(values, c, e)) != 0 || (rc = get_max_tokens(values, endpoint, c, e)) != 0 ||
	    (rc = get_choices(values, endpoint, c, e)) != 0 || (rc = get_stops(values, &c->submit, e)) != 0 ||
	    (rc = get_stop_ids(values, &c->submit, e)) != 0 ||
	    (rc = request_check_metadata(values->at[VALUE_METADATA], e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_USER], "user", &user, e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_SAFETY_IDENTIFIER], "safety_identifier", &c->user, e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_PROMPT_CACHE_KEY], "prompt_cache_key", &c->cache_key, e)) != 0)
		return rc;
	if (c->user == NULL)
		c->user = user;
	return get_biases(values, c, e);
}

void request_common_dispose(struct request_common *c)
{
	sl_free(c->bias);
	c->bias = NULL;
	c->submit.logit_bias = NULL;
	c->submit.n_logit_bias = 0;
}
