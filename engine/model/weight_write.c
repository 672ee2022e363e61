/* SPDX-License-Identifier: Apache-2.0
 *
 * Data goes through one buffer of a chunk's size, in pieces that begin at multiples of it: file systems then
 * keep it in large pages, and the disk has no small writes. The file has its length from the start, so a full disk is
 * found before anything was copied. Under its own name it appears once it is on disk.
 */
#include "engine/model/weight_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

enum { MAX_PATH = 4096, SPARE_BYTES = 256 << 20 /* of the disk that stays free */ };

struct weight_writer {
	struct weight_cache_config cfg;
	struct weight_cache_key key;
	char *folder, *what;
	struct weight_piece *pieces;
	size_t n;
	pthread_t thread;
	atomic_bool give_up;
	bool written;
};

struct out {
	int fd;
	char part[MAX_PATH];
	struct weight_cache_head head;
	struct weight_cache_entry *entries;
	uint64_t *sums;
	uint8_t *chunk;
};

static int put(int fd, const void *bytes, size_t n, uint64_t at)
{
	const uint8_t *from = bytes;
	while (n > 0) {
		ssize_t got = fault_hit(FAULT_WRITE) ? (errno = EIO, -1) : pwrite(fd, from, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return SL_EIO;
		from += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* Chunk after chunk of the data; between pieces there are zeros. */
static int put_data(struct weight_writer *w, struct out *o)
{
	size_t piece = 0;
	for (uint64_t i = 0; i < o->head.n_chunks; i++) {
		uint64_t from = i * WEIGHT_CACHE_CHUNK, left = o->head.data_bytes - from;
		size_t n = left < WEIGHT_CACHE_CHUNK ? (size_t)left : WEIGHT_CACHE_CHUNK;
		if (atomic_load(&w->give_up))
			return SL_ECLOSED;
		memset(o->chunk, 0, n);
		for (;; piece++) {
			const struct weight_cache_entry *e = piece < w->n ? &o->entries[piece] : NULL;
			if (e == NULL || e->at >= from + n)
				break;
			uint64_t begin = e->at > from ? e->at : from, end = e->at + e->bytes;
			end = end < from + n ? end : from + n;
			if (begin < end)
				memcpy(o->chunk + (begin - from),
				       (const uint8_t *)w->pieces[piece].at + (begin - e->at), end - begin);
			if (e->at + e->bytes > from + n)
				break; /* continues in the next chunk */
		}
		o->sums[i] = weight_cache_chunk_sum(o->chunk, n, i);
		if (put(o->fd, o->chunk, n, o->head.data_at + from) != 0)
			return SL_EIO;
	}
	return 0;
}

static int put_heads(const struct weight_writer *w, struct out *o)
{
	struct weight_cache_head *h = &o->head;
	h->rest_sum = weight_cache_rest_sum(o->entries, o->sums, w->n, h->n_chunks);
	h->head_sum = weight_cache_head_sum(h);
	uint64_t at = sizeof *h, entries = w->n * sizeof *o->entries;
	if (put(o->fd, o->entries, entries, at) != 0 ||
	    put(o->fd, o->sums, h->n_chunks * sizeof *o->sums, at + entries) != 0)
		return SL_EIO;
	return put(o->fd, h, sizeof *h, 0);
}

static int lay_out(const struct weight_writer *w, struct out *o)
{
	uint64_t at = 0;
	o->entries = sl_zalloc_n(w->n, sizeof *o->entries);
	if (o->entries == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < w->n; i++) {
		o->entries[i] = w->pieces[i].entry;
		o->entries[i].at = at;
		at = (at + o->entries[i].bytes + WEIGHT_CACHE_ALIGN - 1) / WEIGHT_CACHE_ALIGN * WEIGHT_CACHE_ALIGN;
	}
	o->head = (struct weight_cache_head){.source = w->key.source,
					     .digest = {w->key.digest[0], w->key.digest[1]},
					     .n_entries = w->n,
					     .n_chunks = weight_cache_n_chunks(at),
					     .data_at = weight_cache_data_at(w->n, at),
					     .data_bytes = at};
	memcpy(o->head.magic, weight_cache_magic, sizeof o->head.magic);
	o->sums = sl_zalloc_n(o->head.n_chunks, sizeof *o->sums);
	o->chunk = sl_alloc(WEIGHT_CACHE_CHUNK);
	return o->sums != NULL && o->chunk != NULL ? 0 : SL_ENOMEM;
}

/* Whether a file of so many bytes may be and has room. */
static int check_room(const struct weight_writer *w, uint64_t bytes, struct sl_err *err)
{
	struct statvfs v;
	if (bytes > w->cfg.max_bytes)
		return sl_errf(err, SL_ELIMIT, "%llu MiB are more than engine.weight_cache_size",
			       (unsigned long long)(bytes >> 20));
	if (statvfs(w->folder, &v) != 0)
		return sl_errf(err, SL_EIO, "%s: %m", w->folder);
	uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	if (free_bytes < bytes || free_bytes - bytes < SPARE_BYTES)
		return sl_errf(err, SL_ELIMIT, "%s: the disk has no room for %llu MiB", w->folder,
			       (unsigned long long)(bytes >> 20));
	return 0;
}

static int create_part(const struct weight_writer *w, struct out *o, struct sl_err *err)
{
	char name[WEIGHT_CACHE_NAME];
	weight_cache_name(&w->key, name);
	if ((size_t)snprintf(o->part, sizeof o->part, "%s/%s" WEIGHT_CACHE_PART "XXXXXX", w->folder, name) >=
	    sizeof o->part)
		return sl_errf(err, SL_EIO, "%s: the path is too long", w->folder);
	o->fd = mkostemp(o->part, O_CLOEXEC);
	if (o->fd < 0)
		return sl_errf(err, SL_EIO, "%s: %m", w->folder);
	/* Unlocked it would be taken for one whose writer has died. */
	if (flock(o->fd, LOCK_EX | LOCK_NB) != 0)
		return sl_errf(err, SL_EIO, "%s: can't be locked: %m", o->part);
	if (fallocate(o->fd, 0, 0, (off_t)(o->head.data_at + o->head.data_bytes)) != 0 && errno != EOPNOTSUPP &&
	    errno != ENOSYS)
		return sl_errf(err, SL_EIO, "%s: %m", w->folder);
	return 0;
}

/* Brought to disk, then given its name. */
static int publish(const struct weight_writer *w, struct out *o, struct sl_err *err)
{
	char name[WEIGHT_CACHE_NAME], path[MAX_PATH];
	weight_cache_name(&w->key, name);
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	if (fsync(o->fd) != 0 || rename(o->part, path) != 0)
		return sl_errf(err, SL_EIO, "%s: %m", path);
	o->part[0] = '\0';
	int folder = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder >= 0) {
		(void)fsync(folder); /* without it the file may be missing after a crash, never half there */
		close(folder);
	}
	return 0;
}

static int write_file(struct weight_writer *w, struct out *o, struct sl_err *err)
{
	int rc = lay_out(w, o);
	if (rc != 0)
		return sl_errf(err, rc, "no memory");
	uint64_t bytes = o->head.data_at + o->head.data_bytes;
	if (mkdir(w->folder, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EIO, "%s: %m", w->folder);
	if ((rc = check_room(w, bytes, err)) != 0 || (rc = create_part(w, o, err)) != 0)
		return rc;
	rc = put_data(w, o);
	if (rc == 0)
		rc = put_heads(w, o);
	if (rc != 0)
		return sl_errf(err, rc, "%s: %m", w->folder);
	return publish(w, o, err);
}

static void *write_main(void *arg)
{
	struct weight_writer *w = arg;
	struct out o = {.fd = -1};
	struct sl_err err = {0};
	int rc = write_file(w, &o, &err);
	w->written = rc == 0;
	if (o.part[0] != '\0')
		(void)unlink(o.part);
	if (o.fd >= 0)
		close(o.fd);
	sl_free(o.entries);
	sl_free(o.sums);
	sl_free(o.chunk);
	if (w->written) {
		weight_cache_tidy(&w->cfg, &w->key);
		log_info("%s: its rearranged weights are kept in %s, %llu MiB", w->what, w->folder,
			 (unsigned long long)(o.head.data_bytes >> 20));
	} else if (rc != SL_ECLOSED) {
		log_warn("%s: its rearranged weights are not kept, every start makes them again: %s", w->what,
			 err.text);
	}
	return NULL;
}

static void writer_free(struct weight_writer *w)
{
	sl_free(w->folder);
	sl_free(w->what);
	sl_free(w->pieces);
	sl_free(w);
}

int weight_write_start(const struct weight_cache_config *cfg, const struct weight_cache_key *key,
		       struct weight_piece *pieces, size_t n, const char *what, struct weight_writer **out)
{
	struct weight_writer *w = sl_zalloc(sizeof *w);
	if (w == NULL) {
		sl_free(pieces);
		return SL_ENOMEM;
	}
	w->cfg = *cfg;
	w->key = *key;
	w->pieces = pieces;
	w->n = n;
	w->folder = sl_strdup(cfg->folder);
	w->what = sl_strdup(what);
	w->cfg.folder = w->folder;
	int rc = w->folder == NULL || w->what == NULL ? SL_ENOMEM : 0;
	if (rc == 0 && pthread_create(&w->thread, NULL, write_main, w) != 0)
		rc = SL_EIO;
	if (rc != 0)
		writer_free(w);
	else
		*out = w;
	return rc;
}

bool weight_write_end(struct weight_writer *w, bool give_up)
{
	if (give_up)
		atomic_store(&w->give_up, true);
	pthread_join(w->thread, NULL);
	bool written = w->written;
	writer_free(w);
	return written;
}
