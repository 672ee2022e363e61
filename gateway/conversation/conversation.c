/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/conversation/conversation.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/exchange/app_state.h"
#include "gateway/request/json_mem.h"
#include "gateway/loop/random.h"
#include "gateway/request/request_fields.h"

enum { MAX_DOCUMENT = 64 << 20, TENANT_BYTES = 24 };

static const char directory_name[] = "conversations";

/* ---- keys ---- */

static void tenant_name(char out[TENANT_BYTES], uint64_t tenant)
{
	snprintf(out, TENANT_BYTES, "%016llx", (unsigned long long)tenant);
}

static void keys_of(const struct conversation_ref *c, struct cache_key keys[2])
{
	char tenant[TENANT_BYTES], part[CONVERSATION_ID_BYTES + 16];
	tenant_name(tenant, c->tenant);
	int n = snprintf(part, sizeof part, "conversation:%s", c->id);
	cache_key_make(&keys[0], CACHE_SESSION, tenant, part, (size_t)n);
	cache_key_make(&keys[1], CACHE_SESSION, tenant, directory_name, strlen(directory_name));
}

/* ---- operations ---- */

static struct cache_value text_of(const char *s)
{
	return (struct cache_value){.p = s != NULL ? s : "", .n = s != NULL ? strlen(s) : 0};
}

static struct cache_value number(uint64_t i) { return (struct cache_value){.i = (int64_t)i}; }

static void eval(const struct conversation_ref *c, struct cache_op *op, const struct cache_proc *proc,
		 const struct cache_value *args, size_t n, cache_done *done)
{
	struct cache_key keys[2];
	keys_of(c, keys);
	cache_eval(c->cache, op, proc, keys, 2, args, n, done);
}

void conversation_ask(const struct conversation_ref *c, struct cache_op *op, cache_done *done)
{
	eval(c, op, &conversation_read, NULL, 0, done);
}

void conversation_take(const struct conversation_ref *c, struct cache_op *op, const char *token, uint64_t lease_ms,
		       const char *response, bool quiet, cache_done *done)
{
	const struct cache_value args[] = {text_of(token), number(lease_ms * 1000), text_of(response), number(quiet)};
	eval(c, op, &conversation_hold, args, sizeof args / sizeof *args, done);
}

void conversation_let(const struct conversation_ref *c, struct cache_op *op, const char *token, const char *response,
		      cache_done *done)
{
	const struct cache_value args[] = {text_of(token), text_of(response)};
	eval(c, op, &conversation_free, args, sizeof args / sizeof *args, done);
}

void conversation_forget(const struct conversation_ref *c, struct cache_op *op, cache_done *done)
{
	const struct cache_value args[] = {text_of(c->id)};
	eval(c, op, &conversation_delete, args, 1, done);
}

void conversation_all(struct cache_client *cache, struct cache_op *op, uint64_t tenant, cache_done *done)
{
	char name[TENANT_BYTES];
	struct cache_key key;
	tenant_name(name, tenant);
	cache_key_make(&key, CACHE_SESSION, name, directory_name, strlen(directory_name));
	cache_eval(cache, op, &conversation_list, &key, 1, NULL, 0, done);
}

int conversation_save(const struct conversation_ref *c, const struct gw_config *cfg, struct cache_op *op,
		      const struct conversation_change *change, cache_done *done)
{
	const struct gw_conversations *l = &cfg->conversations;
	struct sl_buf doc;
	buf_init(&doc, MAX_DOCUMENT);
	int rc = request_put_json(&doc, change->doc);
	if (rc == 0) {
		json_int_t created = json_integer_value(json_object_get(change->doc, "created_at"));
		const struct cache_value args[] = {
		    text_of(change->token),
		    number(change->rev),
		    {.p = buf_data(&doc), .n = doc.len},
		    number(l->keep_ms),
		    number(change->token != NULL),
		    text_of(c->id),
		    number((uint64_t)created),
		    number(change->rev == 0 ? (uint64_t)l->per_tenant : 0),
		    number(change->bounded ? l->tenant_bytes : 0),
		};
		eval(c, op, &conversation_put, args, sizeof args / sizeof *args, done);
	}
	buf_dispose(&doc);
	return rc == 0 ? 0 : SL_ENOMEM;
}

void conversation_answer_read(const struct cache_result *r, struct conversation_answer *out)
{
	*out = (struct conversation_answer){.what = r->code, .doc = "", .made = ""};
	if (r->code != 0)
		return;
	out->what = r->n_values > 0 && r->values[0].p == NULL ? (int)r->values[0].i : SL_EPROTO;
	if (out->what == CONVERSATION_HELD && r->n_values > 1)
		out->left_us = (uint64_t)r->values[1].i;
	for (size_t i = 1; out->what == CONVERSATION_OK && i < r->n_values; i++) {
		const struct cache_value *v = &r->values[i];
		if (v->p == NULL) {
			out->rev = (uint64_t)v->i;
		} else if (out->doc[0] == '\0' && out->n_doc == 0) {
			out->doc = v->p;
			out->n_doc = v->n;
		} else {
			out->made = v->p;
			out->n_made = v->n;
		}
	}
}

/* ---- the document ---- */

json_t *conversation_new(const char *id, json_t *items, const json_t *metadata)
{
	json_t *about = metadata != NULL ? json_incref((json_t *)(uintptr_t)metadata) : json_object();
	return json_pack("{s:s, s:I, s:o, s:o}", "id", id, "created_at", (json_int_t)clock_unix_s(), "metadata", about,
			 "items", items);
}

json_t *conversation_load(const char *bytes, size_t n)
{
	json_t *doc = json_mem_load(bytes, n, JSON_ALLOW_NUL, NULL);
	if (json_is_string(json_object_get(doc, "id")) && json_is_array(json_object_get(doc, "items")) &&
	    json_is_object(json_object_get(doc, "metadata")))
		return doc;
	json_decref(doc);
	return NULL;
}

json_t *conversation_object(const json_t *doc)
{
	return json_pack("{s:O, s:s, s:O, s:O}", "id", json_object_get(doc, "id"), "object", "conversation",
			 "created_at", json_object_get(doc, "created_at"), "metadata",
			 json_object_get(doc, "metadata"));
}

int conversation_name_items(json_t *items)
{
	for (size_t i = 0; i < json_array_size(items); i++) {
		json_t *item = json_array_get(items, i);
		char id[RANDOM_NAME_CHARS + 8];
		const char *type = json_string_value(json_object_get(item, "type"));
		if (json_object_get(item, "id") != NULL)
			continue;
		int n = snprintf(id, sizeof id, "%s_", strcmp(type, "message") == 0 ? "msg" : "item");
		if (!random_name(id + n) || json_object_set_new(item, "id", json_string(id)) != 0)
			return SL_ENOMEM;
	}
	return 0;
}

static int count(const char *bytes, size_t n, void *ctx)
{
	(void)bytes;
	*(size_t *)ctx += n;
	return 0;
}

size_t conversation_bytes(const json_t *doc)
{
	size_t n = 0;
	(void)json_dump_callback(doc, count, &n, JSON_COMPACT | JSON_ENCODE_ANY);
	return n;
}

/* ---- error responses ---- */

void conversation_refuse(struct exchange *x, const char *id, const char *param, const struct conversation_answer *a)
{
	const struct gw_conversations *l = &x->app->t->cfg->conversations;
	switch (a->what) {
	case CONVERSATION_GONE:
		exchange_refuse(x, 404, "conversation_not_found", param,
				"No conversation with the id '%.64s': it never existed, has expired, or is not yours.",
				id);
		return;
	case CONVERSATION_HELD:
	case CONVERSATION_CHANGED:
		exchange_refuse(
		    x, 409, "conversation_locked", param,
		    "Another request is continuing the conversation '%.64s'. Please retry when it has ended.", id);
		return;
	case CONVERSATION_FULL:
		exchange_refuse(x, 400, "conversation_too_large", param,
				"The conversation '%.64s' has too many responses. Please begin a new one.", id);
		return;
	case CONVERSATION_TOO_MANY:
		exchange_refuse(x, 400, "too_many_conversations", param,
				"You have the maximum of %lld conversations (gateway.conversations.per_tenant). Please "
				"delete some.",
				(long long)l->per_tenant);
		return;
	case CONVERSATION_TOO_LARGE:
		exchange_refuse(
		    x, 400, "too_many_conversations", param,
		    "Your conversations exceed %llu bytes in total (gateway.conversations.tenant_bytes). Please "
		    "delete some.",
		    (unsigned long long)l->tenant_bytes);
		return;
	default: break;
	}
	exchange_refuse(x, 503, "store_unavailable", NULL, "The store for conversations is temporarily unavailable.");
}

void conversation_refuse_size(struct exchange *x, const char *param, size_t bytes)
{
	exchange_refuse(x, 400, "conversation_too_large", param,
			"The conversation would have %zu bytes. The limits are %llu bytes "
			"(gateway.conversations.bytes) and %d items.",
			bytes, (unsigned long long)x->app->t->cfg->conversations.bytes, (int)CONVERSATION_MAX_ITEMS);
}
