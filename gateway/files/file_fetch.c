/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/files/file_fetch.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/auth/owned_name.h"
#include "gateway/exchange/app_state.h"
#include "gateway/files/file_store.h"
#include "gateway/request/request_fields.h"

void file_refuse_gone(struct exchange *x, const char *param, const char *id)
{
	exchange_refuse(x, 404, "file_not_found", param,
			"No file with the id '%.64s': it never existed, has expired, was deleted, or is not yours.",
			id);
}

void file_refuse_store(struct exchange *x)
{
	exchange_refuse(x, 503, "store_unavailable", NULL, "The store of files is temporarily unavailable.");
}

static void next(struct file_fetch *f);

/* The record's text and name into f's file. 0, SL_ENOMEM, SL_ELIMIT. */
static int take(struct file_fetch *f, const struct cache_result *r)
{
	struct request_file *file = &f->files->at[f->i];
	const char *text;
	size_t n;
	json_t *object = file_record_read(r->bytes, r->n, &text, &n);
	if (object == NULL)
		return SL_ENOMEM;
	snprintf(file->name, sizeof file->name, "%s", json_string_value(json_object_get(object, "filename")));
	json_decref(object);
	if (n > REQUEST_MAX_PROMPT - f->bytes)
		return SL_ELIMIT;
	file->text = sl_strndup(text, n);
	file->n = n;
	f->bytes += n;
	return file->text != NULL ? 0 : SL_ENOMEM;
}

static void on_read(struct cache_op *op, const struct cache_result *r)
{
	struct file_fetch *f = (struct file_fetch *)(void *)((char *)op - offsetof(struct file_fetch, op));
	const struct request_file *file = &f->files->at[f->i];
	if (r->code == SL_ENOTFOUND) {
		file_refuse_gone(f->x, file->param, file->id);
		return;
	}
	if (r->code != 0) {
		file_refuse_store(f->x);
		return;
	}
	int rc = take(f, r);
	if (rc == SL_ELIMIT)
		exchange_refuse(f->x, 400, "invalid_value", file->param,
				"The files that the request names have more than %d bytes.", (int)REQUEST_MAX_PROMPT);
	else if (rc != 0)
		exchange_reply_no_memory(f->x);
	else
		next(f);
}

static void next(struct file_fetch *f)
{
	while (f->i < f->files->n && f->files->at[f->i].text != NULL)
		f->i++;
	if (f->i == f->files->n) {
		f->done(f);
		return;
	}
	const struct request_file *file = &f->files->at[f->i];
	if (!owned_name_is_of(f->x->key, file->id)) {
		file_refuse_gone(f->x, file->param, file->id);
		return;
	}
	const struct file_ref ref = {f->x->app->t->cache, f->x->key->tenant, file->id};
	file_store_get(&ref, &f->op, on_read);
}

void file_fetch_start(struct file_fetch *f)
{
	f->i = 0;
	f->bytes = 0;
	next(f);
}

void file_fetch_cancel(struct file_fetch *f) { cache_cancel(&f->op); }
