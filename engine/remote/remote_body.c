/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields at their default are left out, so that a plain request has OpenAI's standard fields only.
 */
#include "engine/remote/remote_body.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json/json_out.h"

enum { TEMPLATE_TOKENS = 2048 }; /* that a template may add to a prompt */

int remote_refuse(struct remote_refusal *why, uint8_t error, const char *fmt, ...)
{
	va_list args;
	why->error = error;
	va_start(args, fmt);
	vsnprintf(why->message, sizeof why->message, fmt, args);
	va_end(args);
	return SL_EINVAL;
}

/* ---- what is not OpenAI's ---- */

/* A field beyond OpenAI's API, and who has it. */
struct extension {
	enum proto_refused field;
	unsigned dialects; /* bits of enum eng_remote_dialect */
	bool wanted;
};

enum { VLLM = 1 << ENG_REMOTE_VLLM, LLAMA = 1 << ENG_REMOTE_LLAMA };

static int refuse_field(struct remote_refusal *why, enum proto_refused field)
{
	uint8_t error = (uint8_t)(PROTO_ERR_FIELD + (int)field);
	return remote_refuse(why, error,
			     "'%s' can't be used with this model: the server that runs it does not have it.",
			     proto_error_field(error));
}

static bool differs(float v, float from) { return v < from || v > from; }

static int check_extensions(const struct proto_submit *s, enum eng_remote_dialect dialect, struct remote_refusal *why)
{
	const struct extension all[] = {
	    {PROTO_FIELD_TOP_K, VLLM | LLAMA, s->top_k > 0},
	    {PROTO_FIELD_MIN_P, VLLM | LLAMA, s->min_p > 0},
	    {PROTO_FIELD_TYPICAL_P, LLAMA, s->typical_p < 1},
	    {PROTO_FIELD_REPETITION_PENALTY, VLLM, differs(s->repetition_penalty, 1)},
	    {PROTO_FIELD_LENGTH_PENALTY, 0, s->beam_width == 0 && differs(s->length_penalty, 1)},
	    {PROTO_FIELD_MIN_TOKENS, VLLM, s->min_tokens > 0},
	    {PROTO_FIELD_IGNORE_EOS, VLLM | LLAMA, (s->flags & PROTO_SUBMIT_IGNORE_EOS) != 0},
	    {PROTO_FIELD_INCLUDE_STOP, VLLM, (s->flags & PROTO_SUBMIT_INCLUDE_STOP) != 0},
	    {PROTO_FIELD_PROMPT_LOGPROBS, 0, s->prompt_logprobs > 0},
	    {PROTO_FIELD_BEST_OF, 0, s->best_of != s->n},
	    {PROTO_FIELD_BEAM_SEARCH, 0, s->beam_width > 0},
	    {PROTO_FIELD_THINKING, VLLM, s->thinking_tokens > 0},
	    {PROTO_FIELD_ALLOWED_IDS, VLLM, (s->flags & PROTO_SUBMIT_ONLY_BIASED) != 0},
	    {PROTO_FIELD_CACHE_SALT, VLLM, s->cache_salt != 0},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].wanted && (all[i].dialects >> dialect & 1) == 0)
			return refuse_field(why, all[i].field);
	if (s->n_stop_ids > 0 && dialect != ENG_REMOTE_VLLM)
		return remote_refuse(why, PROTO_ERR_BAD_STOP_IDS,
				     "The server that runs this model does not have them.");
	if (s->n_bad_words > 0 && dialect != ENG_REMOTE_VLLM)
		return remote_refuse(why, PROTO_ERR_BAD_WORDS, "The server that runs this model does not have them.");
	if (s->n_given > 0 || (s->flags & PROTO_SUBMIT_PREFILL_ONLY) != 0)
		return remote_refuse(why, PROTO_ERR_BAD_REQUEST,
				     "The server that runs this model only answers prompts.");
	return 0;
}

/* ---- members ---- */

static int put_number(struct sl_buf *out, const char *name, float v)
{
	return buf_printf(out, ",\"%s\":%.7g", name, (double)v);
}

static int put_count(struct sl_buf *out, const char *name, uint64_t v)
{
	return buf_printf(out, ",\"%s\":%" PRIu64, name, v);
}

static int put_strings(struct sl_buf *out, const char *name, const struct proto_submit *s, int n, bool stops)
{
	int rc = n > 0 ? buf_printf(out, ",\"%s\":[", name) : 0;
	for (int i = 0; rc == 0 && i < n; i++) {
		struct proto_str one = stops ? s->stops[i] : proto_bad_word_at(s, i);
		rc = i > 0 ? buf_append_str(out, ",") : 0;
		rc = rc == 0 ? json_out_string(out, one.at, one.n) : rc;
	}
	return rc == 0 && n > 0 ? buf_append_str(out, "]") : rc;
}

static int put_stop_ids(struct sl_buf *out, const struct proto_submit *s)
{
	int rc = s->n_stop_ids > 0 ? buf_append_str(out, ",\"stop_token_ids\":[") : 0;
	for (int i = 0; rc == 0 && i < s->n_stop_ids; i++)
		rc = buf_printf(out, "%s%" PRIu32, i > 0 ? "," : "", s->stop_ids[i]);
	return rc == 0 && s->n_stop_ids > 0 ? buf_append_str(out, "]") : rc;
}

static int put_biases(struct sl_buf *out, const struct proto_submit *s)
{
	bool only = (s->flags & PROTO_SUBMIT_ONLY_BIASED) != 0, any = false;
	int rc = only ? buf_append_str(out, ",\"allowed_token_ids\":[") : 0;
	for (uint16_t i = 0; rc == 0 && only && i < s->n_logit_bias; i++)
		rc = buf_printf(out, "%s%" PRIu32, i > 0 ? "," : "", proto_bias_at(s, i).id);
	if (rc == 0 && only)
		rc = buf_append_str(out, "]");
	for (uint16_t i = 0; rc == 0 && i < s->n_logit_bias; i++) {
		struct proto_id_f32 b = proto_bias_at(s, i);
		if (only && !differs(b.v, 0))
			continue;
		rc = buf_printf(out, "%s\"%" PRIu32 "\":%.7g", any ? "," : ",\"logit_bias\":{", b.id, (double)b.v);
		any = true;
	}
	return rc == 0 && any ? buf_append_str(out, "}") : rc;
}

static int put_flag(struct sl_buf *out, const char *name, bool on)
{
	return on ? buf_printf(out, ",\"%s\":true", name) : 0;
}

/* Prompts of two tenants share no prefix at the upstream either, where its API can say so. */
static int put_salt(struct sl_buf *out, const struct proto_submit *s, enum eng_remote_dialect dialect)
{
	uint64_t tenant = s->flags & PROTO_SUBMIT_SHARED_PREFIX ? 0 : s->tenant;
	if (dialect != ENG_REMOTE_VLLM || (tenant == 0 && s->cache_salt == 0))
		return 0;
	return buf_printf(out, ",\"cache_salt\":\"%016" PRIx64 "%016" PRIx64 "\"", tenant, s->cache_salt);
}

static int put_sampling(struct sl_buf *out, const struct proto_submit *s, enum eng_remote_dialect dialect)
{
	int rc = put_number(out, "temperature", s->temperature);
	if (rc == 0 && s->top_p < 1)
		rc = put_number(out, "top_p", s->top_p);
	if (rc == 0 && differs(s->presence_penalty, 0))
		rc = put_number(out, "presence_penalty", s->presence_penalty);
	if (rc == 0 && differs(s->frequency_penalty, 0))
		rc = put_number(out, "frequency_penalty", s->frequency_penalty);
	if (rc == 0 && s->top_k > 0)
		rc = put_count(out, "top_k", s->top_k);
	if (rc == 0 && s->min_p > 0)
		rc = put_number(out, "min_p", s->min_p);
	if (rc == 0 && s->typical_p < 1)
		rc = put_number(out, "typical_p", s->typical_p);
	if (rc == 0 && differs(s->repetition_penalty, 1))
		rc = put_number(out, "repetition_penalty", s->repetition_penalty);
	if (rc == 0)
		rc = put_count(out, "seed", s->seed & INT64_MAX);
	if (rc == 0)
		rc = put_biases(out, s);
	return rc == 0 ? put_salt(out, s, dialect) : rc;
}

static int put_length(struct sl_buf *out, const struct proto_submit *s)
{
	int rc = put_count(out, "max_tokens", s->max_tokens);
	if (rc == 0 && s->min_tokens > 0)
		rc = put_count(out, "min_tokens", s->min_tokens);
	if (rc == 0 && s->n > 1)
		rc = put_count(out, "n", s->n);
	if (rc == 0 && s->thinking_tokens > 0)
		rc = put_count(out, "thinking_token_budget", s->thinking_tokens);
	if (rc == 0)
		rc = put_strings(out, "stop", s, s->n_stops, true);
	if (rc == 0)
		rc = put_strings(out, "bad_words", s, s->n_bad_words, false);
	if (rc == 0)
		rc = put_stop_ids(out, s);
	if (rc == 0)
		rc = put_flag(out, "ignore_eos", (s->flags & PROTO_SUBMIT_IGNORE_EOS) != 0);
	return rc == 0 ? put_flag(out, "include_stop_str_in_output", (s->flags & PROTO_SUBMIT_INCLUDE_STOP) != 0) : rc;
}

/* The list of a delta's tokens is what tells their texts apart, so it is wanted with their ids, too. */
static int put_logprobs(struct sl_buf *out, const struct proto_submit *s, enum eng_remote_dialect dialect, bool chat)
{
	unsigned wanted = PROTO_SUBMIT_WANT_LOGPROBS | (dialect == ENG_REMOTE_VLLM ? PROTO_SUBMIT_WANT_IDS : 0);
	if ((s->flags & wanted) == 0)
		return 0;
	if (!chat)
		return put_count(out, "logprobs", s->n_top_logprobs);
	int rc = buf_append_str(out, ",\"logprobs\":true");
	return rc == 0 && s->n_top_logprobs > 0 ? put_count(out, "top_logprobs", s->n_top_logprobs) : rc;
}

/* ---- constraints ---- */

static int put_named(struct sl_buf *out, const char *name, struct proto_str text, bool json)
{
	int rc = buf_printf(out, ",\"%s\":", name);
	if (rc != 0)
		return rc;
	return json ? buf_append(out, text.at, text.n) : json_out_string(out, text.at, text.n);
}

static int put_schema(struct sl_buf *out, struct proto_str schema)
{
	int rc =
	    buf_append_str(out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\","
				"\"strict\":true,\"schema\":");
	rc = rc == 0 ? buf_append(out, schema.at, schema.n) : rc;
	return rc == 0 ? buf_append_str(out, "}}") : rc;
}

static int put_constraint(struct sl_buf *out, const struct proto_submit *s, enum eng_remote_dialect dialect,
			  struct remote_refusal *why)
{
	bool vllm = dialect == ENG_REMOTE_VLLM;
	switch (s->constraint_kind) {
	case PROTO_CONSTRAINT_NONE:
	case PROTO_CONSTRAINT_CALLS: return 0;
	case PROTO_CONSTRAINT_JSON_SCHEMA: return put_schema(out, s->constraint);
	case PROTO_CONSTRAINT_JSON_OBJECT:
		return buf_append_str(out, ",\"response_format\":{\"type\":\"json_object\"}");
	case PROTO_CONSTRAINT_REGEX:
		if (vllm)
			return put_named(out, "guided_regex", s->constraint, false);
		break;
	case PROTO_CONSTRAINT_CHOICE:
		if (vllm)
			return put_named(out, "guided_choice", s->constraint, true);
		break;
	case PROTO_CONSTRAINT_GBNF:
	case PROTO_CONSTRAINT_LARK:
		if (vllm)
			return put_named(out, "guided_grammar", s->constraint, false);
		if (dialect == ENG_REMOTE_LLAMA && s->constraint_kind == PROTO_CONSTRAINT_GBNF)
			return put_named(out, "grammar", s->constraint, false);
		break;
	default: break;
	}
	return remote_refuse(why, PROTO_ERR_BAD_CONSTRAINT, "The server that runs this model does not have this kind.");
}

/* ---- prompts ---- */

static int put_ids(struct sl_buf *out, const char *name, struct proto_str prompt)
{
	int rc = buf_printf(out, ",\"%s\":[", name);
	for (size_t i = 0; rc == 0 && i + 4 <= prompt.n; i += 4) {
		const uint8_t *p = (const uint8_t *)prompt.at + i;
		uint32_t id = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
		rc = buf_printf(out, "%s%" PRIu32, i > 0 ? "," : "", id);
	}
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

static int put_prompt(const struct proto_submit *s, enum eng_remote_dialect dialect, struct sl_buf *out,
		      struct remote_refusal *why)
{
	if (s->prompt_kind == PROTO_PROMPT_CHAT)
		return remote_chat_put(s, dialect, out, why);
	return s->prompt_kind == PROTO_PROMPT_TOKENS ? put_ids(out, "prompt", s->prompt)
						     : put_named(out, "prompt", s->prompt, false);
}

static int put_model(struct sl_buf *out, const char *model)
{
	int rc = buf_append_str(out, "{\"model\":");
	return rc == 0 ? json_out_string(out, model, strlen(model)) : rc;
}

static int put_pair(const struct proto_submit *s, const char *model, struct sl_buf *out, struct remote_refusal *why)
{
	const uint8_t *p = (const uint8_t *)s->prompt.at;
	size_t n = s->prompt.n, first = n >= 4 ? p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24 : 0;
	if (n < 4 || first > n - 4)
		return remote_refuse(why, PROTO_ERR_BAD_REQUEST, "A pair of texts has a wrong length.");
	int rc = put_model(out, model);
	if (rc == 0)
		rc = put_named(out, "text_1", (struct proto_str){s->prompt.at + 4, first}, false);
	if (rc == 0)
		rc = put_named(out, "text_2", (struct proto_str){s->prompt.at + 4 + first, n - 4 - first}, false);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_input(const struct proto_submit *s, const char *model, struct sl_buf *out, struct remote_refusal *why)
{
	bool ids = s->prompt_kind == PROTO_PROMPT_TOKENS;
	if (!ids && s->prompt_kind != PROTO_PROMPT_INPUT && s->prompt_kind != PROTO_PROMPT_TEXT)
		return remote_refuse(why, PROTO_ERR_BAD_REQUEST,
				     "The server that runs this model embeds texts and tokens only.");
	int rc = put_model(out, model);
	if (rc == 0)
		rc = ids ? put_ids(out, "input", s->prompt) : put_named(out, "input", s->prompt, false);
	return rc == 0 ? buf_append_str(out, ",\"encoding_format\":\"float\"}") : rc;
}

int remote_body_put(const struct proto_submit *s, const char *model, enum eng_remote_dialect dialect,
		    struct sl_buf *out, const char **path, struct remote_refusal *why)
{
	bool chat = s->prompt_kind == PROTO_PROMPT_CHAT;
	if ((s->flags & PROTO_SUBMIT_EMBED) != 0) {
		bool pair = s->prompt_kind == PROTO_PROMPT_PAIR;
		*path = pair ? "/score" : "/embeddings";
		return pair ? put_pair(s, model, out, why) : put_input(s, model, out, why);
	}
	*path = chat ? "/chat/completions" : "/completions";
	int rc = check_extensions(s, dialect, why);
	if (rc == 0)
		rc = put_model(out, model);
	if (rc == 0)
		rc = put_prompt(s, dialect, out, why);
	if (rc == 0)
		rc = put_sampling(out, s, dialect);
	if (rc == 0)
		rc = put_length(out, s);
	if (rc == 0)
		rc = put_logprobs(out, s, dialect, chat);
	if (rc == 0 && dialect == ENG_REMOTE_VLLM)
		rc = put_flag(out, "return_token_ids", (s->flags & PROTO_SUBMIT_WANT_IDS) != 0);
	if (rc == 0)
		rc = put_constraint(out, s, dialect, why);
	return rc == 0 ? buf_append_str(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}") : rc;
}

int remote_body_count(const struct proto_count *req, const char *model, enum eng_remote_dialect dialect,
		      struct sl_buf *out, struct remote_refusal *why)
{
	const struct proto_submit s = {PROTO_SUBMIT_OFF, .prompt_kind = req->prompt_kind, .prompt = req->prompt};
	int rc = put_model(out, model);
	if (rc == 0 && req->prompt_kind == PROTO_PROMPT_CHAT)
		rc = remote_chat_put(&s, dialect, out, why);
	else if (rc == 0 && req->prompt_kind == PROTO_PROMPT_TOKENS)
		rc = put_ids(out, "tokens", req->prompt);
	else if (rc == 0)
		rc = put_named(out, "prompt", req->prompt, false);
	if (rc == 0 && (req->wants & PROTO_COUNT_PLAIN) != 0)
		rc = buf_append_str(out, ",\"add_special_tokens\":false");
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

/* ---- lengths ---- */

struct remote_length remote_length_of(uint8_t kind, struct proto_str prompt)
{
	if (kind == PROTO_PROMPT_CHAT)
		return remote_chat_length(prompt);
	if (kind == PROTO_PROMPT_TOKENS)
		return (struct remote_length){.fixed = (uint32_t)(prompt.n / 4)};
	return (struct remote_length){.bytes = (uint32_t)prompt.n};
}

uint32_t remote_length_most(struct remote_length l) { return l.bytes + l.fixed + TEMPLATE_TOKENS; }

uint32_t remote_length_guess(struct remote_length l, double bytes_per_token)
{
	uint32_t n = (uint32_t)ceil(l.bytes / bytes_per_token) + l.fixed;
	return n > 0 ? n : 1;
}
