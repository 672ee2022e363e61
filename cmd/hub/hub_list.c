/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: of a repository, its listing page by page; of an address, one byte of the file, whose reply has the size
 * and the ETag.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "cmd/hub/hub_work.h"

enum { PAGE_MOST = 8 << 20, PAGES_MOST = 100 };

struct page {
	struct hub_work *w;
	char url[HUB_URL_BYTES];
	struct sl_buf text;
};

static int page_begin(void *ctx, const struct hub_reply *r, struct sl_err *err)
{
	struct page *p = ctx;
	(void)err, (void)r;
	buf_clear(&p->text, PAGE_MOST);
	return 0;
}

static int page_take(void *ctx, const void *bytes, size_t n, struct sl_err *err)
{
	struct page *p = ctx;
	int rc = buf_append(&p->text, bytes, n);
	return rc == 0 ? 0 : sl_errf(err, rc, "the list of files is too long");
}

static int page_once(void *ctx, struct hub_reply *r, struct sl_err *err)
{
	struct page *p = ctx;
	const struct hub_ask a = {.url = p->url, .stays = true, .begin = page_begin, .take = page_take, .ctx = p};
	return hub_net_get(&p->w->net, &a, r, err);
}

/* A next page is at the same hub; its address may be relative. */
static int go_on(struct page *p, const char *next, struct sl_err *err)
{
	char origin[HUB_URL_BYTES];
	int n;
	if (next[0] == '/' && next[1] != '/')
		n = snprintf(p->url, sizeof p->url, "%s%s", p->w->net.origin, next);
	else if (hub_origin(next, origin, sizeof origin) && strcmp(origin, p->w->net.origin) == 0)
		n = snprintf(p->url, sizeof p->url, "%s", next);
	else
		return sl_errf(err, SL_EPROTO, "the next page of the list of files is at another host: %.200s", next);
	return (size_t)n < sizeof p->url ? 0 : sl_errf(err, SL_EPROTO, "the next page's address is too long");
}

static int read_pages(struct page *p, struct hub_files *all, struct sl_err *err)
{
	struct hub_reply r;
	const uint64_t moved = 0;
	for (int i = 0; i < PAGES_MOST; i++) {
		int rc = hub_try(p->w, page_once, p, &moved, err);
		if (rc == 0)
			rc = hub_tree_parse((const char *)buf_data(&p->text), p->text.len, all, err);
		if (rc != 0)
			return rc;
		r = p->w->reply;
		if (r.commit[0] != '\0')
			snprintf(p->w->plan.commit, sizeof p->w->plan.commit, "%s", r.commit);
		if (r.next[0] == '\0')
			return 0;
		rc = go_on(p, r.next, err);
		if (rc != 0)
			return rc;
	}
	return sl_errf(err, SL_ELIMIT, "the list of files has more than %d pages", PAGES_MOST);
}

static int list_repo(struct hub_work *w, struct hub_files *picked, struct sl_err *err)
{
	const struct hub_source *s = &w->order->source;
	struct page p = {.w = w};
	struct hub_files all = {.items = NULL};
	int n = snprintf(p.url, sizeof p.url, "%s/api/models/%s/%s/tree/%s?recursive=1", w->net.base, s->owner, s->repo,
			 s->revision);
	buf_init(&p.text, PAGE_MOST);
	int rc = (size_t)n < sizeof p.url ? read_pages(&p, &all, err) : sl_errf(err, SL_EINVAL, "the name is too long");
	if (rc == 0)
		rc = hub_pick(&all, s->tag, picked, err);
	hub_files_dispose(&all);
	buf_dispose(&p.text);
	return rc;
}

/* ---- an address ---- */

struct probe {
	struct hub_work *w;
	bool answered;
	int64_t size;
};

static int probe_begin(void *ctx, const struct hub_reply *r, struct sl_err *err)
{
	struct probe *p = ctx;
	p->answered = true;
	p->size = r->status == 206 ? r->total : r->length;
	/* A server without ranges sends the whole file: one byte was enough. */
	return r->status == 206 ? 0 : sl_errf(err, SL_ECLOSED, "enough");
}

static int probe_take(void *ctx, const void *bytes, size_t n, struct sl_err *err)
{
	(void)ctx, (void)bytes;
	return n <= 1 ? 0 : sl_errf(err, SL_EPROTO, "a range of one byte has %zu", n);
}

static int probe_once(void *ctx, struct hub_reply *r, struct sl_err *err)
{
	struct probe *p = ctx;
	const struct hub_ask a = {
	    .url = p->w->order->source.url, .range = "0-0", .begin = probe_begin, .take = probe_take, .ctx = p};
	p->answered = false;
	int rc = hub_net_get(&p->w->net, &a, r, err);
	return p->answered && rc == SL_ECLOSED ? 0 : rc;
}

/* The digest: --sha256, or what the hub says of its own files. */
static void take_digest(const struct hub_work *w, struct hub_file *f)
{
	const struct hub_reply *r = &w->reply;
	if (w->order->has_digest) {
		f->hash = HUB_SHA256;
		memcpy(f->digest, w->order->digest, HUB_DIGEST_BYTES);
	} else if (strlen(r->linked_etag) == 2 * HUB_DIGEST_BYTES &&
		   hex_get(r->linked_etag, f->digest, HUB_DIGEST_BYTES)) {
		f->hash = HUB_SHA256;
	}
}

static int list_url(struct hub_work *w, struct hub_files *picked, struct sl_err *err)
{
	struct probe p = {.w = w};
	struct hub_file f = {.hash = HUB_NO_HASH};
	const uint64_t moved = 0;
	int rc = hub_try(w, probe_once, &p, &moved, err);
	if (rc == 0 && p.size < 0)
		rc = sl_errf(err, SL_EPROTO, "the server does not announce the file's size");
	if (rc == 0 && w->reply.linked_size >= 0 && w->reply.linked_size != p.size)
		rc = sl_errf(err, SL_EPROTO, "the hub says %" PRId64 " bytes, the server %" PRId64,
			     w->reply.linked_size, p.size);
	if (rc != 0)
		return rc;
	f.size = (uint64_t)p.size;
	snprintf(f.path, sizeof f.path, "%s.gguf", w->order->source.name);
	take_digest(w, &f);
	rc = hub_files_add(picked, &f);
	return rc == 0 ? 0 : sl_errf(err, rc, "no memory");
}

int hub_list(struct hub_work *w, struct sl_err *err)
{
	struct hub_files picked = {.items = NULL};
	char commit[HUB_COMMIT_BYTES];
	bool repo = w->order->source.kind == HUB_REPO;
	int rc = repo ? list_repo(w, &picked, err) : list_url(w, &picked, err);
	memcpy(commit, w->plan.commit, sizeof commit);
	if (rc == 0)
		rc = hub_plan_make(w->label, &picked, &w->plan, err);
	if (rc == 0)
		memcpy(w->plan.commit, commit, sizeof commit);
	if (rc == 0 && !repo) {
		/* Without a digest the ETag shows whether the parts still belong to the file. */
		struct hub_entry *e = &w->plan.items[0];
		snprintf(e->etag, sizeof e->etag, "%s", w->reply.etag);
	}
	hub_files_dispose(&picked);
	return rc;
}

/* ---- addresses of files ---- */

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c) != NULL;
}

/* Percent-encoding (RFC 3986, 2.1); the bytes' own meaning ends there. */
static bool put_path(const char *path, char *out, size_t size)
{
	size_t at = 0;
	for (; *path != '\0' && at + 4 < size; path++)
		at += (size_t)snprintf(out + at, size - at, is_plain(*path) ? "%c" : "%%%02X", (unsigned char)*path);
	return *path == '\0';
}

int hub_file_url(const struct hub_work *w, const struct hub_entry *e, char *out, size_t size)
{
	const struct hub_source *s = &w->order->source;
	if (s->kind == HUB_URL)
		return (size_t)snprintf(out, size, "%s", s->url) < size ? 0 : SL_ELIMIT;
	int n = snprintf(out, size, "%s/%s/%s/resolve/%s/", w->net.base, s->owner, s->repo, s->revision);
	return n > 0 && (size_t)n < size && put_path(e->file.path, out + n, size - (size_t)n) ? 0 : SL_ELIMIT;
}
