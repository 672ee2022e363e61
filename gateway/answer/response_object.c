/* SPDX-License-Identifier: Apache-2.0
 *
 * The object "response". The fields of the request that it echoes are a table with their defaults.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/request/json_mem.h"
#include "gateway/answer/response.h"

enum { MAX_SLUICE = 4096 };

static const struct {
	const char *name, *fallback; /* JSON */
} told_back[] = {
    {"background", "false"},
    {"conversation", "null"},
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"max_tool_calls", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"previous_response_id", "null"},
    {"prompt", "null"},
    {"prompt_cache_key", "null"},
    {"reasoning", "{\"effort\":null,\"summary\":null}"},
    {"safety_identifier", "null"},
    {"service_tier", "\"default\""},
    {"store", "true"},
    {"temperature", "1.0"},
    {"text", "{\"format\":{\"type\":\"text\"}}"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"top_logprobs", "0"},
    {"top_p", "1.0"},
    {"truncation", "\"disabled\""},
    {"user", "null"},
};

json_t *response_about(const struct response_request *r)
{
	json_t *about = json_object();
	for (size_t i = 0; about != NULL && i < sizeof told_back / sizeof *told_back; i++) {
		json_t *v = json_incref(request_get(r->body, told_back[i].name));
		if (r->conversation != NULL && strcmp(told_back[i].name, "conversation") == 0) {
			json_decref(v);
			v = json_pack("{s:s}", "id", r->conversation);
		}
		if (v == NULL)
			v = json_loads(told_back[i].fallback, JSON_DECODE_ANY, NULL);
		if (json_object_set_new(about, told_back[i].name, v) != 0) {
			json_decref(about);
			about = NULL;
		}
	}
	return about;
}

bool response_is_unkept(const struct response *r) { return (r->store && r->lost) || r->not_added; }

/* Whatever became of it in the store. */
static const char *made_of(const struct answer *a)
{
	switch (a->end) {
	case ANSWER_UNDECIDED: break;
	case ANSWER_DONE: return strcmp(a->choices[0].reason, "length") == 0 ? "incomplete" : "completed";
	case ANSWER_STOPPED: return "cancelled";
	case ANSWER_FAILED: return "failed";
	}
	return "in_progress";
}

static const char *status_of(const struct answer *a)
{
	bool is_told = a->end == ANSWER_DONE || a->end == ANSWER_STOPPED;
	return is_told && response_is_unkept(a->own) ? "failed" : made_of(a);
}

/* What a client can do about it. */
static json_t *error_of_unkept(const struct response *r)
{
	if (!r->lost)
		return json_pack("{s:s, s:s}", "code", "conversation_not_updated", "message",
				 "The answer is whole, but was not added to its conversation, or the store did not say "
				 "so in time: read it "
				 "before going on.");
	if (r->why == SL_ENOTFOUND)
		return json_pack("{s:s, s:s}", "code", "conversation_not_updated", "message",
				 "The answer is whole, but its conversation was deleted meanwhile: neither it nor the "
				 "response is kept.");
	if (r->why == SL_ELIMIT)
		return json_pack(
		    "{s:s, s:s}", "code", "store_limit_exceeded", "message",
		    "The answer is whole, but with what came before it it is too large to be stored: it can be neither "
		    "retrieved nor continued.");
	return json_pack("{s:s, s:s}", "code", "store_unavailable", "message",
			 "The answer is whole, but was not stored, or the store did not say so in time: do not count "
			 "on retrieving or "
			 "continuing it.");
}

/* The API's few codes for what may go wrong. */
static const char *error_code(const struct api_error *e)
{
	if (e->status == 429)
		return "rate_limit_exceeded";
	return e->status >= 500 ? "server_error" : "invalid_prompt";
}

static json_t *error_of(const struct answer *a)
{
	if (a->end == ANSWER_FAILED)
		return json_pack("{s:s, s:s}", "code", error_code(answer_error(a)), "message", answer_error_text(a));
	return strcmp(status_of(a), "failed") == 0 ? error_of_unkept(a->own) : json_null();
}

static json_t *incomplete_details(const struct answer *a)
{
	return strcmp(status_of(a), "incomplete") == 0 ? json_pack("{s:s}", "reason", "max_output_tokens")
						       : json_null();
}

static json_t *usage_of(const struct answer *a)
{
	struct sse_usage u = answer_usage(a);
	if (a->end == ANSWER_UNDECIDED)
		return json_null();
	return json_pack("{s:I, s:{s:I}, s:I, s:{s:i}, s:I}", "input_tokens", (json_int_t)u.n_prompt,
			 "input_tokens_details", "cached_tokens", (json_int_t)u.n_cached, "output_tokens",
			 (json_int_t)u.n_completion, "output_tokens_details", "reasoning_tokens", (int)u.n_reasoning,
			 "total_tokens", (json_int_t)u.n_prompt + u.n_completion);
}

json_t *response_logprobs(const struct sl_buf *from)
{
	if (from->len == 0)
		return json_array();
	struct sl_buf list;
	buf_init(&list, from->len + 2);
	json_t *out = NULL;
	if (buf_append_str(&list, "[") == 0 && buf_append(&list, buf_data(from), from->len) == 0 &&
	    buf_append_str(&list, "]") == 0)
		out = json_mem_load((const char *)buf_data(&list), list.len, JSON_ALLOW_NUL, NULL);
	buf_dispose(&list);
	return out;
}

/* All tokens: those a stream has sent, those of an answer that was not streamed. */
static json_t *logprobs_of(const struct answer *a, bool open)
{
	const struct answer_choice *c = &a->choices[0];
	const struct sl_buf *from = c->logprobs[ANSWER_SENT].len > 0 ? &c->logprobs[ANSWER_SENT] : &c->logprobs[0];
	return open ? json_array() : response_logprobs(from);
}

json_t *response_part(const struct answer *a, bool open)
{
	const struct sl_buf *text = &a->choices[0].text;
	size_t n = open ? 0 : text->len;
	return json_pack("{s:s, s:[], s:o, s:s%}", "type", "output_text", "annotations", "logprobs",
			 logprobs_of(a, open), "text", n > 0 ? (const char *)buf_data(text) : "", n);
}

void response_message_id(const struct answer *a, char out[ANSWER_ID_BYTES])
{
	snprintf(out, ANSWER_ID_BYTES, "msg_%s", a->id + strlen(a->format->id_prefix));
}

json_t *response_message(const struct answer *a, bool open)
{
	char id[ANSWER_ID_BYTES];
	const char *status = open || a->end == ANSWER_UNDECIDED     ? "in_progress"
			     : strcmp(made_of(a), "completed") == 0 ? "completed"
								    : "incomplete";
	json_t *content = open ? json_array() : json_pack("[o]", response_part(a, false));
	response_message_id(a, id);
	return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role",
			 "assistant", "content", content);
}

/* ---- items of an answer that is split ---- */

void response_item_id(const struct answer *a, const struct answer_item *item, char out[RESPONSE_ITEM_ID_BYTES])
{
	static const char *const prefixes[] = {
	    [ANSWER_CONTENT] = "msg_", [ANSWER_REASONING] = "rs_", [ANSWER_CALL] = "fc_"};
	const char *own = a->id + strlen(a->format->id_prefix);
	if (item->number == 0)
		snprintf(out, RESPONSE_ITEM_ID_BYTES, "%s%s", prefixes[item->kind], own);
	else
		snprintf(out, RESPONSE_ITEM_ID_BYTES, "%s%s_%u", prefixes[item->kind], own, item->number);
}

/* Of the last item it is known only with the reason for the choice's end. */
static const char *item_status(const struct answer *a, const struct answer_item *item)
{
	const struct answer_choice *c = &a->choices[0];
	bool last = c->parts != NULL && item->number + 1 == c->parts->n_items;
	if (!item->closed)
		return a->end == ANSWER_UNDECIDED ? "in_progress" : "incomplete";
	/* Where the answer broke off its text is closed all the same; a call then is cut. */
	if (last && item->kind != ANSWER_CALL && (a->end == ANSWER_STOPPED || a->end == ANSWER_FAILED))
		return "incomplete";
	return item->cut || (last && c->reason != NULL && strcmp(c->reason, "length") == 0) ? "incomplete"
											    : "completed";
}

static json_t *text_of_item(const struct answer_item *item, bool open)
{
	size_t n = open ? 0 : item->text.len;
	return json_stringn(n > 0 ? (const char *)buf_data(&item->text) : "", n);
}

json_t *response_item(const struct answer *a, const struct answer_item *item, bool open)
{
	char id[RESPONSE_ITEM_ID_BYTES];
	const char *status = open ? "in_progress" : item_status(a, item);
	json_t *content = open ? json_array() : NULL;
	response_item_id(a, item, id);
	switch (item->kind) {
	case ANSWER_CONTENT:
		if (!open)
			content = json_pack("[{s:s, s:[], s:o, s:o}]", "type", "output_text", "annotations", "logprobs",
					    logprobs_of(a, false), "text", text_of_item(item, false));
		return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role",
				 "assistant", "content", content);
	case ANSWER_REASONING:
		if (!open)
			content =
			    json_pack("[{s:s, s:o}]", "type", "reasoning_text", "text", text_of_item(item, false));
		return json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", id, "type", "reasoning", "status", status,
				 "summary", "content", content);
	case ANSWER_CALL: break;
	}
	json_decref(content);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "function_call", "status", status,
			 "call_id", item->id, "name", item->name, "arguments", text_of_item(item, open));
}

static json_t *items_of(const struct answer *a)
{
	const struct answer_parts *p = a->choices[0].parts;
	json_t *all = json_array();
	for (size_t i = 0; p != NULL && all != NULL && i < p->n_items; i++)
		if (json_array_append_new(all, response_item(a, &p->items[i], false)) != 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}

static json_t *output_of(const struct answer *a)
{
	if (a->split != NULL)
		return a->end != ANSWER_UNDECIDED ? items_of(a) : json_array();
	bool any = a->end != ANSWER_UNDECIDED && (a->choices[0].closed || a->choices[0].text.len > 0);
	return any ? json_pack("[o]", response_message(a, false)) : json_array();
}

/* NULL: nothing to report, or no memory (*failed). */
static json_t *sluice_of(struct answer *a, bool *failed)
{
	const struct sse_about about = answer_about(a, ANSWER_ALL);
	struct sl_buf text;
	json_t *out = NULL;
	*failed = false;
	if (about.ended_by == NULL && about.degraded == NULL && about.members == NULL && about.cascade == NULL)
		return NULL;
	buf_init(&text, MAX_SLUICE);
	if (buf_append_str(&text, "{\"\":0") == 0 && sse_about_print(&text, &about) == 0 &&
	    buf_append_str(&text, "}") == 0) {
		json_t *all = json_mem_load((const char *)buf_data(&text), text.len, 0, NULL);
		out = json_incref(json_object_get(all, "sluice"));
		json_decref(all);
	}
	buf_dispose(&text);
	*failed = out == NULL;
	return out;
}

json_t *response_object(struct answer *a)
{
	const struct response *r = a->own;
	json_t *o =
	    json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:o, s:o}", "id", a->id, "object", "response", "created_at",
		      (json_int_t)a->created, "status", status_of(a), "error", error_of(a), "incomplete_details",
		      incomplete_details(a), "model", a->model, "output", output_of(a), "usage", usage_of(a));
	bool failed;
	json_t *sluice = sluice_of(a, &failed);
	if (o != NULL && (json_object_update(o, r->about) != 0 || failed ||
			  (r->not_added && json_object_set_new(o, "conversation", json_null()) != 0) ||
			  (sluice != NULL && json_object_set(o, "sluice", sluice) != 0) ||
			  (r->lost && json_object_set_new(o, "store", json_false()) != 0))) {
		json_decref(o);
		o = NULL;
	}
	json_decref(sluice);
	return o;
}
