/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/files/files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/auth/owned_name.h"
#include "gateway/conversation/item_page.h"
#include "gateway/exchange/app_state.h"
#include "gateway/files/file_fetch.h"
#include "gateway/files/file_store.h"
#include "gateway/files/upload.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/object_list.h"
#include "gateway/request/query.h"

static const char id_prefix[] = "file-";

struct call {
	struct exchange *x;
	struct cache_op op;
	char id[FILE_ID_BYTES];
	json_t *object; /* of a new one; owned */
	struct item_page page;
	char purpose[32]; /* of a list; "": any */
};

static void on_close(struct exchange *x)
{
	struct call *c = x->state;
	cache_cancel(&c->op);
	json_decref(c->object);
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

/* The segment behind /v1/files/. False: it is too long for an id. */
static bool id_of_path(const char *path, char id[FILE_ID_BYTES])
{
	path += sizeof "/v1/files/" - 1; /* each of these routes begins with it */
	size_t n = strcspn(path, "/");
	if (n >= FILE_ID_BYTES)
		return false;
	memcpy(id, path, n);
	id[n] = '\0';
	return true;
}

/* Of the file in the path. NULL with x answered. */
static struct call *call_on_path(struct exchange *x)
{
	struct call *c = call_create(x);
	if (c == NULL)
		return NULL;
	if (id_of_path(http_request(x->stream)->path, c->id) && owned_name_is_of(x->key, c->id))
		return c;
	file_refuse_gone(x, "file_id", c->id);
	return NULL;
}

static struct file_ref ref_of(const struct call *c)
{
	return (struct file_ref){c->x->app->t->cache, c->x->key->tenant, c->id};
}

static struct call *of_op(struct cache_op *op)
{
	return (struct call *)(void *)((char *)op - offsetof(struct call, op));
}

/* ---- a new one ---- */

static void refuse_limit(struct call *c, int what)
{
	const struct gw_files *l = &c->x->app->t->cfg->files;
	if (what == FILE_TOO_MANY)
		exchange_refuse(c->x, 400, "too_many_files", "file",
				"You have the maximum of %lld files (gateway.files.per_tenant). Please delete some.",
				(long long)l->per_tenant);
	else if (what == FILE_TOO_LARGE)
		exchange_refuse(c->x, 400, "too_many_files", "file",
				"Your files would exceed %llu bytes in total (gateway.files.tenant_bytes). Please "
				"delete some.",
				(unsigned long long)l->tenant_bytes);
	else if (what == SL_ELIMIT)
		exchange_refuse(c->x, 413, "request_too_large", "file",
				"The file is larger than the store's values may be (cache.value_bytes).");
	else
		file_refuse_store(c->x);
}

static void on_saved(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	const char *text;
	size_t n;
	int what = file_outcome_of(r, &text, &n);
	if (what == FILE_OK)
		exchange_reply_json(c->x, json_incref(c->object));
	else
		refuse_limit(c, what);
}

void files_create(struct exchange *x)
{
	const struct gw_files *l = &x->app->t->cfg->files;
	struct upload u;
	struct request_error e;
	struct call *c = call_create(x);
	if (c == NULL)
		return;
	if (upload_read(http_header(http_request(x->stream), "content-type"), exchange_body(x), x->body.len, &u, &e) !=
	    0) {
		exchange_refuse(x, 400, e.code, e.param, "%s", e.message);
		return;
	}
	if (u.file.n > l->bytes) {
		exchange_refuse(x, 413, "request_too_large", "file",
				"The file has %zu bytes; the limit is %llu (gateway.files.bytes).", u.file.n,
				(unsigned long long)l->bytes);
		return;
	}
	memcpy(c->id, id_prefix, sizeof id_prefix);
	uint64_t keep_ms = u.keep_s > 0 ? u.keep_s * 1000 : l->keep_ms;
	json_int_t now = clock_unix_s(), until = now + (json_int_t)(keep_ms / 1000);
	if (owned_name(x->key, c->id + sizeof id_prefix - 1))
		c->object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s}", "id", c->id, "object", "file",
				      "bytes", (json_int_t)u.file.n, "created_at", now, "expires_at", until, "filename",
				      u.file.filename, "purpose", u.purpose, "status", "processed");
	const struct file_ref ref = ref_of(c);
	const struct file_new new = {c->object, u.file.bytes, u.file.n, keep_ms};
	if (c->object == NULL || file_store_put(&ref, l, &c->op, &new, on_saved) != 0)
		exchange_reply_no_memory(x);
	buf_clear(&x->body, 0);
}

/* ---- one ---- */

/* Its object, the caller's, and its text. NULL with the call answered. */
static json_t *record_of(struct call *c, const struct cache_result *r, const char **text, size_t *n)
{
	json_t *object = NULL;
	if (r->code == SL_ENOTFOUND)
		file_refuse_gone(c->x, "file_id", c->id);
	else if (r->code != 0)
		file_refuse_store(c->x);
	else if ((object = file_record_read(r->bytes, r->n, text, n)) == NULL)
		exchange_reply_no_memory(c->x);
	return object;
}

static void on_got(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	const char *text;
	size_t n;
	json_t *object = record_of(c, r, &text, &n);
	if (object != NULL)
		exchange_reply_json(c->x, object);
}

void files_get(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c == NULL)
		return;
	const struct file_ref ref = ref_of(c);
	file_store_get(&ref, &c->op, on_got);
}

/* No browser may show it as a page of this origin. */
static void on_content(struct cache_op *op, const struct cache_result *r)
{
	static const struct http_field fields[] = {{"cache-control", "no-store"},
						   {"content-disposition", "attachment"},
						   {"x-content-type-options", "nosniff"}};
	struct call *c = of_op(op);
	const char *text;
	size_t n;
	json_t *object = record_of(c, r, &text, &n);
	if (object != NULL)
		exchange_reply(c->x, 200, "text/plain; charset=utf-8", fields, 3, text, n);
	json_decref(object);
}

void files_content(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c == NULL)
		return;
	const struct file_ref ref = ref_of(c);
	file_store_get(&ref, &c->op, on_content);
}

/* The engine's pages of the text go, too: as of a conversation that is deleted, all of the tenant's on disk. */
static void on_deleted(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	const char *text;
	size_t n;
	int what = file_outcome_of(r, &text, &n);
	if (what == FILE_GONE) {
		file_refuse_gone(c->x, "file_id", c->id);
	} else if (what != FILE_OK) {
		file_refuse_store(c->x);
	} else {
		engine_link_erase(c->x->app->link, c->x->key->tenant);
		exchange_reply_json(c->x, json_pack("{s:s, s:s, s:b}", "id", c->id, "object", "file", "deleted", 1));
	}
}

void files_delete(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c == NULL)
		return;
	const struct file_ref ref = ref_of(c);
	file_store_delete(&ref, &c->op, on_deleted);
}

/* ---- all of them ---- */

static bool is_listed(const json_t *object, const char *purpose)
{
	const char *own = json_string_value(json_object_get(object, "purpose"));
	return json_is_string(json_object_get(object, "id")) &&
	       (purpose[0] == '\0' || (own != NULL && strcmp(own, purpose) == 0));
}

/* ctx: the purpose. */
static int listed(void *ctx, const char *line, size_t n, json_t **out)
{
	json_t *object = json_mem_load(line, n, 0, NULL);
	*out = NULL;
	if (object == NULL)
		return SL_ENOMEM;
	if (is_listed(object, ctx))
		*out = object;
	else
		json_decref(object);
	return 0;
}

static void on_listed(struct cache_op *op, const struct cache_result *r)
{
	struct call *c = of_op(op);
	const char *lines;
	size_t n;
	if (file_outcome_of(r, &lines, &n) != FILE_OK) {
		file_refuse_store(c->x);
		return;
	}
	json_t *list = object_list(lines, n, listed, c->purpose);
	item_page_reply(c->x, list, &c->page);
	json_decref(list);
}

/* Browser tokens share their key's tenant, as anonymous clients of an address do: an id is all that reading needs. */
static bool may_list(struct exchange *x)
{
	return x->key->kind == AUTH_CONFIGURED || x->key->kind == AUTH_STORED ||
	       exchange_refuse(x, 403, "insufficient_permissions", NULL, "Only an API key may list the files.");
}

void files_list(struct exchange *x)
{
	if (!may_list(x))
		return;
	struct call *c = call_create(x);
	if (c == NULL || !item_page_read(x, &c->page))
		return;
	if (query_get(http_request(x->stream)->query, "purpose", c->purpose, sizeof c->purpose) < 0)
		page_bad_query(x, "purpose", "a purpose of files");
	else
		file_store_list(x->app->t->cache, &c->op, x->key->tenant, on_listed);
}
