/* SPDX-License-Identifier: Apache-2.0
 *
 * The writing thread: the only one that makes, changes and removes files. In this order: it scans once, erases, writes
 * pages, and when nothing waits, drops what is too old and compacts.
 *
 * Room is made page by page: the page that goes first by the policy is killed and its blocks return to the disk. Where
 * the file system can't give back parts of a file, the oldest segment goes as a whole. A sealed segment without pages
 * is removed; one in which dead records' heads take more than its pages has its pages moved to the last segment.
 *
 * Erasing is asked for by a record that is on disk before the first page goes and dead after the last one did, so an
 * interrupted one is finished by the next scan.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/disk/disk_tier_priv.h"

enum { MAX_SEGMENTS = 4096, TIDY_S = 5 };

static uint64_t now_s(void)
{
	struct timespec now;
	return clock_gettime(CLOCK_REALTIME, &now) == 0 && now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

static void fault(struct disk_tier *t)
{
	char why[128];
	const char *text = strerror_r(errno, why, sizeof why);
	pthread_mutex_lock(&t->lock);
	atomic_fetch_add(&t->stats.write_errors, 1);
	disk_tier_fault(t, &t->writes_health, 1, "written", text);
	pthread_mutex_unlock(&t->lock);
}

/* ---- segments ---- */

static struct disk_segment *first_of(struct disk_tier *t)
{
	return !list_empty(&t->segments) ? list_entry(t->segments.next, struct disk_segment, link) : NULL;
}

static struct disk_segment *last_of(struct disk_tier *t)
{
	struct disk_segment *s =
	    !list_empty(&t->segments) ? list_entry(t->segments.prev, struct disk_segment, link) : NULL;
	return s != NULL && !s->sealed ? s : NULL;
}

/* With the lock held: what the disk takes has changed. */
static void count_held(struct disk_tier *t)
{
	t->held = 0;
	list_each(it, &t->segments)
		t->held += list_entry(it, struct disk_segment, link)->held;
	disk_tier_publish(t);
}

/* Its pages are lost. */
static void remove_segment(struct disk_tier *t, struct disk_segment *s)
{
	pthread_mutex_lock(&t->lock);
	list_each_safe(it, tmp, &s->entries) {
		disk_tier_forget(t, list_entry(it, struct disk_entry, in_segment));
		atomic_fetch_add(&t->stats.evicted, 1);
	}
	disk_segment_unlink(t->dir, s);
	list_remove(&s->link);
	disk_segment_left(s);
	count_held(t);
	pthread_mutex_unlock(&t->lock);
}

/* The folder may have been removed, or replaced by another one, since it was opened. */
static bool folder_is_there(struct disk_tier *t)
{
	struct stat held, named;
	if (fstat(t->dir, &held) == 0 && stat(t->folder, &named) == 0 && held.st_dev == named.st_dev &&
	    held.st_ino == named.st_ino)
		return true;
	if (mkdir(t->folder, 0700) != 0 && errno != EEXIST)
		return false;
	int dir = open(t->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_EX | LOCK_NB) != 0) {
		if (dir >= 0)
			close(dir);
		return false;
	}
	close(t->dir);
	t->dir = dir;
	while (first_of(t) != NULL)
		remove_segment(t, first_of(t));
	return true;
}

/* A segment to append to; NULL: there is none now. */
static struct disk_segment *open_segment(struct disk_tier *t)
{
	struct disk_segment *s = last_of(t);
	if (s != NULL && s->end < t->segment_bytes)
		return s;
	if (s != NULL)
		s->sealed = true;
	if (!folder_is_there(t) || disk_segment_create(t->dir, t->seed, t->next_number, now_s(), &s) != 0)
		return NULL;
	t->next_number++;
	pthread_mutex_lock(&t->lock);
	list_push_back(&t->segments, &s->link);
	count_held(t);
	pthread_mutex_unlock(&t->lock);
	return s;
}

/* ---- pages ---- */

/* The page leaves the index and the disk. */
static int kill_page(struct disk_tier *t, struct disk_entry *e, bool wipe)
{
	struct disk_segment *s = e->segment;
	uint64_t at = e->at, freed = 0;
	pthread_mutex_lock(&t->lock);
	disk_tier_forget(t, e);
	pthread_mutex_unlock(&t->lock);
	int rc = disk_segment_kill(s, t->seed, at, wipe, &freed);
	if (rc == 0 && freed == 0)
		t->punches = false;
	pthread_mutex_lock(&t->lock);
	count_held(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* Evicts one page, or a segment; false: nothing is left to go. */
static bool evict(struct disk_tier *t)
{
	pthread_mutex_lock(&t->lock);
	struct disk_entry *e = t->punches ? disk_index_worst(&t->index) : NULL;
	if (e != NULL)
		disk_index_evicting(&t->index, e);
	pthread_mutex_unlock(&t->lock);
	struct disk_segment *s = first_of(t);
	if (e != NULL) {
		atomic_fetch_add(&t->stats.evicted, 1);
		if (kill_page(t, e, false) == SL_EIO)
			return false;
	} else if (s != NULL) {
		remove_segment(t, s);
	}
	return e != NULL || s != NULL;
}

static void remove_empty(struct disk_tier *t)
{
	list_each_safe(it, tmp, &t->segments) {
		struct disk_segment *s = list_entry(it, struct disk_segment, link);
		if (s->sealed && list_empty(&s->entries))
			remove_segment(t, s);
	}
}

static bool is_full(const struct disk_tier *t, uint64_t bytes)
{
	return t->held + bytes > t->max_bytes || t->index.entries.n >= DISK_MAX_PAGES;
}

static bool make_room(struct disk_tier *t, uint64_t bytes)
{
	errno = ENOSPC;
	if (bytes + DISK_BLOCK > t->max_bytes)
		return false;
	if (!is_full(t, bytes))
		return true;
	remove_empty(t);
	while (is_full(t, bytes))
		if (!evict(t))
			return false;
	return true;
}

/* The index gets a page that lies there. False: it has one already, or there is no memory. */
static bool add_page(struct disk_tier *t, struct disk_segment *s, uint64_t at, const struct disk_record *r)
{
	struct disk_entry *e = sl_zalloc(sizeof *e);
	if (e == NULL)
		return false;
	*e = (struct disk_entry){.key = r->key,
				 .segment = s,
				 .at = at,
				 .payload_bytes = r->payload_bytes,
				 .owner = r->owner,
				 .created_s = r->created_s,
				 .depth = r->depth};
	list_init(&e->in_segment);
	pthread_mutex_lock(&t->lock);
	bool added = disk_index_add(&t->index, e);
	if (added) {
		list_push_back(&s->entries, &e->in_segment);
		s->live += disk_record_room(e->payload_bytes);
	}
	disk_tier_publish(t);
	pthread_mutex_unlock(&t->lock);
	if (!added)
		sl_free(e);
	return added;
}

static void write_job(struct disk_tier *t, const struct disk_job *j)
{
	uint64_t bytes = disk_record_room(2 * (uint64_t)j->half), at, begin = clock_now_ns(), created = now_s();
	/* Beyond a page there is room for the head of a new segment. */
	struct disk_segment *s = make_room(t, bytes + DISK_BLOCK) ? open_segment(t) : NULL;
	int rc = s != NULL ? disk_segment_append(s, t->seed, &j->page, created, j->k, j->v, j->half, &at) : SL_EIO;
	atomic_fetch_add(&t->stats.write_us, (clock_now_ns() - begin) / 1000);
	if (rc != 0) {
		atomic_fetch_add(&t->stats.dropped, 1);
		fault(t);
		return;
	}
	(void)add_page(t, s, at,
		       &(struct disk_record){.key = j->page.key,
					     .payload_bytes = 2 * (uint64_t)j->half,
					     .owner = j->page.owner,
					     .created_s = created,
					     .depth = j->page.depth});
	atomic_fetch_add(&t->stats.written, 1);
	atomic_fetch_add(&t->stats.write_bytes, 2 * (uint64_t)j->half);
	pthread_mutex_lock(&t->lock);
	disk_tier_works(t, &t->writes_health, "written");
	count_held(t);
	pthread_mutex_unlock(&t->lock);
}

/* ---- erasing ---- */

/* The first page from `it` on that is the owner's. Only this thread changes the list. */
static struct disk_entry *next_of(struct disk_tier *t, const struct list *it, uint64_t owner)
{
	for (; it != &t->index.by_age; it = it->next) {
		struct disk_entry *e = list_entry((uintptr_t)it, struct disk_entry, by_age);
		if (e->owner == owner)
			return e;
	}
	return NULL;
}

/* False: not all of it could be. */
static bool erase_pages(struct disk_tier *t, uint64_t owner)
{
	struct disk_entry *e = next_of(t, t->index.by_age.next, owner), *next;
	for (; e != NULL; e = next) {
		struct disk_segment *s = e->segment;
		next = next_of(t, e->by_age.next, owner);
		int rc = kill_page(t, e, true);
		atomic_fetch_add(&t->stats.erased, 1);
		if (rc == SL_EIO)
			return false;
		if (rc == 0)
			continue;
		/* Its head is damaged: nothing of the file stays. */
		remove_segment(t, s);
		next = next_of(t, t->index.by_age.next, owner);
	}
	bool synced = true;
	list_each(it, &t->segments)
		synced = disk_segment_sync(list_entry(it, struct disk_segment, link)) == 0 && synced;
	return synced;
}

/* Everything there is, if the disk can't even take the request: files can be removed when nothing can be written. */
static void remove_all(struct disk_tier *t)
{
	while (first_of(t) != NULL)
		remove_segment(t, first_of(t));
}

static void erase(struct disk_tier *t, uint64_t owner, bool all)
{
	uint64_t at, freed;
	if (all) {
		remove_all(t);
		return;
	}
	struct disk_segment *s = open_segment(t);
	if (s == NULL || disk_segment_append_erase(s, t->seed, owner, now_s(), &at) != 0 || !erase_pages(t, owner))
		remove_all(t);
	else
		(void)disk_segment_kill(s, t->seed, at, false, &freed);
	remove_empty(t);
}

/* ---- scanning ---- */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Names of files that may be segments, into numbers[MAX_SEGMENTS], in order. */
static size_t list_segments(const struct disk_tier *t, uint64_t *numbers)
{
	int fd = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	size_t n = 0;
	struct dirent *e;
	while (d != NULL && (e = readdir(d)) != NULL)
		if (n < MAX_SEGMENTS && disk_segment_number(e->d_name, &numbers[n]))
			n++;
	if (d != NULL)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	qsort(numbers, n, sizeof *numbers, by_number);
	return n;
}

static bool is_closing(struct disk_tier *t)
{
	pthread_mutex_lock(&t->lock);
	bool closing = t->closing;
	pthread_mutex_unlock(&t->lock);
	return closing;
}

static void take_record(struct disk_tier *t, struct disk_segment *s, const struct disk_record *r)
{
	uint64_t freed;
	/* A page that is there twice was about to be moved. */
	if (r->kind == DISK_PAGE && !add_page(t, s, r->at, r))
		(void)disk_segment_kill(s, t->seed, r->at, false, &freed);
	if (r->kind == DISK_ERASE && erase_pages(t, r->owner))
		(void)disk_segment_kill(s, t->seed, r->at, false, &freed);
}

static void scan_segment(struct disk_tier *t, struct disk_segment *s)
{
	uint8_t block[DISK_BLOCK];
	struct disk_record r;
	const int32_t *tokens;
	uint64_t at = DISK_BLOCK, torn = 0;
	while (disk_segment_scan(s, t->seed, &at, block, &r, &tokens, &torn) == 0 && !is_closing(t)) {
		take_record(t, s, &r);
		at += disk_record_room(r.payload_bytes);
	}
	if (torn > 0)
		log_warn("%s: segment %016llx: %llu blocks belong to no whole page and are skipped", t->folder,
			 (unsigned long long)s->number, (unsigned long long)torn);
}

static void open_old(struct disk_tier *t, uint64_t number)
{
	struct disk_segment *s = NULL;
	char name[DISK_NAME];
	int rc = disk_segment_open(t->dir, t->seed, number, &s);
	disk_segment_name(number, name);
	if (rc == 0) {
		pthread_mutex_lock(&t->lock);
		list_push_back(&t->segments, &s->link);
		count_held(t);
		pthread_mutex_unlock(&t->lock);
		scan_segment(t, s);
		return;
	}
	bool removed = (rc == SL_EUNSUPPORTED || rc == SL_EINVAL) && unlinkat(t->dir, name, 0) == 0;
	log_warn("%s/%s: %s%s", t->folder, name,
		 rc == SL_EPROTO ? "not a segment of keys and values"
		 : rc == SL_EIO  ? "can't be read"
				 : "damaged, or of another version or installation",
		 removed ? ", removed" : ", left alone");
}

static void scan(struct disk_tier *t)
{
	uint64_t *numbers = sl_zalloc_n(MAX_SEGMENTS, sizeof *numbers), begin = clock_now_ns();
	size_t n = numbers != NULL ? list_segments(t, numbers) : 0;
	t->next_number = n > 0 ? numbers[n - 1] + 1 : 1;
	for (size_t i = 0; i < n && !is_closing(t); i++)
		open_old(t, numbers[i]);
	sl_free(numbers);
	remove_empty(t);
	(void)make_room(t, 0);
	pthread_mutex_lock(&t->lock);
	t->scanned = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	if (n > 0)
		log_info("%s: %zu segments with %zu pages of keys and values, %llu MiB, found in %llu ms", t->folder, n,
			 t->index.entries.n, (unsigned long long)(t->held >> 20),
			 (unsigned long long)((clock_now_ns() - begin) / NS_PER_MS));
}

/* ---- tidying ---- */

static void drop_old(struct disk_tier *t)
{
	uint64_t now = now_s();
	while (t->max_age_s > 0) {
		pthread_mutex_lock(&t->lock);
		struct disk_entry *e = disk_index_oldest(&t->index);
		pthread_mutex_unlock(&t->lock);
		if (e == NULL || e->created_s > now || now - e->created_s <= t->max_age_s)
			break;
		atomic_fetch_add(&t->stats.evicted, 1);
		if (kill_page(t, e, false) != 0)
			break;
	}
}

static bool is_hollow(const struct disk_segment *s)
{
	return s->sealed && s->live > 0 && s->held > s->live && s->held - s->live > s->live;
}

/* The page's record, whose tokens are in block, and its halves in memory[payload_bytes]. */
static int read_whole(const struct disk_tier *t, const struct disk_entry *e, uint8_t block[DISK_BLOCK], uint8_t *memory,
		      struct disk_page *out, uint64_t *created_s)
{
	struct disk_record r;
	const int32_t *tokens;
	uint64_t at = e->at, torn = 0;
	size_t half = (size_t)e->payload_bytes / 2;
	int rc = disk_segment_scan(e->segment, t->seed, &at, block, &r, &tokens, &torn);
	if (rc != 0 || torn > 0 || r.kind != DISK_PAGE || !disk_key_equal(r.key, e->key))
		return SL_EINVAL;
	*created_s = r.created_s;
	*out = (struct disk_page){.model = r.model,
				  .key = r.key,
				  .parent = r.parent,
				  .tokens = tokens,
				  .n_tokens = r.n_tokens,
				  .depth = r.depth,
				  .owner = r.owner};
	return disk_segment_read(e->segment, t->seed, e->at, out, memory, memory + half, half);
}

/* Moves the page to the last segment. False: it could not be, and is lost if it is damaged. */
static bool move_page(struct disk_tier *t, struct disk_entry *e)
{
	uint8_t block[DISK_BLOCK], *memory = sl_alloc((size_t)e->payload_bytes);
	struct disk_segment *from = e->segment, *to = open_segment(t);
	struct disk_page page;
	uint64_t at, created_s, freed, old = e->at, room = disk_record_room(e->payload_bytes);
	size_t half = (size_t)e->payload_bytes / 2;
	int rc = memory == NULL || to == NULL ? SL_EIO : read_whole(t, e, block, memory, &page, &created_s);
	if (rc == SL_EINVAL) {
		pthread_mutex_lock(&t->lock);
		disk_tier_forget(t, e);
		pthread_mutex_unlock(&t->lock);
	}
	if (rc == 0)
		rc = disk_segment_append(to, t->seed, &page, created_s, memory, memory + half, half, &at);
	sl_free(memory);
	if (rc != 0)
		return rc == SL_EINVAL;
	pthread_mutex_lock(&t->lock);
	list_remove(&e->in_segment);
	list_push_back(&to->entries, &e->in_segment);
	from->live -= room;
	to->live += room;
	e->segment = to;
	e->at = at;
	pthread_mutex_unlock(&t->lock);
	/* Not found again by the next scan: it may have been erased by then. */
	(void)disk_segment_kill(from, t->seed, old, false, &freed);
	pthread_mutex_lock(&t->lock);
	count_held(t);
	pthread_mutex_unlock(&t->lock);
	return true;
}

/* One page of the first hollow segment. False: there is none. */
static bool compact(struct disk_tier *t)
{
	list_each(it, &t->segments) {
		struct disk_segment *s = list_entry(it, struct disk_segment, link);
		if (!is_hollow(s))
			continue;
		struct disk_entry *e = list_entry(s->entries.next, struct disk_entry, in_segment);
		return make_room(t, disk_record_room(e->payload_bytes) + DISK_BLOCK) && is_hollow(s) &&
		       move_page(t, list_entry(s->entries.next, struct disk_entry, in_segment));
	}
	return false;
}

static void tidy(struct disk_tier *t)
{
	enum { AT_ONCE = 16 };
	drop_old(t);
	for (int i = 0; t->punches && i < AT_ONCE && compact(t); i++)
		;
	remove_empty(t);
}

/* ---- the thread ---- */

/* With the lock held. */
static void drop_damaged(struct disk_tier *t)
{
	list_each_safe(it, tmp, &t->index.by_age) {
		struct disk_entry *e = list_entry(it, struct disk_entry, by_age);
		if (!e->damaged)
			continue;
		pthread_mutex_unlock(&t->lock);
		(void)kill_page(t, e, false);
		pthread_mutex_lock(&t->lock);
	}
}

/* With the lock held. False: nothing waits. */
static bool work(struct disk_tier *t)
{
	if (t->n_erases > 0 || t->erase_all) {
		bool all = t->erase_all;
		uint64_t owner = t->n_erases > 0 ? t->erases[--t->n_erases] : 0;
		t->n_erases = all ? 0 : t->n_erases;
		t->erase_all = false;
		t->erasing = true;
		pthread_mutex_unlock(&t->lock);
		erase(t, owner, all);
		pthread_mutex_lock(&t->lock);
		t->erasing = false;
	} else if (t->n_damaged > 0) {
		drop_damaged(t);
	} else if (!list_empty(&t->jobs)) {
		struct disk_job *j = list_entry(t->jobs.next, struct disk_job, link);
		list_remove(&j->link);
		t->writing = j;
		bool may = disk_tier_may(t, &t->writes_health);
		pthread_mutex_unlock(&t->lock);
		if (may)
			write_job(t, j);
		else
			atomic_fetch_add(&t->stats.dropped, 1);
		pthread_mutex_lock(&t->lock);
		t->writing = NULL;
		t->job_bytes -= 2 * (uint64_t)j->half;
		t->n_jobs--;
		sl_free(j);
	} else {
		return false;
	}
	return true;
}

/* Until something is to be done, or a while has passed. */
static void wait(struct disk_tier *t)
{
	struct timespec until;
	if (clock_gettime(CLOCK_REALTIME, &until) == 0)
		until.tv_sec += TIDY_S;
	pthread_cond_broadcast(&t->changed);
	(void)pthread_cond_timedwait(&t->to_write, &t->lock, &until);
}

void *disk_writer_main(void *tier)
{
	struct disk_tier *t = tier;
	scan(t);
	pthread_mutex_lock(&t->lock);
	for (bool tidied = false;;) {
		if (work(t)) {
			tidied = false;
			continue;
		}
		if (t->closing)
			break;
		if (tidied)
			wait(t);
		pthread_mutex_unlock(&t->lock);
		tidy(t);
		tidied = true;
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}
