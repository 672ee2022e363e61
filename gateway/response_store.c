/* SPDX-License-Identifier: Apache-2.0
 *
 * Responses in the store, under the tenant's key. A record holds the whole conversation before its
 * answer, so that going on from it is one read, however long the chain.
 *
 * A response in the background is stored when it begins, too: who asks another gateway, or asks after
 * a restart, is told what became of it.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/json_mem.h"
#include "gateway/response.h"

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

static void on_stored(struct cache_op *op, const struct cache_result *result)
{
	struct response *r = of_op(op);
	if (result->code != 0) {
		log_warn("the response %s could not be stored: %s", r->answer->id, sl_code_name(result->code));
		r->lost = true;
	}
	if (r->last || (r->waits && response_save(r, true) != 0))
		answer_settled(r->answer);
}

/* How long it may run, at most. */
static int64_t ends_s(const struct answer *a)
{
	uint64_t deadline_ms = a->key->tier->deadline_ms;
	int64_t began = a->again != NULL ? clock_unix_s() : a->created;
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
	buf_dispose(&record);
	return rc;
}
