/* SPDX-License-Identifier: Apache-2.0
 *
 * One file. It is received into PATH.part, digested on its way, and gets its name when size and digest are right. A
 * part of an earlier attempt is digested first and continued (Range, with If-Range where the server gave a strong
 * ETag); a server that sends all of it again starts it over. When a continued file has the wrong digest, it is fetched
 * once more from its beginning: power loss can leave bytes in a part that were never written.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cmd/hub/hub_digest.h"
#include "cmd/hub/hub_work.h"

enum { PIECE = 1 << 20 };

struct fetch {
	struct hub_work *w;
	struct hub_entry *e;
	char part[HUB_PATH_BYTES + 8], url[HUB_URL_BYTES];
	int fd;
	uint64_t have; /* bytes of the part, all of them digested */
	struct hub_digest digest;
};

static int system_error(struct sl_err *err)
{
	int e = errno;
	if (e == ENOSPC || e == EDQUOT)
		return sl_errf(err, SL_ELIMIT, "the disk is full; what was received is kept for the next pull");
	return sl_errf(err, SL_EIO, "can't write: %s", strerror(e));
}

/* ---- the part ---- */

static int start_over(struct fetch *f, struct sl_err *err)
{
	f->w->done -= f->have;
	f->have = 0;
	if (ftruncate(f->fd, 0) != 0 || lseek(f->fd, 0, SEEK_SET) < 0)
		return system_error(err);
	int rc = hub_digest_begin(&f->digest, f->e->file.hash, f->e->file.size);
	return rc == 0 ? 0 : sl_errf(err, rc, "no memory");
}

/* Digests what an earlier process received. Leaves the offset at its end. */
static int read_part(struct fetch *f, struct sl_err *err)
{
	static uint8_t piece[PIECE];
	int rc = hub_digest_begin(&f->digest, f->e->file.hash, f->e->file.size);
	if (rc != 0)
		return sl_errf(err, rc, "no memory");
	for (uint64_t at = 0; rc == 0 && at < f->have;) {
		ssize_t n = read(f->fd, piece, f->have - at < PIECE ? (size_t)(f->have - at) : PIECE);
		if (n <= 0)
			return sl_errf(err, SL_EIO, "can't read what was received: %s",
				       n < 0 ? strerror(errno) : "it became shorter");
		rc = hub_digest_add(&f->digest, piece, (size_t)n);
		at += (uint64_t)n;
		hub_note_send(f->w, HUB_NOTE_CHECKING, at, f->have, f->e->local);
	}
	return rc;
}

static int open_part(struct fetch *f, struct sl_err *err)
{
	struct stat st;
	int rc = hub_make_parents(f->w->staging, f->e->local);
	f->fd = rc == 0 ? hub_open_below(f->w->staging, f->part, O_RDWR | O_CREAT) : rc;
	if (f->fd < 0) {
		errno = -f->fd;
		return system_error(err);
	}
	if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
		return sl_errf(err, SL_EIO, "%s is not a file", f->part);
	f->have = (uint64_t)st.st_size;
	if (f->have <= f->e->file.size)
		return read_part(f, err);
	f->w->done += f->have - f->e->file.size; /* it was counted with its proper size */
	return start_over(f, err);
}

/* ---- receiving ---- */

/* The announced size is the plan's, or nothing is received. */
static int fetch_begin(void *ctx, const struct hub_reply *r, struct sl_err *err)
{
	struct fetch *f = ctx;
	uint64_t size = f->e->file.size;
	if (r->status == 206 && (r->start < 0 || (uint64_t)r->start != f->have))
		return sl_errf(err, SL_EPROTO, "the server sends another range than the one requested");
	int64_t announced = r->status == 206 ? r->total : r->length;
	if (announced >= 0 && (uint64_t)announced != size)
		return sl_errf(err, SL_EPROTO, "wrong length: %" PRId64 " bytes instead of %" PRIu64, announced, size);
	if (r->status == 200 && f->have > 0) {
		int rc = start_over(f, err);
		if (rc != 0)
			return rc;
	}
	if (strcmp(f->e->etag, r->etag) == 0)
		return 0;
	memcpy(f->e->etag, r->etag, sizeof f->e->etag);
	int rc = hub_plan_write(f->w->staging, HUB_JOURNAL, &f->w->plan);
	errno = -rc;
	return rc == 0 ? 0 : system_error(err);
}

static int fetch_take(void *ctx, const void *bytes, size_t n, struct sl_err *err)
{
	struct fetch *f = ctx;
	if (n > f->e->file.size - f->have)
		return sl_errf(err, SL_EPROTO, "wrong length: more than the announced %" PRIu64 " bytes",
			       f->e->file.size);
	if (file_write(f->fd, bytes, n) != 0) {
		int rc = system_error(err);
		(void)ftruncate(f->fd, (off_t)f->have); /* of a short write */
		return rc;
	}
	f->have += n;
	f->w->done += n;
	f->w->fetched += n;
	hub_note_send(f->w, HUB_NOTE_PROGRESS, f->w->done, f->w->plan.bytes, f->e->local);
	return hub_digest_add(&f->digest, bytes, n) == 0 ? 0 : sl_errf(err, SL_ENOMEM, "no memory");
}

static int fetch_once(void *ctx, struct hub_reply *r, struct sl_err *err)
{
	struct fetch *f = ctx;
	struct hub_ask a = {.url = f->url, .begin = fetch_begin, .take = fetch_take, .ctx = f};
	if (f->have > 0) {
		snprintf(a.range, sizeof a.range, "%" PRIu64 "-", f->have);
		a.if_range = f->e->file.hash == HUB_NO_HASH ? f->e->etag : NULL;
	}
	int rc = hub_net_get(&f->w->net, &a, r, err);
	if (rc == 0 && f->have < f->e->file.size)
		rc = sl_errf(err, SL_EAGAIN, "the connection was closed early");
	if (f->w->plan.commit[0] == '\0')
		memcpy(f->w->plan.commit, r->commit, sizeof r->commit);
	return rc;
}

static int receive(struct fetch *f, struct sl_err *err)
{
	if (f->have == f->e->file.size)
		return 0;
	return hub_try(f->w, fetch_once, f, &f->w->fetched, err);
}

/* ---- the end ---- */

static int verify(struct fetch *f, bool *right, struct sl_err *err)
{
	uint8_t digest[HUB_DIGEST_BYTES];
	int rc = hub_digest_end(&f->digest, digest);
	if (rc != 0)
		return sl_errf(err, rc, "no memory");
	size_t n = f->e->file.hash == HUB_GIT_SHA1 ? 20 : HUB_DIGEST_BYTES;
	*right = f->e->file.hash == HUB_NO_HASH || memcmp(digest, f->e->file.digest, n) == 0;
	return 0;
}

static int receive_verified(struct fetch *f, struct sl_err *err)
{
	for (int i = 0; i < 2; i++) {
		bool right = false, continued = f->have > 0;
		int rc = receive(f, err);
		if (rc == 0)
			rc = verify(f, &right, err);
		if (rc != 0 || right)
			return rc;
		if (!continued)
			break;
		rc = start_over(f, err);
		if (rc != 0)
			return rc;
	}
	return sl_errf(err, SL_EPROTO, "wrong digest: what was received is not the file that the hub lists");
}

/* Flushes the folder that holds the name. Not every file system supports that. */
static void sync_folder(int staging, const char *path)
{
	char folder[HUB_PATH_BYTES];
	file_folder(path, folder, sizeof folder);
	int fd = hub_open_below(staging, folder, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

static int finish(struct fetch *f, struct sl_err *err)
{
	int staging = f->w->staging;
	if (fsync(f->fd) != 0 || renameat(staging, f->part, staging, f->e->local) != 0)
		return system_error(err);
	sync_folder(staging, f->e->local);
	return 0;
}

static bool is_complete(const struct fetch *f)
{
	struct stat st;
	return fstatat(f->w->staging, f->e->local, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == f->e->file.size;
}

int hub_fetch(struct hub_work *w, struct hub_entry *e, struct sl_err *err)
{
	struct fetch f = {.w = w, .e = e, .fd = -1};
	struct sl_err why = {0};
	snprintf(f.part, sizeof f.part, "%s.part", e->local);
	if (is_complete(&f))
		return 0;
	int rc = hub_file_url(w, e, f.url, sizeof f.url);
	if (rc != 0)
		return sl_errf(err, rc, "%s: the address is too long", e->local);
	rc = open_part(&f, &why);
	if (rc == 0)
		rc = receive_verified(&f, &why);
	if (rc == 0)
		rc = finish(&f, &why);
	hub_digest_dispose(&f.digest);
	if (f.fd >= 0)
		close(f.fd);
	return rc == 0 ? 0 : sl_errf(err, rc, "%.150s: %.300s", e->local, why.text);
}
