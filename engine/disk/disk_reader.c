/* SPDX-License-Identifier: Apache-2.0
 *
 * The reading thread. It takes one read after the other and looks each page up just before it reads it, so a page that
 * is evicted or moved meanwhile is either found in its new place or missed. A segment that is read stays open.
 */
#include <errno.h>
#include <string.h>

#include "base/cond.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/disk/disk_tier_priv.h"

enum { AHEAD = 8 /* pages that the system may read ahead */ };
static const double page_ns = 50e3; /* as disk_tier_ns assumes */

/* Where the page lies; its segment has one more reader. NULL: it is not stored. */
static struct disk_segment *hold(struct disk_tier *t, const struct disk_read *r, uint32_t i, uint64_t *at)
{
	pthread_mutex_lock(&t->lock);
	struct disk_entry *e = disk_index_find(&t->index, r->pages[i].key);
	if (e != NULL) {
		e->segment->n_readers++;
		*at = e->at;
	}
	struct disk_segment *s = e != NULL ? e->segment : NULL;
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void learn(struct disk_tier *t, double ns, double bytes)
{
	double each = (ns > page_ns ? ns - page_ns : 0) / bytes;
	t->ns_per_byte += (each - t->ns_per_byte) / 8;
	t->rate_ns = clock_now_ns();
}

/* What is not what its key says is of no use. */
static void mark_damaged(struct disk_tier *t, struct disk_entry *e)
{
	atomic_fetch_add(&t->stats.damaged, 1);
	if (!t->said_damaged)
		log_warn("%s: segment %016llx has a damaged page at %llu, which is computed again; further ones are "
			 "only counted",
			 t->folder, (unsigned long long)e->segment->number, (unsigned long long)e->at);
	t->said_damaged = true;
	e->damaged = true;
	t->n_damaged++;
	pthread_cond_signal(&t->to_write);
}

/* The page was read with this result. */
static void took(struct disk_tier *t, const struct disk_read *r, uint32_t i, struct disk_segment *s, int rc,
		 uint64_t ns)
{
	char why[128];
	const char *text = rc == SL_EIO ? strerror_r(errno, why, sizeof why) : "";
	pthread_mutex_lock(&t->lock);
	struct disk_entry *e = disk_index_find(&t->index, r->pages[i].key);
	s->n_readers--;
	if (rc == 0) {
		learn(t, (double)ns, 2 * (double)r->half);
		disk_tier_works(t, &t->reads_health, "read");
		if (e != NULL)
			disk_index_use(&t->index, e, i == 0);
	} else if (rc == SL_EIO) {
		atomic_fetch_add(&t->stats.read_errors, 1);
		disk_tier_fault(t, &t->reads_health, DISK_READ_FAULTS, "read", text);
	} else if (e != NULL && e->segment == s) { /* otherwise it was evicted meanwhile */
		mark_damaged(t, e);
	}
	disk_segment_left(s);
	pthread_mutex_unlock(&t->lock);
}

static bool read_page(struct disk_tier *t, struct disk_read *r, uint32_t i)
{
	uint64_t at, begin = clock_now_ns();
	struct disk_segment *s = hold(t, r, i, &at);
	if (s == NULL)
		return false;
	uint64_t room = disk_record_room(2 * (uint64_t)r->half);
	if (i % AHEAD == 0)
		disk_segment_ahead(s, at, 2 * AHEAD * room); /* most pages of a text lie behind one another */
	int rc = disk_segment_read(s, t->seed, at, &r->pages[i], r->k[i], r->v[i], r->half);
	uint64_t ns = clock_now_ns() - begin;
	took(t, r, i, s, rc, ns);
	atomic_fetch_add(&t->stats.read_us, ns / 1000);
	if (rc == 0) {
		atomic_fetch_add(&t->stats.hits, 1);
		atomic_fetch_add(&t->stats.read_bytes, 2 * (uint64_t)r->half);
	}
	return rc == 0;
}

static void read_all(struct disk_tier *t, struct disk_read *r)
{
	while (r->n_done < r->n && !r->failed && !atomic_load(&r->stop)) {
		if (read_page(t, r, r->n_done))
			r->n_done++;
		else
			r->failed = true;
		pthread_mutex_lock(&t->lock);
		t->read_bytes_queued -= 2 * (uint64_t)r->half;
		pthread_mutex_unlock(&t->lock);
	}
}

void *disk_reader_main(void *tier)
{
	struct disk_tier *t = tier;
	pthread_mutex_lock(&t->lock);
	while (!t->closing) {
		if (list_empty(&t->reads)) {
			cond_wait(&t->to_read, &t->lock);
			continue;
		}
		struct disk_read *r = list_entry(t->reads.next, struct disk_read, link);
		list_remove(&r->link);
		t->reading = r;
		pthread_mutex_unlock(&t->lock);
		read_all(t, r);
		pthread_mutex_lock(&t->lock);
		t->read_bytes_queued -= 2 * (uint64_t)r->half * (r->n - r->n_done - r->failed);
		pthread_mutex_unlock(&t->lock);
		r->done(r);
		pthread_mutex_lock(&t->lock);
		t->reading = NULL;
		pthread_cond_broadcast(&t->changed);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}
