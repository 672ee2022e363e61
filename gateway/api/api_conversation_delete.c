/* SPDX-License-Identifier: Apache-2.0
 *
 * DELETE /v1/conversations/ID deletes the responses made in the conversation with their event streams, the
 * conversation itself and its entry in the prefix registry. The conversation is deleted after its responses, so that an
 * interrupted deletion can be repeated; then the responses again, since one may have ended in between.
 *
 * The engine then erases what it has stored of the tenant's texts on disk. Pages of a conversation begin like those of
 * others, so it can't tell them apart: all of the tenant's go, and are computed again when they are needed.
 *
 * A response in progress is stopped if it has a log. When it finds the conversation deleted it removes what it stored;
 * if it was added just before, the second round deletes it.
 */
#include <string.h>

#include "base/alloc.h"
#include "gateway/api/api_request.h"
#include "gateway/conversation/conversation.h"
#include "gateway/api/handlers.h"
#include "gateway/sharing/prefix_registry.h"
#include "gateway/replay/replay_store.h"
#include "gateway/answer/response.h"

struct removal {
	struct exchange *x;
	char id[CONVERSATION_ID_BYTES];
	struct cache_op op;
	char *names; /* of its responses, one per line; owned */
	size_t n_names, at;
	bool last; /* the conversation is deleted: the second round */
	uint64_t tenant;
};

static struct removal *of_op(struct cache_op *op)
{
	return (struct removal *)(void *)((char *)op - offsetof(struct removal, op));
}

static void on_close(struct exchange *x)
{
	struct removal *r = x->state;
	cache_cancel(&r->op);
	sl_free(r->names);
	sl_free(r);
}

static struct conversation_ref ref_of(const struct removal *r)
{
	return (struct conversation_ref){r->x->app->t->cache, r->tenant, r->id};
}

static bool check(struct removal *r, const struct cache_result *result, struct conversation_answer *a)
{
	conversation_answer_read(result, a);
	if (a->what != CONVERSATION_OK)
		conversation_refuse(r->x, r->id, "conversation_id", a);
	return a->what == CONVERSATION_OK;
}

static bool take_names(struct removal *r, const char *names, size_t n)
{
	sl_free(r->names);
	r->at = 0;
	r->n_names = n;
	r->names = sl_strndup(names, n);
	if (r->names == NULL)
		exchange_reply_no_memory(r->x);
	return r->names != NULL;
}

static void delete_next(struct removal *r);

static void on_gone(struct cache_op *op, const struct cache_result *result)
{
	struct removal *r = of_op(op);
	struct conversation_answer a;
	if (!check(r, result, &a))
		return;
	r->last = true;
	/* The result has the names where a read has the document. */
	if (take_names(r, a.doc, a.n_doc))
		delete_next(r);
}

static void on_forgotten(struct cache_op *op, const struct cache_result *result)
{
	struct removal *r = of_op(op);
	engine_link_erase(r->x->app->link, r->tenant);
	if (result->code < 0)
		conversation_refuse(r->x, r->id, NULL, &(struct conversation_answer){.what = result->code});
	else
		exchange_reply_json(
		    r->x, json_pack("{s:s, s:s, s:b}", "id", r->id, "object", "conversation.deleted", "deleted", 1));
}

static void on_response(struct cache_op *op, const struct cache_result *result)
{
	struct removal *r = of_op(op);
	if (result->code < 0)
		conversation_refuse(r->x, r->id, NULL, &(struct conversation_answer){.what = result->code});
	else
		delete_next(r);
}

static void forget_log(struct removal *r, const char *name)
{
	struct replay_log *log = replay_find(r->x->app->replay, name, r->tenant);
	if (log != NULL) {
		replay_stop(log);
		replay_delete(log);
		replay_unref(log);
	}
	replay_store_forget(r->x->app, name, r->tenant);
}

static void delete_next(struct removal *r)
{
	struct cache_client *cache = r->x->app->t->cache;
	struct cache_key key;
	char *end = r->at < r->n_names ? memchr(r->names + r->at, '\n', r->n_names - r->at) : NULL;
	if (end != NULL) {
		char *name = r->names + r->at;
		*end = '\0';
		r->at = (size_t)(end - r->names) + 1;
		forget_log(r, name);
		response_key(&key, r->x->key, name);
		cache_delete(cache, &r->op, &key, on_response);
	} else if (r->last) {
		prefix_forget(cache, &r->op, r->tenant, r->id, on_forgotten);
	} else {
		struct conversation_ref c = ref_of(r);
		conversation_forget(&c, &r->op, on_gone);
	}
}

static void on_read(struct cache_op *op, const struct cache_result *result)
{
	struct removal *r = of_op(op);
	struct conversation_answer a;
	if (check(r, result, &a) && take_names(r, a.made, a.n_made))
		delete_next(r);
}

void api_conversation_delete(struct exchange *x)
{
	struct removal *r = exchange_own(x, sizeof *r, on_close);
	if (r == NULL)
		return;
	r->x = x;
	r->tenant = x->key->tenant;
	if (!api_conversation_on_path(x, r->id))
		return;
	struct conversation_ref c = ref_of(r);
	conversation_ask(&c, &r->op, on_read);
}
