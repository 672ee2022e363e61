/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/conversations: OpenAI's Conversations API, plus a list of a tenant's conversations and an export of one.
 * Deletion: api_conversation_delete.c. Responses in a conversation: api_responses.c.
 *
 * A change reads the document, changes it and saves it as the next revision. If another request saved first, it starts
 * over. While a response is generated in the conversation, changes get 409.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/api/api_request.h"
#include "gateway/conversation/conversation.h"
#include "gateway/api/handlers.h"
#include "gateway/conversation/item_page.h"
#include "gateway/auth/owned_name.h"
#include "gateway/request/object_list.h"
#include "gateway/request/response_items.h"
#include "gateway/exchange/route.h"

enum { MOST_TRIES = 5 };

struct call {
	struct exchange *x;
	char id[CONVERSATION_ID_BYTES];
	struct cache_op op;
	struct item_page page;
	json_t *body, *items, *doc; /* owned; NULL: none */
	size_t n_before;            /* items of doc before those that are added */
	int tries;
	int (*change)(struct call *c); /* of doc; NULL: none. Negative: x is answered, unless SL_ENOMEM */
	void (*reply)(struct call *c); /* from doc, once it is read or saved */
};

/* ---- a call ---- */

static void on_close(struct exchange *x)
{
	struct call *c = x->state;
	cache_cancel(&c->op);
	json_decref(c->body);
	json_decref(c->items);
	json_decref(c->doc);
	sl_free(c);
}

/* NULL with x answered. */
static struct call *call_create(struct exchange *x)
{
	struct call *c = exchange_own(x, sizeof *c, on_close);
	if (c != NULL)
		c->x = x;
	return c;
}

bool api_conversation_on_path(struct exchange *x, char id[CONVERSATION_ID_BYTES])
{
	if (route_part(x->route, http_request(x->stream)->path, id, CONVERSATION_ID_BYTES) &&
	    owned_name_is_of(x->key, id))
		return true;
	conversation_refuse(x, id, "conversation_id", &(struct conversation_answer){.what = CONVERSATION_GONE});
	return false;
}

/* Of the conversation in the path. NULL with x answered. */
static struct call *call_on_path(struct exchange *x)
{
	struct call *c = call_create(x);
	return c != NULL && api_conversation_on_path(x, c->id) ? c : NULL;
}

static struct conversation_ref ref_of(const struct call *c)
{
	return (struct conversation_ref){c->x->app->t->cache, c->x->key->tenant, c->id};
}

static struct call *of_op(struct cache_op *op)
{
	return (struct call *)(void *)((char *)op - offsetof(struct call, op));
}

/* ---- reading and changing ---- */

static void read_document(struct call *c);

static void on_saved(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	struct conversation_answer a;
	conversation_answer_read(r, &a);
	if (a.what == CONVERSATION_CHANGED && c->change != NULL && ++c->tries < MOST_TRIES)
		read_document(c);
	else if (a.what != CONVERSATION_OK)
		conversation_refuse(c->x, c->id, "conversation_id", &a);
	else
		c->reply(c);
}

static void save(struct call *c, uint64_t rev, bool bounded)
{
	struct conversation_ref ref = ref_of(c);
	const struct conversation_change change = {.rev = rev, .doc = c->doc, .bounded = bounded};
	size_t bytes = bounded ? conversation_bytes(c->doc) : 0;
	if (bytes > c->x->app->t->cfg->conversations.bytes ||
	    json_array_size(json_object_get(c->doc, "items")) > CONVERSATION_MAX_ITEMS)
		conversation_refuse_size(c->x, "items", bytes);
	else if (conversation_save(&ref, c->x->app->t->cfg, &c->op, &change, on_saved) != 0)
		exchange_reply_no_memory(c->x);
}

static void on_read(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	struct conversation_answer a;
	conversation_answer_read(r, &a);
	if (a.what != CONVERSATION_OK) {
		conversation_refuse(c->x, c->id, "conversation_id", &a);
		return;
	}
	json_decref(c->doc);
	c->doc = conversation_load(a.doc, a.n_doc);
	if (c->doc == NULL) {
		exchange_reply_no_memory(c->x);
		return;
	}
	int rc = c->change != NULL ? c->change(c) : 0;
	if (rc == SL_ENOMEM)
		exchange_reply_no_memory(c->x);
	else if (rc == 0 && c->change != NULL)
		save(c, a.rev, c->items != NULL);
	else if (rc == 0)
		c->reply(c);
}

static void read_document(struct call *c)
{
	struct conversation_ref ref = ref_of(c);
	conversation_ask(&ref, &c->op, on_read);
}

/* c NULL: x is answered already. */
static void run(struct call *c, int (*change)(struct call *), void (*reply)(struct call *))
{
	if (c == NULL)
		return;
	c->change = change;
	c->reply = reply;
	read_document(c);
}

/* ---- bodies ---- */

static int read_items(struct call *c, struct request_error *e)
{
	const json_t *items = request_get(c->body, "items");
	if (items == NULL)
		return 0;
	if (!json_is_array(items))
		return request_wrong_type(e, "items", "an array", items);
	int rc = response_items_normalise(items, "items", CONVERSATION_ADD_ITEMS, &c->items, e);
	return rc == 0 ? conversation_name_items(c->items) : rc;
}

static int read_metadata(struct call *c, struct request_error *e)
{
	json_t *metadata = request_get(c->body, "metadata");
	if (metadata != NULL && !json_is_object(metadata))
		return request_wrong_type(e, "metadata", "an object", metadata);
	return request_check_metadata(metadata, e);
}

/* False with x answered. */
static bool read_body(struct call *c)
{
	struct exchange *x = c->x;
	struct request_limits limits = api_limits(x);
	struct request_error e = {0};
	/* An empty body counts as {}: create has no required member. */
	const char *body = x->body.len > 0 ? exchange_body(x) : "{}";
	int rc = request_parse_json(body, x->body.len > 0 ? x->body.len : 2, &limits, &c->body, &e);
	if (rc == 0)
		rc = read_metadata(c, &e);
	if (rc == 0)
		rc = read_items(c, &e);
	return api_parsed(x, rc, &e);
}

/* ---- one conversation ---- */

static void reply_object(struct call *c) { exchange_reply_json(c->x, conversation_object(c->doc)); }

void api_conversation_create(struct exchange *x)
{
	static const char prefix[] = "conv_";
	struct call *c = call_create(x);
	if (c == NULL || !read_body(c))
		return;
	memcpy(c->id, prefix, sizeof prefix);
	json_t *items = c->items != NULL ? json_incref(c->items) : json_array();
	if (owned_name(x->key, c->id + sizeof prefix - 1))
		c->doc = conversation_new(c->id, items, request_get(c->body, "metadata"));
	else
		json_decref(items);
	c->reply = reply_object;
	if (c->doc != NULL)
		save(c, 0, true);
	else
		exchange_reply_no_memory(x);
}

void api_conversation(struct exchange *x) { run(call_on_path(x), NULL, reply_object); }

static int set_metadata(struct call *c)
{
	json_t *metadata = request_get(c->body, "metadata");
	return json_object_set_new(c->doc, "metadata", metadata != NULL ? json_incref(metadata) : json_object()) == 0
		   ? 0
		   : SL_ENOMEM;
}

void api_conversation_update(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c == NULL || !read_body(c))
		return;
	json_decref(c->items); /* this endpoint ignores them */
	c->items = NULL;
	if (json_object_get(c->body, "metadata") != NULL) /* null removes all of it */
		run(c, set_metadata, reply_object);
	else
		exchange_refuse(x, 400, "missing_required_parameter", "metadata",
				"Missing required parameter: 'metadata'.");
}

static void reply_export(struct call *c)
{
	exchange_reply_json(c->x, json_pack("{s:s, s:o, s:O}", "object", "conversation.export", "conversation",
					    conversation_object(c->doc), "items", json_object_get(c->doc, "items")));
}

void api_conversation_export(struct exchange *x) { run(call_on_path(x), NULL, reply_export); }

/* ---- its items ---- */

static void reply_items(struct call *c) { item_page_reply(c->x, json_object_get(c->doc, "items"), &c->page); }

void api_conversation_items(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c != NULL && item_page_read(x, &c->page))
		run(c, NULL, reply_items);
}

static int add_items(struct call *c)
{
	json_t *items = json_object_get(c->doc, "items");
	return json_array_extend(items, c->items) == 0 ? 0 : SL_ENOMEM;
}

static void reply_added(struct call *c)
{
	c->page = (struct item_page){.limit = CONVERSATION_ADD_ITEMS, .ascending = true};
	item_page_reply(c->x, c->items, &c->page);
}

void api_conversation_items_add(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c == NULL || !read_body(c))
		return;
	if (json_array_size(c->items) > 0)
		run(c, add_items, reply_added);
	else
		exchange_refuse(x, 400, "missing_required_parameter", "items",
				"Missing required parameter: 'items', at least one.");
}

/* The index of the item that the path names; -1 with x answered. */
static ssize_t find_item(struct call *c)
{
	const char *id = strrchr(http_request(c->x->stream)->path, '/') + 1;
	const json_t *items = json_object_get(c->doc, "items");
	for (size_t i = 0; i < json_array_size(items); i++)
		if (strcmp(json_string_value(json_object_get(json_array_get(items, i), "id")), id) == 0)
			return (ssize_t)i;
	exchange_refuse(c->x, 404, "item_not_found", "item_id",
			"No item with the id '%.64s' in the conversation '%.64s'.", id, c->id);
	return -1;
}

static void reply_item(struct call *c)
{
	ssize_t i = find_item(c);
	if (i >= 0)
		exchange_reply_json(c->x, json_incref(json_array_get(json_object_get(c->doc, "items"), (size_t)i)));
}

void api_conversation_item(struct exchange *x) { run(call_on_path(x), NULL, reply_item); }

static int remove_item(struct call *c)
{
	ssize_t i = find_item(c);
	if (i < 0)
		return SL_ENOTFOUND;
	return json_array_remove(json_object_get(c->doc, "items"), (size_t)i) == 0 ? 0 : SL_ENOMEM;
}

void api_conversation_item_delete(struct exchange *x) { run(call_on_path(x), remove_item, reply_object); }

/* ---- all of them ---- */

/* "id created_s bytes ends_ms". */
static int listed(void *ctx, const char *at, size_t n, json_t **out)
{
	const char *end = at + n, *blank = memchr(at, ' ', n);
	json_int_t numbers[3] = {0};
	(void)ctx;
	if (blank == NULL)
		blank = end;
	size_t n_id = (size_t)(blank - at), i = 0;
	for (const char *p = blank; p < end && i <= 3; p++) {
		if (*p == ' ')
			i++;
		else if (i >= 1 && i <= 3 && *p >= '0' && *p <= '9' && numbers[i - 1] < INT64_MAX / 16)
			numbers[i - 1] = numbers[i - 1] * 10 + (*p - '0');
	}
	*out = json_pack("{s:s%, s:s, s:I, s:I, s:I}", "id", at, n_id, "object", "conversation", "created_at",
			 numbers[0], "bytes", numbers[1], "expires_at", numbers[2] / 1000);
	return *out != NULL ? 0 : SL_ENOMEM;
}

static void on_listed(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	struct conversation_answer a;
	conversation_answer_read(r, &a);
	if (a.what != CONVERSATION_OK) {
		conversation_refuse(c->x, "", NULL, &a);
		return;
	}
	json_t *list = object_list(a.doc, a.n_doc, listed, NULL);
	item_page_reply(c->x, list, &c->page);
	json_decref(list);
}

void api_conversations(struct exchange *x)
{
	/* Browser tokens of a key share its tenant, as anonymous clients of an address do. None may learn the others'
	 * ids: an id is all that reading and deleting need. */
	if (!api_needs_key(x, "Only an API key may list the conversations."))
		return;
	struct call *c = call_create(x);
	if (c != NULL && item_page_read(x, &c->page))
		conversation_all(x->app->t->cache, &c->op, x->key->tenant, on_listed);
}
