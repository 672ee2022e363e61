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
	if (json_is_true(values->at[VALUE_INCLUDE_STOP]))
		s->flags |= PROTO_SUBMIT_INCLUDE_STOP;
	c->sampling = (uint8_t)((values->at[VALUE_TEMPERATURE] != NULL ? REQUEST_TEMPERATURE : 0) |
				(values->at[VALUE_TOP_P] != NULL ? REQUEST_TOP_P : 0) |
				(values->at[VALUE_MIN_P] != NULL ? REQUEST_MIN_P : 0) |
				(values->at[VALUE_REPETITION_PENALTY] != NULL ? REQUEST_REPETITION_PENALTY : 0) |
				(json_is_false(values->at[VALUE_DO_SAMPLE]) ? REQUEST_TEMPERATURE : 0));
	/* Beam search takes the likeliest, and so does who does not sample. */
	bool greedy = json_is_false(values->at[VALUE_DO_SAMPLE]) || c->submit.beam_width > 0;
	if (greedy && values->at[VALUE_TEMPERATURE] == NULL)
		s->temperature = 0;
}

/* -1 and -2, of llama.cpp and Ollama, are no limit. */
static int get_max_tokens(const struct request_values *values, enum request_endpoint endpoint, struct request_common *c,
			  struct request_error *e)
{
	enum request_value which = endpoint == REQUEST_RESPONSE ? VALUE_MAX_OUTPUT_TOKENS : VALUE_MAX_TOKENS;
	/* The newer name wins. */
	if (endpoint == REQUEST_CHAT && values->at[VALUE_MAX_COMPLETION_TOKENS] != NULL)
		which = VALUE_MAX_COMPLETION_TOKENS;
	const char *name = values->name[which] != NULL ? values->name[which] : "max_tokens";
	int64_t n = get_int(values, which, endpoint == REQUEST_COMPLETION ? COMPLETION_TOKENS : -1);
	if (n == 0)
		return request_out_of_range(e, name, 1, false, INT32_MAX, 0);
	c->has_max_tokens = n > 0;
	c->max_tokens = n > 0 ? (uint32_t)n : 0;
	c->submit.min_tokens = (uint32_t)get_int(values, VALUE_MIN_TOKENS, 0);
	if (c->has_max_tokens && c->submit.min_tokens > c->max_tokens)
		return request_bad(e, "invalid_value", values->name[VALUE_MIN_TOKENS],
				   "Invalid value for '%s': %u is more than '%s' (%u).", values->name[VALUE_MIN_TOKENS],
				   c->submit.min_tokens, name, c->max_tokens);
	return 0;
}

/* What a beam search can't do, by the field that asks for it. */
static int check_beams(const struct request_values *values, const struct proto_submit *s, struct request_error *e)
{
	static const enum request_value off[] = {VALUE_TEMPERATURE, VALUE_PRESENCE_PENALTY, VALUE_FREQUENCY_PENALTY,
						 VALUE_REPETITION_PENALTY, VALUE_STOP};
	for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
		const json_t *v = values->at[off[i]];
		double plain = off[i] == VALUE_REPETITION_PENALTY ? 1 : 0;
		bool asks = off[i] == VALUE_STOP ? json_is_string(v) || json_array_size(v) > 0
						 : v != NULL && json_number_value(v) != plain;
		if (asks)
			return request_bad(e, "invalid_value", values->name[off[i]],
					   "Invalid value for '%s': it is not supported with beam search.",
					   values->name[off[i]]);
	}
	if (s->prompt_logprobs > 0)
		return request_bad(e, "invalid_value", "prompt_logprobs",
				   "Invalid value for 'prompt_logprobs': it is not supported with beam search.");
	return 0;
}

/* The width of a beam search, 0: none; n: choices that are sent. */
static int get_beams(const struct request_values *values, int64_t n, int64_t best_of, struct proto_submit *s,
		     struct request_error *e)
{
	const char *name = values->name[VALUE_BEAM_WIDTH];
	bool want = json_is_true(values->at[VALUE_USE_BEAM_SEARCH]);
	int64_t width = get_int(values, VALUE_BEAM_WIDTH, want ? best_of : 1);
	s->length_penalty = get_float(values, VALUE_LENGTH_PENALTY, 1);
	if (width <= 1 && !want)
		return 0;
	if (json_is_false(values->at[VALUE_USE_BEAM_SEARCH]))
		return request_bad(e, "invalid_value", name, "'%s' is only allowed when 'use_beam_search' is true.",
				   name);
	if (width < n)
		return request_bad(e, "invalid_value", name, "Invalid value for '%s': %d is less than 'n' (%d).", name,
				   (int)width, (int)n);
	s->beam_width = (uint8_t)width;
	return 0;
}

/* Choices of a streamed answer are sent as they are generated, so all of them are sent. */
static int get_choices(const struct request_values *values, enum request_endpoint endpoint, struct request_common *c,
		       struct request_error *e)
{
	if (endpoint == REQUEST_RESPONSE)
		return 0;
	int64_t n = get_int(values, VALUE_N, 1), best_of = get_int(values, VALUE_BEST_OF, n);
	int rc = get_beams(values, n, best_of, &c->submit, e);
	if (rc != 0)
		return rc;
	if (best_of < n)
		return request_bad(e, "invalid_value", "best_of",
				   "Invalid value for 'best_of': %d is less than 'n' (%d).", (int)best_of, (int)n);
	if (c->submit.beam_width > 0)
		best_of = n;
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
	const char *name = values->name[VALUE_STOP];
	char param[64];
	if (json_is_string(v))
		return add_stop(s, v, name, e);
	int rc = check_count(v, name, PROTO_MAX_STOPS, e);
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		snprintf(param, sizeof param, "%s[%zu]", name, i);
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

static int add_bias(struct request_common *c, const char *key, const json_t *v, struct request_error *e)
{
	char param[64];
	struct proto_id_f32 *b = &c->bias[c->submit.n_logit_bias];
	snprintf(param, sizeof param, "logit_bias.%s", key);
	if (!token_of_key(key, &b->id))
		return request_bad(e, "invalid_value", "logit_bias",
				   "Invalid key in 'logit_bias': '%.40s' is not a token id.", key);
	if (!json_is_number(v))
		return request_wrong_type(e, param, "a number", v);
	if (!(json_number_value(v) >= -100 && json_number_value(v) <= 100))
		return request_out_of_range(e, param, -100, false, 100, json_number_value(v));
	b->v = (float)json_number_value(v);
	c->submit.n_logit_bias++;
	return 0;
}

static float bias_of(const struct request_common *c, uint16_t n, uint32_t id)
{
	for (uint16_t i = 0; i < n; i++)
		if (c->bias[i].id == id)
			return c->bias[i].v;
	return 0;
}

/* Only tokens with a bias may be chosen; behind the n biases that were asked for, which then go. */
static int add_allowed(struct request_common *c, const json_t *list, uint16_t n, struct request_error *e)
{
	char param[64];
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);
		snprintf(param, sizeof param, "allowed_token_ids[%zu]", i);
		if (!json_is_integer(id))
			return request_wrong_type(e, param, "an integer", id);
		if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
			return request_out_of_range(e, param, 0, false, INT32_MAX, (double)json_integer_value(id));
		uint32_t token = (uint32_t)json_integer_value(id);
		c->bias[n + i] = (struct proto_id_f32){.id = token, .v = bias_of(c, n, token)};
	}
	memmove(c->bias, c->bias + n, json_array_size(list) * sizeof *c->bias);
	c->submit.n_logit_bias = (uint16_t)json_array_size(list);
	c->submit.flags |= PROTO_SUBMIT_ONLY_BIASED;
	return 0;
}

static int get_biases(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	json_t *o = values->at[VALUE_LOGIT_BIAS];
	const json_t *allowed = values->at[VALUE_ALLOWED_TOKEN_IDS];
	size_t n = json_object_size(o), n_allowed = json_array_size(allowed);
	const char *key;
	json_t *v;
	int rc = check_count(allowed, "allowed_token_ids", PROTO_MAX_LOGIT_BIAS, e);
	if (rc != 0 || n + n_allowed == 0)
		return rc;
	if (n > PROTO_MAX_LOGIT_BIAS)
		return request_bad(e, "object_above_max_properties", "logit_bias",
				   "Invalid 'logit_bias': at most %d tokens, not %zu.", PROTO_MAX_LOGIT_BIAS, n);
	c->bias = sl_zalloc_n(n + n_allowed, sizeof *c->bias);
	if (c->bias == NULL)
		return SL_ENOMEM;
	json_object_foreach(o, key, v) if ((rc = add_bias(c, key, v, e)) != 0) return rc;
	if (n_allowed > 0 && (rc = add_allowed(c, allowed, (uint16_t)n, e)) != 0)
		return rc;
	c->submit.logit_bias = c->bias;
	return 0;
}

static int get_bad_words(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	const json_t *v = values->at[VALUE_BAD_WORDS];
	char param[32];
	int rc = check_count(v, "bad_words", PROTO_MAX_BAD_WORDS, e);
	if (rc != 0 || json_array_size(v) == 0)
		return rc;
	c->bad_words = sl_zalloc_n(json_array_size(v), sizeof *c->bad_words);
	if (c->bad_words == NULL)
		return SL_ENOMEM;
	c->submit.bad_words = c->bad_words;
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		const json_t *word = json_array_get(v, i);
		size_t n = json_string_length(word);
		snprintf(param, sizeof param, "bad_words[%zu]", i);
		if (!json_is_string(word))
			return request_wrong_type(e, param, "a string", word);
		if (n == 0 || n > PROTO_MAX_STOP_BYTES)
			return request_bad(e, "invalid_value", param,
					   "Invalid value for '%s': a word has 1 to %d bytes, not %zu.", param,
					   PROTO_MAX_STOP_BYTES, n);
		rc = request_check_text(word, param, e);
		c->bad_words[c->submit.n_bad_words++] = (struct proto_str){.at = json_string_value(word), .n = n};
	}
	return rc;
}

/* FNV-1a; what keeps prefixes apart is the tenant, and within one this is enough. */
static uint64_t digest_of(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (; *s != '\0'; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3u;
	return h != 0 ? h : 1;
}

/* Whose pages it may share, and after whom it comes: a request may go behind others of its key, not before. */
static int get_place(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	const char *salt, *tier = json_string_value(values->at[VALUE_SERVICE_TIER]);
	int64_t behind = get_int(values, VALUE_PRIORITY, tier != NULL && strcmp(tier, "flex") == 0 ? 1 : 0);
	c->submit.priority = (uint8_t)(behind < 0 ? 0 : behind < PROTO_PRIORITIES ? behind : PROTO_PRIORITIES - 1);
	int rc = request_read_label(values->at[VALUE_CACHE_SALT], values->name[VALUE_CACHE_SALT], &salt, e);
	if (rc == 0 && salt == NULL && values->at[VALUE_CACHE_SALT] != NULL)
		return request_bad(e, "invalid_value", values->name[VALUE_CACHE_SALT],
				   "Invalid value for '%s': it is empty.", values->name[VALUE_CACHE_SALT]);
	c->submit.cache_salt = rc == 0 && salt != NULL ? digest_of(salt) : 0;
	return rc;
}

/* vLLM has them of whole answers only. */
static int get_token_ids(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	const json_t *prompt = values->at[VALUE_PROMPT_LOGPROBS];
	c->token_ids = json_is_true(values->at[VALUE_RETURN_TOKEN_IDS]);
	c->tokens_as_ids = json_is_true(values->at[VALUE_TOKENS_AS_IDS]);
	if (c->token_ids || c->tokens_as_ids)
		c->submit.flags |= PROTO_SUBMIT_WANT_IDS;
	if (prompt != NULL && c->stream)
		return request_bad(e, "invalid_value", "prompt_logprobs",
				   "'prompt_logprobs' is only allowed when 'stream' is not true.");
	c->submit.prompt_logprobs = prompt != NULL ? (uint8_t)(1 + json_integer_value(prompt)) : 0;
	return 0;
}

static int get_labels(const struct request_values *values, struct request_common *c, struct request_error *e)
{
	const char *user;
	int rc;
	if ((rc = request_check_metadata(values->at[VALUE_METADATA], e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_USER], values->name[VALUE_USER], &user, e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_SAFETY_IDENTIFIER], "safety_identifier", &c->user, e)) != 0 ||
	    (rc = request_read_label(values->at[VALUE_PROMPT_CACHE_KEY], "prompt_cache_key", &c->cache_key, e)) != 0)
		return rc;
	if (c->user == NULL)
		c->user = user;
	return 0;
}

/* Sampling: what becomes of it is in the submit. */
static int get_submit(const struct request_values *values, enum request_endpoint endpoint, struct request_common *c,
		      struct request_error *e)
{
	int rc;
	if ((rc = get_stream(values, c, e)) != 0 || (rc = get_max_tokens(values, endpoint, c, e)) != 0 ||
	    (rc = get_token_ids(values, c, e)) != 0 || (rc = get_choices(values, endpoint, c, e)) != 0 ||
	    (c->submit.beam_width > 0 && (rc = check_beams(values, &c->submit, e)) != 0))
		return rc;
	get_sampling(values, c);
	if ((rc = get_stops(values, &c->submit, e)) != 0 || (rc = get_stop_ids(values, &c->submit, e)) != 0 ||
	    (rc = get_bad_words(values, c, e)) != 0 || (rc = get_place(values, c, e)) != 0)
		return rc;
	return get_biases(values, c, e);
}

int request_common_read_shape(const json_t *body, struct proto_str text, const struct request_shape *shape,
			      struct request_values *values, struct request_common *c, struct request_error *e)
{
	*c = (struct request_common){.submit = {PROTO_SUBMIT_OFF, .temperature = 1, .top_p = 1}};
	int rc;
	if ((rc = request_get_model(body, &c->model, e)) != 0 ||
	    (rc = request_check_shape(body, shape, values, &c->ignored, e)) != 0 ||
	    (rc = get_submit(values, shape->as, c, e)) != 0 || (rc = get_labels(values, c, e)) != 0 ||
	    (rc = reasoning_request_read(values, &c->reasoning, e)) != 0 ||
	    (rc = tools_request_read(values, shape->as, &c->tools, &c->ignored, e)) != 0 ||
	    (rc = constraint_request_read(values, text, &c->constraint, e)) != 0) {
		request_common_dispose(c);
		return rc;
	}
	c->template_kwargs = values->at[VALUE_CHAT_TEMPLATE_KWARGS];
	return 0;
}

int request_common_read(const json_t *body, struct proto_str text, enum request_endpoint endpoint,
			struct request_values *values, struct request_common *c, struct request_error *e)
{
	const struct request_shape shape = {request_fields, n_request_fields, (uint8_t)endpoint, endpoint, false};
	return request_common_read_shape(body, text, &shape, values, c, e);
}

void request_common_dispose(struct request_common *c)
{
	sl_free(c->bias);
	c->bias = NULL;
	c->submit.logit_bias = NULL;
	c->submit.n_logit_bias = 0;
	sl_free(c->bad_words);
	c->bad_words = NULL;
	c->submit.bad_words = NULL;
	c->submit.n_bad_words = 0;
	tools_request_dispose(&c->tools);
	constraint_request_dispose(&c->constraint);
}

int request_put_template(struct sl_buf *out, const struct request_common *c)
{
	int rc = tools_request_put(out, &c->tools);
	return rc == 0 ? reasoning_request_put(out, &c->reasoning, c->template_kwargs) : rc;
}
