/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_tree.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/hex.h"
#include "base/json/json_scan.h"
#include "base/text.h"

void hub_files_dispose(struct hub_files *f)
{
	sl_free(f->items);
	*f = (struct hub_files){.items = NULL};
}

int hub_files_add(struct hub_files *f, const struct hub_file *file)
{
	if (f->n == HUB_MAX_FILES)
		return SL_ELIMIT;
	if (f->n == f->room) {
		size_t room = f->room > 0 ? 2 * f->room : 16;
		struct hub_file *more = sl_realloc_n(f->items, room, sizeof *more);
		if (more == NULL)
			return SL_ENOMEM;
		f->items = more;
		f->room = room;
	}
	f->items[f->n++] = *file;
	return 0;
}

/* ---- the listing ---- */

struct entry {
	struct proto_str type, path, oid, lfs_oid;
	uint64_t size, lfs_size;
	bool has_lfs;
};

static void read_lfs(struct json_scan *j, struct entry *e)
{
	struct proto_str key;
	e->has_lfs = json_scan_object(j);
	while (json_scan_key(j, &key)) {
		if (json_is(key, "oid"))
			json_scan_string(j, &e->lfs_oid);
		else if (json_is(key, "size"))
			json_scan_uint(j, &e->lfs_size);
		else
			json_scan_skip(j);
	}
}

static void read_entry(struct json_scan *j, struct entry *e)
{
	struct proto_str key;
	json_scan_object(j);
	while (json_scan_key(j, &key)) {
		if (json_is(key, "type"))
			json_scan_string(j, &e->type);
		else if (json_is(key, "path"))
			json_scan_string(j, &e->path);
		else if (json_is(key, "oid"))
			json_scan_string(j, &e->oid);
		else if (json_is(key, "size"))
			json_scan_uint(j, &e->size);
		else if (json_is(key, "lfs") && json_scan_peek(j) == '{')
			read_lfs(j, e);
		else
			json_scan_skip(j);
	}
}

static bool digest_of(struct proto_str hex, size_t bytes, uint8_t *out)
{
	char text[2 * HUB_DIGEST_BYTES + 1];
	if (hex.n != 2 * bytes)
		return false;
	memcpy(text, hex.at, hex.n);
	text[hex.n] = '\0';
	return hex_get(text, out, bytes);
}

static int bad_name(struct proto_str raw, struct sl_err *err)
{
	char shown[80];
	snprintf(shown, sizeof shown, "%.*s", (int)(raw.n < 70 ? raw.n : 70), raw.at);
	text_one_line(shown, '?');
	return sl_errf(err, SL_EPROTO, "the hub lists a file with an unsafe name: \"%s\"", shown);
}

static int add_entry(const struct entry *e, struct hub_files *out, struct sl_err *err)
{
	struct hub_file f = {.size = e->has_lfs ? e->lfs_size : e->size};
	char path[6 * HUB_PATH_BYTES];
	size_t n = e->path.n < sizeof path ? json_unescape(e->path, path) : SIZE_MAX;
	enum hub_path kind = n != SIZE_MAX ? hub_path_check(path, n) : HUB_PATH_BAD;
	if (kind == HUB_PATH_BAD)
		return bad_name(e->path, err);
	if (!json_is(e->type, "file") || kind == HUB_PATH_HIDDEN)
		return 0;
	memcpy(f.path, path, n);
	f.path[n] = '\0';
	f.hash = e->has_lfs ? HUB_SHA256 : HUB_GIT_SHA1;
	if (f.size > INT64_MAX || !(e->has_lfs ? digest_of(e->lfs_oid, 32, f.digest) : digest_of(e->oid, 20, f.digest)))
		return sl_errf(err, SL_EPROTO, "the hub lists %s without a valid size and digest", f.path);
	int rc = hub_files_add(out, &f);
	return rc == 0 ? 0 : sl_errf(err, rc, "the repository has more than %d files", HUB_MAX_FILES);
}

int hub_tree_parse(const char *json, size_t n, struct hub_files *out, struct sl_err *err)
{
	struct json_scan j;
	int rc = 0;
	json_scan_init(&j, json, n);
	json_scan_array(&j);
	while (rc == 0 && json_scan_item(&j)) {
		struct entry e = {.size = 0};
		read_entry(&j, &e);
		if (j.bad == NULL)
			rc = add_entry(&e, out, err);
	}
	if (rc == 0 && !json_scan_end(&j))
		rc = sl_errf(err, SL_EPROTO, "the hub's list of files is malformed at byte %zu: %s",
			     (size_t)(j.at - j.text), j.bad != NULL ? j.bad : "more follows");
	return rc;
}

/* ---- Link: <URL>; rel="next", … ---- */

/* The end of a parameter: a ; or , outside of quotes. */
static size_t parameter_length(const char *at, size_t n)
{
	bool quoted = false;
	size_t i = 0;
	for (; i < n && (quoted || (at[i] != ';' && at[i] != ',')); i++)
		if (at[i] == '"')
			quoted = !quoted;
	return i;
}

static size_t blanks(const char *at, size_t n)
{
	size_t i = 0;
	while (i < n && (at[i] == ' ' || at[i] == '\t'))
		i++;
	return i;
}

static bool is_next(const char *at, size_t n)
{
	size_t skip = blanks(at, n);
	at += skip;
	n -= skip;
	while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
		n--;
	return (n == 10 && strncasecmp(at, "rel=\"next\"", 10) == 0) || (n == 8 && strncasecmp(at, "rel=next", 8) == 0);
}

bool hub_link_next(const char *header, size_t n, char *out, size_t size)
{
	size_t at = 0;
	while (at < n) {
		at += blanks(header + at, n - at);
		if (at == n || header[at] != '<')
			return false;
		const char *url = header + ++at, *end = memchr(url, '>', n - at);
		if (end == NULL)
			return false;
		at = (size_t)(end - header) + 1;
		bool next = false;
		while (at < n && header[at] != ',') {
			at += header[at] == ';';
			size_t length = parameter_length(header + at, n - at);
			next = next || is_next(header + at, length);
			at += length;
		}
		at += at < n;
		size_t length = (size_t)(end - url);
		if (!next)
			continue;
		if (length == 0 || length >= size || text_has_control(url, length) || memchr(url, ' ', length) != NULL)
			return false;
		memcpy(out, url, length);
		out[length] = '\0';
		return true;
	}
	return false;
}
