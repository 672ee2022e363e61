/* SPDX-License-Identifier: Apache-2.0
 *
 * Responses in the store, under the tenant's key. A record holds the whole conversation before its
 * answer, so that continuing it is one read, however long the chain.
 *
 * A response in the background is stored when it begins, too: another gateway, or this one after a
 * restart, can report its state.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "gateway/sharing/prefix_registry.h"
#include "gateway/answer/response.h"
#include "gateway/answer/warm.h"

enum { MAX_RECORD = 64 << 20, LONGEST_S = 3600 };

void response_key(struct cache_key *key, const struct auth_key *who, const char *id)
{
	char tenant[24];
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)who->tenant);
	cache_key_make(key, CACHE_SESSION, tenant, id, strlen(id));
}

int response_record(struct sl_buf *out, const json_t *object, const json_t *items, int64_t ends_s)
{
	json_t *record = json_pack("{s:O, s:O, s:I}", "response", object, "items", items, "ends", (json_int_t)ends_s);
	int rc = record == NULL ? SL_ENOMEM : request_put_json(out, record);
	json_decref(record);
	return rc;
}

/* It was running when its process ended. */
static int make_failed(json_t *response)
{
	json_t *error = json_pack("{s:s, s:s}", "code", "server_error", "message",
				  "The server stopped before the response was complete.");
	if (json_object_set_new(response, "error", error) != 0 ||
	    json_object_set_new(response, "status", json_string("failed")) != 0)
		return SL_ENOMEM;
	return 0;
}

json_t *response_record_read(const uint8_t *bytes, size_t n)
{
	json_t *record = json_mem_load((const char *)bytes, n, JSON_ALLOW_NUL, NULL);
	json_t *response = json_object_get(record, "response"), *items = json_object_get(record, "items");
	json_int_t ends = json_integer_value(json_object_get(record, "ends"));
	bool well = json_is_object(response) && json_is_array(items);
	if (well && ends != 0 && clock_unix_s() > ends)
		well = make_failed(response) == 0;
	if (!well) {
		json_decref(record);
		record = NULL;
	}
	return record;
}

static struct response *of_op(struct cache_op *op)
{
	return (struct response *)((char *)op - offsetof(struct response, op));
}

/* ---- its conversation, and the prefix registry ---- */

static bool tells_well(const struct answer *a) { return a->end == ANSWER_DONE || a->end == ANSWER_STOPPED; }

static const char *member(const struct response *r, const char *key)
{
	const json_t *v = json_object_get(r->about, key);
	return json_string_value(json_is_object(v) ? json_object_get(v, "id") : v);
}

static uint32_t count_turns(const json_t *items)
{
	uint32_t n = 1;
	for (size_t i = 0; i < json_array_size(items); i++) {
		const char *role = json_string_value(json_object_get(json_array_get(items, i), "role"));
		n += role != NULL && strcmp(role, "assistant") == 0;
	}
	return n;
}

/* What the engine has computed now. */
static void note_prefix(const struct response *r)
{
	const struct answer *a = r->answer;
	const char *conversation = member(r, "conversation"), *previous = member(r, "previous_response_id");
	if (a->app->warm == NULL || !r->store || r->lost || r->not_added || !tells_well(a) || r->digest == 0)
		return;
	struct prefix_entry e = {.tenant = a->key->tenant,
				 .digest = r->digest,
				 .epoch = warm_epoch(a->app),
				 .used_s = clock_unix_s(),
				 .uses = count_turns(r->items),
				 .n_prompt = answer_usage(a).n_prompt,
				 .cleanse = r->cleanse};
	/* Of the cascade's two the one that was asked first; of variants the one that answers. */
	const char *model =
	    a->automatic || a->variant != NULL ? engine_link_model(a->app->link, a->load.model)->name : a->model;
	snprintf(e.model, sizeof e.model, "%s", model);
	snprintf(e.response, sizeof e.response, "%s", a->id);
	snprintf(e.name, sizeof e.name, "%s", conversation != NULL ? conversation : a->id);
	warm_note(a->app->warm, &e, conversation == NULL ? previous : NULL);
}

static void settled(struct response *r)
{
	note_prefix(r);
	r->answer->unkept = response_is_unkept(r);
	answer_settled(r->answer);
}

/* The stored object is "completed", but its turn was not added. */
static bool correct(struct response *r)
{
	if (!r->store || r->lost || !r->not_added || r->corrected)
		return false;
	r->corrected = true;
	return response_save(r, true) == 0;
}

static void on_taken_back(struct cache_op *op, const struct cache_result *result)
{
	(void)result; /* what can't be deleted now goes with its time */
	settled(of_op(op));
}

static void on_added(void *ctx, int what)
{
	struct response *r = ctx;
	struct answer *a = r->answer;
	r->turn = NULL;
	r->not_added = what != CONVERSATION_OK;
	if (what != CONVERSATION_GONE || !r->store) {
		if (!correct(r))
			settled(r);
		return;
	}
	/* Deleted meanwhile, and everything that was made in it. */
	struct cache_key key;
	r->lost = true;
	r->why = SL_ENOTFOUND;
	response_key(&key, a->key, a->id);
	cache_delete(a->app->t->cache, &r->op, &key, on_taken_back);
}

/* False: nothing more is to be awaited. */
static bool add_turn(struct response *r)
{
	struct answer *a = r->answer;
	if (r->turn == NULL)
		return false;
	json_t *object = tells_well(a) ? response_object(a) : NULL,
	       *items = object != NULL ? json_copy(r->items) : NULL;
	int rc = items == NULL || json_array_extend(items, json_object_get(object, "output")) != 0 ? SL_ENOMEM : 0;
	if (rc == 0)
		rc = conversation_turn_add(r->turn, items, on_added, r);
	json_decref(items);
	json_decref(object);
	if (rc != 0) {
		conversation_turn_drop(r->turn);
		r->turn = NULL;
		r->not_added = true;
	}
	return rc == 0;
}

static void on_stored(struct cache_op *op, const struct cache_result *result)
{
	struct response *r = of_op(op);
	if (result->code != 0) {
		log_warn("the response %s could not be stored: %s", r->answer->id, sl_code_name(result->code));
		r->lost = true;
		r->why = result->code;
	}
	if (r->first) {
		r->first = false;
		answer_begun(r->answer, !r->lost);
		if (cache_op_busy(&r->op)) /* it was stopped, and its end is being stored */
			return;
	}
	if ((r->last || (r->waits && response_save(r, true) != 0)) && !add_turn(r) && !correct(r))
		settled(r);
}

/* How long it may run, at most. */
static int64_t ends_s(const struct answer *a)
{
	uint64_t deadline_ms = a->key->tier->deadline_ms;
	int64_t began = a->continued != NULL ? clock_unix_s() : a->created;
	return began + (deadline_ms > 0 ? (int64_t)(deadline_ms / 1000) + 1 : LONGEST_S);
}

int response_save(struct response *r, bool last)
{
	struct answer *a = r->answer;
	struct gw_thread *t = a->app->t;
	r->waits = cache_op_busy(&r->op);
	if (r->waits)
		return 0;
	r->last = last;
	r->lost = false;
	conversation_turn_keep(r->turn);
	struct cache_key key;
	struct sl_buf record;
	buf_init(&record, MAX_RECORD);
	response_key(&key, a->key, a->id);
	json_t *object = response_object(a);
	int rc = object == NULL ? SL_ENOMEM : response_record(&record, object, r->items, last ? 0 : ends_s(a));
	json_decref(object);
	if (rc == 0)
		cache_put(t->cache, &r->op, &key, RESPONSE_VERSION, buf_data(&record), record.len,
			  t->cfg->responses.keep_ms, on_stored);
	r->lost = rc != 0;
	r->why = rc;
	buf_dispose(&record);
	return rc;
}

bool response_settle(struct response *r)
{
	/* Its place in the conversation went with the gateway that began it. */
	if (r->answer->continued != NULL && r->turn == NULL && member(r, "conversation") != NULL)
		r->not_added = true;
	if ((r->store && response_save(r, true) == 0) || add_turn(r))
		return true;
	note_prefix(r);
	r->answer->unkept = response_is_unkept(r);
	return false;
}
