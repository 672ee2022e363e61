/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and tidying. Checksums are of chunks, so that several threads compare them; doing so also brings
 * the pages into this process's tables, in large ones where the file system has them (a file written in large
 * pieces, mapped at a multiple of their size): then decoding from the mapping is as fast as from memory of
 * the process's own.
 *
 * Chunks are brought in by madvise before they are read, so that a page the disk can't give is an error here and
 * not a signal. After that the mapping is guarded like the model's own (map_file.h).
 */
#include "engine/model/weight_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { MAX_THREADS = 16, MAX_PATH = 4096, MAX_FILES = 4096 };

const char weight_cache_magic[16] = "sluice weights1";

/* ---- the form ---- */

uint64_t weight_cache_n_chunks(uint64_t data_bytes)
{
	return data_bytes / WEIGHT_CACHE_CHUNK + (data_bytes % WEIGHT_CACHE_CHUNK != 0);
}

uint64_t weight_cache_data_at(uint64_t n_entries, uint64_t data_bytes)
{
	uint64_t heads = sizeof(struct weight_cache_head) + n_entries * sizeof(struct weight_cache_entry) +
			 weight_cache_n_chunks(data_bytes) * sizeof(uint64_t);
	uint64_t align = data_bytes >= 8 * (uint64_t)WEIGHT_CACHE_HUGE ? WEIGHT_CACHE_HUGE : 4096;
	return (heads + align - 1) / align * align;
}

uint64_t weight_cache_chunk_sum(const void *chunk, size_t bytes, uint64_t index)
{
	return XXH3_64bits_withSeed(chunk, bytes, index);
}

uint64_t weight_cache_rest_sum(const struct weight_cache_entry *entries, const uint64_t *sums, uint64_t n_entries,
			       uint64_t n_chunks)
{
	uint64_t first = XXH3_64bits(entries, n_entries * sizeof *entries);
	return XXH3_64bits_withSeed(sums, n_chunks * sizeof *sums, first);
}

uint64_t weight_cache_head_sum(const struct weight_cache_head *h)
{
	return XXH3_64bits(h, offsetof(struct weight_cache_head, head_sum));
}

void weight_cache_name(const struct weight_cache_key *key, char out[WEIGHT_CACHE_NAME])
{
	snprintf(out, WEIGHT_CACHE_NAME, "%016llx-%016llx%016llx" WEIGHT_CACHE_SUFFIX, (unsigned long long)key->source,
		 (unsigned long long)key->digest[0], (unsigned long long)key->digest[1]);
}

/* ---- checking ---- */

static int check_head(struct weight_cache *c, const struct weight_cache_key *key)
{
	const struct weight_cache_head *h = c->head = (const void *)c->map.at;
	uint64_t bytes = c->map.bytes;
	if (bytes < sizeof *h || memcmp(h->magic, weight_cache_magic, sizeof h->magic) != 0 ||
	    h->head_sum != weight_cache_head_sum(h))
		return SL_EINVAL;
	if (h->source != key->source || h->digest[0] != key->digest[0] || h->digest[1] != key->digest[1])
		return SL_EINVAL;
	if (h->n_entries < 1 || h->n_entries > WEIGHT_CACHE_MAX_ENTRIES || h->data_bytes > bytes ||
	    h->n_chunks != weight_cache_n_chunks(h->data_bytes) ||
	    h->data_at != weight_cache_data_at(h->n_entries, h->data_bytes) || h->data_at != bytes - h->data_bytes)
		return SL_EINVAL;
	c->entries = (const void *)(c->map.at + sizeof *h);
	c->data = c->map.at + h->data_at;
	const uint64_t *sums = (const void *)(c->entries + h->n_entries);
	if (h->rest_sum != weight_cache_rest_sum(c->entries, sums, h->n_entries, h->n_chunks))
		return SL_EINVAL;
	for (uint64_t i = 0; i < h->n_entries; i++) {
		const struct weight_cache_entry *e = &c->entries[i];
		if (e->at % WEIGHT_CACHE_ALIGN != 0 || e->at > h->data_bytes || e->bytes > h->data_bytes - e->at)
			return SL_EINVAL;
	}
	return 0;
}

struct check {
	pthread_t reports; /* the thread that may */
	struct convert_progress *progress;
	const struct weight_cache *c;
	const uint64_t *sums;
	atomic_ullong next;
	atomic_bool wrong;
};

static void *check_chunks(void *arg)
{
	struct check *k = arg;
	const struct weight_cache_head *h = k->c->head;
	for (uint64_t i; (i = atomic_fetch_add(&k->next, 1)) < h->n_chunks && !atomic_load(&k->wrong);) {
		const uint8_t *at = k->c->data + i * WEIGHT_CACHE_CHUNK;
		uint64_t left = h->data_bytes - i * WEIGHT_CACHE_CHUNK;
		size_t n = left < WEIGHT_CACHE_CHUNK ? (size_t)left : WEIGHT_CACHE_CHUNK;
		/* EINVAL: a system that does not know it. */
		if (madvise((void *)(uintptr_t)at, n, MADV_POPULATE_READ) != 0 && errno != EINVAL)
			atomic_store(&k->wrong, true);
		else if (weight_cache_chunk_sum(at, n, i) != k->sums[i])
			atomic_store(&k->wrong, true);
		if (k->progress != NULL && pthread_equal(pthread_self(), k->reports) && k->progress->report != NULL)
			k->progress->report(k->progress->ctx, i * WEIGHT_CACHE_CHUNK + n, h->data_bytes);
	}
	return NULL;
}

static int check_data(const struct weight_cache *c, int n_threads, struct convert_progress *progress)
{
	struct check k = {.reports = pthread_self(),
			  .progress = progress,
			  .c = c,
			  .sums = (const void *)(c->entries + c->head->n_entries)};
	pthread_t threads[MAX_THREADS];
	int n = 0, most = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
	while (n < most - 1 && (uint64_t)n + 1 < c->head->n_chunks &&
	       pthread_create(&threads[n], NULL, check_chunks, &k) == 0)
		n++;
	check_chunks(&k);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	return atomic_load(&k.wrong) ? SL_EINVAL : 0;
}

/* A file that another user owns or may write would let that user choose the answers. */
static bool is_own(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int weight_cache_open(const struct weight_cache_config *cfg, const struct weight_cache_key *key,
		      struct convert_progress *progress, struct weight_cache *out, struct sl_err *err)
{
	char name[WEIGHT_CACHE_NAME], path[MAX_PATH];
	struct stat st;
	*out = (struct weight_cache){0};
	weight_cache_name(key, name);
	if ((size_t)snprintf(path, sizeof path, "%s/%s", cfg->folder, name) >= sizeof path)
		return sl_errf(err, SL_EIO, "%s: the path is too long", cfg->folder);
	if (lstat(path, &st) != 0)
		return errno == ENOENT ? SL_ENOTFOUND : sl_errf(err, SL_EIO, "%s: %m", path);
	if (!is_own(&st))
		return sl_errf(err, SL_EINVAL, "%s: not a file of this user's alone", path);
	int rc = map_file_open(path, &out->map, err);
	if (rc == SL_ENOMEM || rc == SL_EIO)
		return rc;
	if (rc == 0) {
		/* A page that is not there comes with those around it, in large pages if can be. */
		(void)madvise((void *)(uintptr_t)out->map.at, out->map.bytes, MADV_HUGEPAGE);
		rc = check_head(out, key);
	}
	if (rc == 0)
		rc = check_data(out, cfg->n_threads, progress);
	if (rc != 0) {
		weight_cache_close(out);
		(void)unlink(path);
		return sl_errf(err, SL_EINVAL, "%s: damaged, removed", path);
	}
	/* When it was last used. */
	(void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
	return 0;
}

void weight_cache_close(struct weight_cache *c)
{
	map_file_close(&c->map);
	*c = (struct weight_cache){0};
}

/* ---- tidying ---- */

struct found {
	char name[WEIGHT_CACHE_NAME];
	uint64_t bytes, used_ns;
};

static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* A writer holds a lock on its file: without one it has died. */
static void remove_if_left(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(folder, name, 0);
	if (fd >= 0)
		close(fd);
}

static bool ends_with(const char *text, size_t n, const char *end)
{
	size_t m = strlen(end);
	return n >= m && memcmp(text + n - m, end, m) == 0;
}

/* The files of others that stay so far, into found[MAX_FILES]. */
static size_t look_through(DIR *d, const struct weight_cache_key *key, struct found *found, uint64_t *own_bytes)
{
	char own[WEIGHT_CACHE_NAME];
	size_t n = 0, source = 16;
	struct dirent *e;
	weight_cache_name(key, own);
	while ((e = readdir(d)) != NULL) {
		struct stat st;
		size_t length = strlen(e->d_name);
		if (strstr(e->d_name, WEIGHT_CACHE_SUFFIX WEIGHT_CACHE_PART) != NULL)
			remove_if_left(dirfd(d), e->d_name);
		if (length + 1 > WEIGHT_CACHE_NAME || !ends_with(e->d_name, length, WEIGHT_CACHE_SUFFIX) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
			continue;
		if (strcmp(e->d_name, own) == 0)
			*own_bytes = (uint64_t)st.st_size;
		else if (strncmp(e->d_name, own, source + 1) == 0)
			(void)unlinkat(dirfd(d), e->d_name, 0);
		else if (n < MAX_FILES) {
			memcpy(found[n].name, e->d_name, length + 1);
			found[n].bytes = (uint64_t)st.st_size;
			found[n++].used_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
		}
	}
	return n;
}

void weight_cache_tidy(const struct weight_cache_config *cfg, const struct weight_cache_key *key)
{
	DIR *d = opendir(cfg->folder);
	struct found *found = sl_zalloc_n(MAX_FILES, sizeof *found);
	uint64_t all = 0;
	if (d != NULL && found != NULL) {
		size_t n = look_through(d, key, found, &all);
		qsort(found, n, sizeof *found, by_use);
		for (size_t i = 0; i < n; i++)
			all += found[i].bytes;
		for (size_t i = 0; i < n && all > cfg->max_bytes; i++) {
			if (unlinkat(dirfd(d), found[i].name, 0) == 0)
				all -= found[i].bytes;
		}
	}
	if (d != NULL)
		closedir(d);
	sl_free(found);
}
