/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json/json_depth.h"
#include "cmd/hub/hub_folder.h"

enum { JOURNAL_MOST = 8 << 20, JOURNAL_DEPTH = 4 };

void hub_plan_dispose(struct hub_plan *p)
{
	sl_free(p->items);
	*p = (struct hub_plan){.items = NULL};
}

static bool has_local(const struct hub_plan *p, const char *local)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->items[i].local, local) == 0)
			return true;
	return false;
}

int hub_plan_make(const char *source, const struct hub_files *files, struct hub_plan *out, struct sl_err *err)
{
	*out = (struct hub_plan){.items = sl_zalloc_n(files->n, sizeof *out->items)};
	if (out->items == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	snprintf(out->source, sizeof out->source, "%s", source);
	for (size_t i = 0; i < files->n; i++) {
		struct hub_entry *e = &out->items[out->n];
		const char *local = hub_pick_local(&files->items[i]);
		bool overflow = __builtin_add_overflow(out->bytes, files->items[i].size, &out->bytes);
		if (has_local(out, local) || overflow) {
			hub_plan_dispose(out);
			return sl_errf(err, SL_EPROTO, "the hub lists %s twice, or impossible sizes", local);
		}
		e->file = files->items[i];
		snprintf(e->local, sizeof e->local, "%s", local);
		out->n++;
	}
	return 0;
}

static bool same_content(const struct hub_entry *a, const struct hub_entry *b)
{
	return strcmp(a->local, b->local) == 0 && a->file.size == b->file.size && a->file.hash == b->file.hash &&
	       memcmp(a->file.digest, b->file.digest, HUB_DIGEST_BYTES) == 0;
}

const struct hub_entry *hub_plan_find(const struct hub_plan *p, const struct hub_entry *e)
{
	for (size_t i = 0; i < p->n; i++)
		if (same_content(&p->items[i], e))
			return &p->items[i];
	return NULL;
}

bool hub_plan_equal(const struct hub_plan *a, const struct hub_plan *b)
{
	bool equal = a->n == b->n && strcmp(a->source, b->source) == 0;
	for (size_t i = 0; equal && i < a->n; i++)
		equal = hub_plan_find(b, &a->items[i]) != NULL && a->items[i].file.hash != HUB_NO_HASH;
	return equal;
}

/* ---- as text ---- */

static const char *const hash_names[] = {"none", "sha256", "git-sha1"};

static json_t *entry_json(const struct hub_entry *e)
{
	char digest[2 * HUB_DIGEST_BYTES + 1];
	hex_put(e->file.digest, HUB_DIGEST_BYTES, digest);
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "path", e->file.path, "local", e->local, "size",
			 (json_int_t)e->file.size, "hash", hash_names[e->file.hash], "digest", digest, "etag", e->etag);
}

static json_t *plan_json(const struct hub_plan *p)
{
	json_t *files = json_array();
	for (size_t i = 0; i < p->n; i++)
		json_array_append_new(files, entry_json(&p->items[i]));
	return json_pack("{s:s, s:s, s:o}", "source", p->source, "commit", p->commit, "files", files);
}

int hub_plan_write(int dir, const char *name, const struct hub_plan *p)
{
	char aside[64];
	json_t *o = plan_json(p);
	char *text = o != NULL ? json_dumps(o, JSON_INDENT(1)) : NULL;
	int rc = text != NULL ? 0 : -ENOMEM, fd = -1;
	snprintf(aside, sizeof aside, "%s.new", name);
	if (rc == 0) {
		fd = hub_open_below(dir, aside, O_WRONLY | O_CREAT | O_TRUNC);
		rc = fd < 0 ? fd : 0;
	}
	if (rc == 0 &&
	    (file_write(fd, text, strlen(text)) != 0 || fsync(fd) != 0 || renameat(dir, aside, dir, name) != 0))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (rc != 0)
		unlinkat(dir, aside, 0);
	free(text);
	json_decref(o);
	return rc;
}

/* A text of o that fits; it is never NULL in what was written here. */
static bool get_text(const json_t *o, const char *key, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(o, key));
	return text != NULL && (size_t)snprintf(out, size, "%s", text) < size;
}

static bool read_entry(const json_t *o, struct hub_entry *e)
{
	char digest[2 * HUB_DIGEST_BYTES + 1], hash[16];
	json_int_t size = json_integer_value(json_object_get(o, "size"));
	if (!get_text(o, "path", e->file.path, sizeof e->file.path) ||
	    !get_text(o, "local", e->local, sizeof e->local) || !get_text(o, "etag", e->etag, sizeof e->etag) ||
	    !get_text(o, "digest", digest, sizeof digest) || !get_text(o, "hash", hash, sizeof hash) || size < 0 ||
	    !hex_get(digest, e->file.digest, HUB_DIGEST_BYTES))
		return false;
	e->file.size = (uint64_t)size;
	for (int i = 0; i < 3; i++)
		if (strcmp(hash, hash_names[i]) == 0)
			e->file.hash = (enum hub_hash)i;
	return hub_path_check(e->local, strlen(e->local)) == HUB_PATH_GOOD;
}

static int read_plan(const json_t *o, struct hub_plan *out)
{
	const json_t *files = json_object_get(o, "files");
	size_t n = json_array_size(files);
	*out = (struct hub_plan){.n = n};
	if (n > HUB_MAX_FILES || !get_text(o, "source", out->source, sizeof out->source) ||
	    !get_text(o, "commit", out->commit, sizeof out->commit))
		return SL_EINVAL;
	out->items = sl_zalloc_n(n, sizeof *out->items);
	int rc = out->items != NULL ? 0 : SL_ENOMEM;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = read_entry(json_array_get(files, i), &out->items[i]) ? 0 : SL_EINVAL;
		if (__builtin_add_overflow(out->bytes, out->items[i].file.size, &out->bytes))
			rc = SL_EINVAL;
	}
	if (rc != 0)
		hub_plan_dispose(out);
	return rc;
}

int hub_plan_read(int dir, const char *name, struct hub_plan *out)
{
	struct sl_buf text;
	json_error_t why;
	json_t *o = NULL;
	int fd = hub_open_below(dir, name, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return fd == -ENOENT ? SL_ENOTFOUND : SL_EIO;
	buf_init(&text, JOURNAL_MOST + (64 << 10));
	int rc = file_read_fd(fd, JOURNAL_MOST, &text, NULL);
	close(fd);
	const char *at = (const char *)buf_data(&text);
	if (rc == 0 && text.len > 0 && !json_deeper_than(at, text.len, JOURNAL_DEPTH))
		o = json_loadb(at, text.len, 0, &why);
	if (rc == 0)
		rc = o != NULL ? read_plan(o, out) : SL_EINVAL;
	json_decref(o);
	buf_dispose(&text);
	return rc;
}
