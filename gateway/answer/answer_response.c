/* SPDX-License-Identifier: Apache-2.0
 *
 * A response's events. Each has a name, and a sequence_number that is its number in the stream's log,
 * so that `starting_after` can be looked up without reading one. All but the deltas are few, and built
 * as JSON values; a delta is written by hand.
 *
 *   created, in_progress, output_item.added, content_part.added, output_text.delta …,
 *   output_text.done, content_part.done, output_item.done, completed | incomplete | failed
 *
 * A response that is to be stored and was not ends as failed, after all of its text: completed promises that it
 * can be retrieved and continued.
 *
 * One that was cancelled ends as incomplete with the status "cancelled": there is no event of its own.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/answer/response.h"

struct response *response_create(const struct response_request *request, json_t *items)
{
	struct response *r = sl_zalloc(sizeof *r);
	if (r != NULL) {
		r->about = response_about(request);
		r->items = items;
		r->store = request->store;
		r->cleanse = (uint8_t)request->cleanse;
		if (r->about != NULL)
			return r;
	}
	json_decref(items);
	sl_free(r);
	return NULL;
}

static void dispose(void *own)
{
	struct response *r = own;
	if (r == NULL)
		return;
	cache_cancel(&r->op);
	conversation_turn_drop(r->turn);
	json_decref(r->about);
	json_decref(r->items);
	sl_free(r);
}

/* ---- events ---- */

/* The event that began at start is there, or none of it. */
static int count_event(struct response *r, struct sl_buf *out, size_t start, int rc)
{
	if (rc == 0)
		r->n_events++;
	else
		buf_cut(out, start);
	return rc;
}

/* Takes members. */
static int put_event(struct answer *a, struct sl_buf *out, const char *type, json_t *members)
{
	struct response *r = a->own;
	size_t start = out->len;
	json_t *event = json_pack("{s:s, s:I}", "type", type, "sequence_number", (json_int_t)r->n_events);
	int rc = event == NULL || members == NULL || json_object_update(event, members) != 0 ? SL_ENOMEM : 0;
	if (rc == 0 && (rc = buf_printf(out, "event: %s\ndata: ", type)) == 0 &&
	    (rc = request_put_json(out, event)) == 0)
		rc = buf_append_str(out, "\n\n");
	json_decref(event);
	json_decref(members);
	return count_event(r, out, start, rc);
}

static int put_state(struct answer *a, struct sl_buf *out, const char *type)
{
	return put_event(a, out, type, json_pack("{s:o}", "response", response_object(a)));
}

static int put_item(struct answer *a, struct sl_buf *out, const char *type, bool open)
{
	return put_event(a, out, type, json_pack("{s:i, s:o}", "output_index", 0, "item", response_message(a, open)));
}

/* The place of the one part. */
static json_t *place(const struct answer *a)
{
	char id[ANSWER_ID_BYTES];
	response_message_id(a, id);
	return json_pack("{s:s, s:i, s:i}", "item_id", id, "output_index", 0, "content_index", 0);
}

static int put_part(struct answer *a, struct sl_buf *out, const char *type, bool open)
{
	json_t *members = place(a);
	if (members != NULL && json_object_set_new(members, "part", response_part(a, open)) != 0) {
		json_decref(members);
		members = NULL;
	}
	return put_event(a, out, type, members);
}

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = put_state(a, out, "response.created");
	if (rc == 0)
		rc = put_state(a, out, "response.in_progress");
	if (rc != 0 || a->split != NULL)
		return rc;
	if (rc == 0)
		rc = put_item(a, out, "response.output_item.added", true);
	return rc == 0 ? put_part(a, out, "response.content_part.added", true) : rc;
}

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	static const char type[] = "response.output_text.delta";
	struct response *r = a->own;
	const struct sl_buf *logprobs = &a->choices[index].logprobs[0];
	char id[ANSWER_ID_BYTES];
	size_t start = out->len;
	response_message_id(a, id);
	int rc =
	    buf_printf(out,
		       "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u,\"item_id\":\"%s\",\"output_index\":0,"
		       "\"content_index\":0,\"delta\":",
		       type, type, r->n_events, id);
	if (rc == 0)
		rc = json_out_string(out, at, n);
	if (rc == 0)
		rc = buf_append_str(out, ",\"logprobs\":[");
	if (rc == 0 && logprobs->len > 0)
		rc = buf_append(out, buf_data(logprobs), logprobs->len);
	if (rc == 0)
		rc = buf_append_str(out, "]");
	if (rc == 0 && a->out.obfuscate)
		rc = sse_pad(out, out->len - start);
	if (rc == 0)
		rc = buf_append_str(out, "}\n\n");
	return count_event(r, out, start, rc);
}

/* ---- items ---- */

/* The position of an item's content, with more members. NULL: no memory. */
static json_t *position(const struct answer *a, const struct answer_item *item, const char *member, json_t *value)
{
	char id[RESPONSE_ITEM_ID_BYTES];
	response_item_id(a, item, id);
	json_t *o = json_pack("{s:s, s:i, s:o?}", "item_id", id, "output_index", (int)item->number, member, value);
	if (o != NULL && item->kind != ANSWER_CALL && json_object_set_new(o, "content_index", json_integer(0)) != 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static int put_item_event(struct answer *a, struct sl_buf *out, const char *type, const struct answer_item *item,
			  bool open)
{
	return put_event(
	    a, out, type,
	    json_pack("{s:i, s:o}", "output_index", (int)item->number, "item", response_item(a, item, open)));
}

/* The message's one part. */
static int put_part_event(struct answer *a, struct sl_buf *out, const char *type, const struct answer_item *item,
			  bool open)
{
	json_t *message = response_item(a, item, false);
	json_t *part = json_incref(json_array_get(json_object_get(message, "content"), 0));
	if (open && part != NULL &&
	    (json_object_set_new(part, "text", json_string("")) != 0 ||
	     json_object_set_new(part, "logprobs", json_array()) != 0)) {
		json_decref(part);
		part = NULL;
	}
	json_decref(message);
	return part != NULL ? put_event(a, out, type, position(a, item, "part", part)) : SL_ENOMEM;
}

static int open_item(struct answer *a, struct sl_buf *out, const struct answer_item *item)
{
	int rc = put_item_event(a, out, "response.output_item.added", item, true);
	return rc == 0 && item->kind == ANSWER_CONTENT
		   ? put_part_event(a, out, "response.content_part.added", item, true)
		   : rc;
}

static int close_item(struct answer *a, struct sl_buf *out, const struct answer_item *item)
{
	static const char *const done[] = {[ANSWER_CONTENT] = "response.output_text.done",
					   [ANSWER_REASONING] = "response.reasoning_text.done",
					   [ANSWER_CALL] = "response.function_call_arguments.done"};
	json_t *whole = json_stringn(item->text.len > 0 ? (const char *)buf_data(&item->text) : "", item->text.len);
	json_t *members = position(a, item, item->kind == ANSWER_CALL ? "arguments" : "text", whole);
	bool logprobs = item->kind != ANSWER_CONTENT || json_object_set_new(members, "logprobs", json_array()) == 0;
	bool named = item->kind != ANSWER_CALL || json_object_set_new(members, "name", json_string(item->name)) == 0;
	if (!logprobs || !named) {
		json_decref(members);
		return SL_ENOMEM;
	}
	int rc = put_event(a, out, done[item->kind], members);
	if (rc == 0 && item->kind == ANSWER_CONTENT)
		rc = put_part_event(a, out, "response.content_part.done", item, false);
	return rc == 0 ? put_item_event(a, out, "response.output_item.done", item, false) : rc;
}

static int item(struct answer *a, struct sl_buf *out, unsigned index, const struct answer_item *item,
		enum answer_item_event e, const char *at, size_t n)
{
	static const char *const deltas[] = {[ANSWER_CONTENT] = "response.output_text.delta",
					     [ANSWER_REASONING] = "response.reasoning_text.delta",
					     [ANSWER_CALL] = "response.function_call_arguments.delta"};
	if (e == ANSWER_ITEM_OPEN)
		return open_item(a, out, item);
	if (e == ANSWER_ITEM_CLOSE)
		return close_item(a, out, item);
	json_t *members = position(a, item, "delta", json_stringn(at, n));
	if (members != NULL && item->kind == ANSWER_CONTENT &&
	    json_object_set_new(members, "logprobs", response_logprobs(&a->choices[index].logprobs[0])) != 0) {
		json_decref(members);
		members = NULL;
	}
	return put_event(a, out, deltas[item->kind], members);
}

static int close_choice(struct answer *a, struct sl_buf *out, unsigned index, const char *reason)
{
	(void)index;
	(void)reason;
	if (a->split != NULL)
		return 0;
	json_t *members = place(a), *part = response_part(a, false);
	int rc = members == NULL || part == NULL ||
			 json_object_set(members, "text", json_object_get(part, "text")) != 0 ||
			 json_object_set(members, "logprobs", json_object_get(part, "logprobs")) != 0
		     ? SL_ENOMEM
		     : 0;
	json_decref(part);
	if (rc == 0) {
		rc = put_event(a, out, "response.output_text.done", members);
		members = NULL;
	}
	json_decref(members);
	if (rc == 0)
		rc = put_part(a, out, "response.content_part.done", false);
	return rc;
}

/* The item's end is sent with the response's: only then is it known whether it is complete. */
static int end(struct answer *a, struct sl_buf *out)
{
	bool complete = a->end == ANSWER_DONE && strcmp(a->choices[0].reason, "length") != 0;
	const char *type = response_is_unkept(a->own) ? "response.failed"
			   : complete                 ? "response.completed"
						      : "response.incomplete";
	int rc = a->split != NULL ? 0 : put_item(a, out, "response.output_item.done", false);
	return rc == 0 ? put_state(a, out, type) : rc;
}

static int error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	(void)e; /* they are the answer's */
	(void)message;
	return put_state(a, out, "response.failed");
}

static int whole(struct answer *a, struct sl_buf *out)
{
	json_t *object = response_object(a);
	int rc = object == NULL ? SL_ENOMEM : request_put_json(out, object);
	json_decref(object);
	return rc;
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	(void)a;
	return answer_put_logprob(a, &c->logprobs[0], t);
}

/* ---- the store ---- */

static void opened(struct answer *a)
{
	struct response *r = a->own;
	r->answer = a;
	if (a->out.background && response_save(r, false) == 0)
		r->first = answer_await(a);
}

static bool settle(struct answer *a)
{
	struct response *r = a->own;
	r->answer = a;
	return !response_settle(r);
}

/* ---- continuing another gateway's ---- */

static json_t *save(const struct answer *a)
{
	const struct response *r = a->own;
	return json_pack("{s:O, s:O, s:b}", "about", r->about, "items", r->items, "store", r->store);
}

static void *restore(const json_t *saved)
{
	struct response *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	r->about = json_incref(json_object_get(saved, "about"));
	r->items = json_incref(json_object_get(saved, "items"));
	r->store = json_is_true(json_object_get(saved, "store"));
	if (json_is_object(r->about) && json_is_array(r->items))
		return r;
	dispose(r);
	return NULL;
}

static void renumber(struct answer *a, uint64_t next)
{
	struct response *r = a->own;
	r->n_events = (uint32_t)next;
}

const struct answer_format answer_response = {
    .id_prefix = "resp_",
    .prompt_param = "input",
    .begin = begin,
    .text = text,
    .item = item,
    .close = close_choice,
    .end = end,
    .error = error,
    .whole = whole,
    .logprob = logprob,
    .snapshot = whole,
    .opened = opened,
    .settle = settle,
    .dispose = dispose,
    .save = save,
    .restore = restore,
    .renumber = renumber,
};
