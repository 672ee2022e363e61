/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cond.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/disk/disk_tier_priv.h"

/* A first guess, and what a page costs beside its bytes. */
static const double guess_ns_per_byte = 2, page_ns = 50e3;
enum { FORGET_RATE_S = 60, MIN_SEGMENT = 1 << 20, MAX_SEGMENT = 256 << 20, MOST_SEGMENTS = 256 };

/* ---- life ---- */

static int open_folder(struct disk_tier *t, struct sl_err *err)
{
	struct stat st;
	if (mkdir(t->folder, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EINVAL, "%s: %m", t->folder);
	t->dir = open(t->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dir < 0 || fstat(t->dir, &st) != 0)
		return sl_errf(err, SL_EINVAL, "%s: %m", t->folder);
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return sl_errf(err, SL_EINVAL, "%s: not a folder of this user alone (mode 0700)", t->folder);
	if (flock(t->dir, LOCK_EX | LOCK_NB) != 0)
		return sl_errf(err, SL_EINVAL, "%s: another process uses it", t->folder);
	return 0;
}

/* Another process may make it at the same time: what is in the file counts. */
static int read_secret(struct disk_tier *t, struct sl_err *err)
{
	char path[4200];
	struct sl_err why = {0};
	if ((size_t)snprintf(path, sizeof path, "%s/secret", t->folder) >= sizeof path)
		return sl_errf(err, SL_EINVAL, "%s: the path is too long", t->folder);
	int fd = file_open_private(path, &why);
	if (fd == SL_ENOTFOUND) {
		if (getrandom(t->secret, sizeof t->secret, 0) != (ssize_t)sizeof t->secret ||
		    file_make_private(path, t->secret, sizeof t->secret) != 0)
			return sl_errf(err, SL_EINVAL, "%s: %m", path);
		fd = file_open_private(path, &why);
	}
	if (fd < 0)
		return sl_errf(err, SL_EINVAL, "%s: %s", path, why.text);
	ssize_t n = read(fd, t->secret, sizeof t->secret);
	close(fd);
	if (n != (ssize_t)sizeof t->secret)
		return sl_errf(err, SL_EINVAL, "%s: it does not have %d bytes", path, DISK_SECRET);
	t->seed = XXH3_64bits(t->secret, sizeof t->secret);
	return 0;
}

static int start(struct disk_tier *t, struct sl_err *err)
{
	t->writer_runs = pthread_create(&t->writer, NULL, disk_writer_main, t) == 0;
	t->reader_runs = t->writer_runs && pthread_create(&t->reader, NULL, disk_reader_main, t) == 0;
	return t->reader_runs ? 0 : sl_errf(err, SL_EIO, "no thread for pages on disk");
}

int disk_tier_open(const struct disk_tier_config *cfg, struct disk_tier **out, struct sl_err *err)
{
	struct disk_tier *t = sl_zalloc(sizeof *t);
	if (t == NULL || disk_index_init(&t->index, cfg->policy) != 0) {
		sl_free(t);
		return sl_errf(err, SL_ENOMEM, "out of memory");
	}
	uint64_t part = cfg->max_bytes / 16;
	part = part > MAX_SEGMENT ? MAX_SEGMENT : part;
	part = part < cfg->max_bytes / MOST_SEGMENTS ? cfg->max_bytes / MOST_SEGMENTS : part;
	part = part < MIN_SEGMENT ? MIN_SEGMENT : part;
	t->dir = -1;
	t->folder = sl_strdup(cfg->folder);
	t->max_bytes = cfg->max_bytes;
	t->max_age_s = cfg->max_age_s;
	t->segment_bytes = cfg->segment_bytes > 0 ? cfg->segment_bytes : part;
	t->queue_bytes = cfg->queue_bytes > 0 ? cfg->queue_bytes : DISK_QUEUE_BYTES;
	t->retry_ns = (cfg->retry_ms > 0 ? cfg->retry_ms : DISK_RETRY_MS) * (uint64_t)NS_PER_MS;
	t->punches = true;
	t->ns_per_byte = guess_ns_per_byte;
	list_init(&t->segments);
	list_init(&t->jobs);
	list_init(&t->reads);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->to_write, NULL);
	pthread_cond_init(&t->to_read, NULL);
	pthread_cond_init(&t->changed, NULL);
	int rc = t->folder != NULL ? open_folder(t, err) : sl_errf(err, SL_ENOMEM, "out of memory");
	if (rc == 0)
		rc = read_secret(t, err);
	if (rc == 0)
		rc = start(t, err);
	if (rc != 0) {
		disk_tier_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

static void free_all(struct disk_tier *t)
{
	struct disk_entry *e;
	while ((e = disk_index_worst(&t->index)) != NULL)
		disk_tier_forget(t, e);
	disk_index_dispose(&t->index);
	list_each_safe(it, tmp, &t->jobs) {
		list_remove(it);
		sl_free(list_entry(it, struct disk_job, link));
	}
	list_each_safe(it, tmp, &t->segments)
		disk_segment_close(list_entry(it, struct disk_segment, link));
	if (t->dir >= 0)
		close(t->dir);
	pthread_cond_destroy(&t->changed);
	pthread_cond_destroy(&t->to_read);
	pthread_cond_destroy(&t->to_write);
	pthread_mutex_destroy(&t->lock);
	sl_free(t->folder);
	sl_free(t);
}

void disk_tier_close(struct disk_tier *t)
{
	if (t == NULL)
		return;
	pthread_mutex_lock(&t->lock);
	BUG_IF(!list_empty(&t->reads), "the tier on disk is closed while pages are read");
	t->closing = true;
	pthread_cond_broadcast(&t->to_write);
	pthread_cond_broadcast(&t->to_read);
	pthread_mutex_unlock(&t->lock);
	if (t->reader_runs)
		pthread_join(t->reader, NULL);
	if (t->writer_runs)
		pthread_join(t->writer, NULL);
	free_all(t);
}

struct disk_stats *disk_tier_stats(struct disk_tier *t) { return &t->stats; }
enum disk_policy disk_tier_policy(const struct disk_tier *t) { return t->index.policy; }

struct disk_key disk_tier_model(const struct disk_tier *t, const void *what, size_t n)
{
	return disk_key_model(t->secret, sizeof t->secret, what, n);
}

bool disk_tier_scanned(struct disk_tier *t)
{
	pthread_mutex_lock(&t->lock);
	bool scanned = t->scanned;
	pthread_mutex_unlock(&t->lock);
	return scanned;
}

void disk_tier_settle(struct disk_tier *t)
{
	pthread_mutex_lock(&t->lock);
	while (!t->scanned || !list_empty(&t->jobs) || t->writing != NULL || t->n_erases > 0 || t->erase_all ||
	       t->erasing)
		cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

/* ---- shared by the threads ---- */

void disk_segment_left(struct disk_segment *s)
{
	if (s->gone && s->n_readers == 0 && list_empty(&s->entries))
		disk_segment_close(s);
}

void disk_tier_forget(struct disk_tier *t, struct disk_entry *e)
{
	struct disk_segment *s = e->segment;
	disk_index_remove(&t->index, e);
	t->n_damaged -= e->damaged;
	list_remove(&e->in_segment);
	s->live -= disk_record_room(e->payload_bytes);
	sl_free(e);
	disk_tier_publish(t);
}

void disk_tier_publish(struct disk_tier *t)
{
	atomic_store(&t->stats.bytes, t->held);
	atomic_store(&t->stats.pages, t->index.entries.n);
}

void disk_tier_fault(struct disk_tier *t, struct disk_health *h, unsigned most, const char *what, const char *why)
{
	h->retry_ns = clock_now_ns() + t->retry_ns;
	if (++h->n_faults < most || h->bad)
		return;
	h->bad = true;
	log_warn("%s: no keys and values are %s: %s; tried again every %llu s", t->folder, what, why,
		 (unsigned long long)(t->retry_ns / NS_PER_S));
}

void disk_tier_works(struct disk_tier *t, struct disk_health *h, const char *what)
{
	if (h->bad)
		log_info("%s: keys and values are %s again", t->folder, what);
	h->bad = false;
	h->n_faults = 0;
}

bool disk_tier_may(struct disk_tier *t, struct disk_health *h)
{
	(void)t;
	return !h->bad || clock_now_ns() >= h->retry_ns;
}

/* ---- writing ---- */

/* With the lock held. */
static bool has_room(const struct disk_tier *t, uint64_t bytes)
{
	return t->n_jobs == 0 || (t->n_jobs < DISK_MAX_JOBS && t->job_bytes + bytes <= t->queue_bytes);
}

bool disk_tier_has_room(struct disk_tier *t, size_t bytes)
{
	pthread_mutex_lock(&t->lock);
	bool room = has_room(t, bytes);
	pthread_mutex_unlock(&t->lock);
	return room;
}

static struct disk_job *make_job(const struct disk_page *p, const void *k, const void *v, size_t half)
{
	size_t of_tokens = p->n_tokens * sizeof(int32_t);
	struct disk_job *j = sl_alloc(sizeof *j + of_tokens + 2 * half);
	if (j == NULL)
		return NULL;
	*j = (struct disk_job){.page = *p, .half = half};
	memcpy(j->tokens, p->tokens, of_tokens);
	j->page.tokens = j->tokens;
	j->k = (uint8_t *)j->tokens + of_tokens;
	j->v = j->k + half;
	memcpy(j->k, k, half);
	memcpy(j->v, v, half);
	return j;
}

static bool is_queued(const struct disk_tier *t, struct disk_key key)
{
	if (t->writing != NULL && disk_key_equal(t->writing->page.key, key))
		return true;
	list_each(it, &t->jobs)
		if (disk_key_equal(list_entry(it, struct disk_job, link)->page.key, key))
			return true;
	return false;
}

int disk_tier_write(struct disk_tier *t, const struct disk_page *p, const void *k, const void *v, size_t half)
{
	uint64_t bytes = 2 * (uint64_t)half;
	BUG_IF(p->n_tokens == 0 || p->n_tokens > DISK_MAX_TOKENS || bytes > DISK_MAX_PAYLOAD,
	       "a page of %llu tokens and %llu bytes is stored", (unsigned long long)p->n_tokens,
	       (unsigned long long)bytes);
	pthread_mutex_lock(&t->lock);
	bool there = disk_index_find(&t->index, p->key) != NULL || is_queued(t, p->key);
	bool room = !t->closing && has_room(t, bytes) && disk_tier_may(t, &t->writes_health);
	if (!there && room) {
		t->job_bytes += bytes;
		t->n_jobs++;
	}
	pthread_mutex_unlock(&t->lock);
	if (there)
		return 0;
	struct disk_job *j = room ? make_job(p, k, v, half) : NULL;
	pthread_mutex_lock(&t->lock);
	if (j != NULL) {
		list_push_back(&t->jobs, &j->link);
	} else if (room) {
		t->job_bytes -= bytes;
		t->n_jobs--;
	}
	pthread_cond_signal(&t->to_write);
	pthread_mutex_unlock(&t->lock);
	if (j == NULL)
		atomic_fetch_add(&t->stats.dropped, 1);
	return j != NULL ? 0 : room ? SL_ENOMEM : SL_ELIMIT;
}

/* With the lock held. */
static void drop_jobs(struct disk_tier *t, uint64_t owner, bool all)
{
	list_each_safe(it, tmp, &t->jobs) {
		struct disk_job *j = list_entry(it, struct disk_job, link);
		if (j->page.owner != owner && !all)
			continue;
		list_remove(it);
		t->job_bytes -= 2 * (uint64_t)j->half;
		t->n_jobs--;
		sl_free(j);
	}
}

static void ask_to_erase(struct disk_tier *t, uint64_t owner, bool all)
{
	pthread_mutex_lock(&t->lock);
	bool known = t->erase_all;
	for (uint32_t i = 0; i < t->n_erases; i++)
		known = known || t->erases[i] == owner;
	if (all || (!known && t->n_erases == DISK_MAX_ERASES))
		t->erase_all = true;
	else if (!known)
		t->erases[t->n_erases++] = owner;
	drop_jobs(t, owner, t->erase_all);
	pthread_cond_signal(&t->to_write);
	pthread_mutex_unlock(&t->lock);
}

void disk_tier_erase(struct disk_tier *t, uint64_t owner) { ask_to_erase(t, owner, false); }
void disk_tier_erase_all(struct disk_tier *t) { ask_to_erase(t, 0, true); }

/* ---- reading ---- */

uint32_t disk_tier_run(struct disk_tier *t, const struct disk_key *keys, uint32_t n)
{
	uint32_t i = 0;
	pthread_mutex_lock(&t->lock);
	bool may = !t->closing && disk_tier_may(t, &t->reads_health);
	while (may && i < n && disk_index_find(&t->index, keys[i]) != NULL)
		i++;
	pthread_mutex_unlock(&t->lock);
	return i;
}

bool disk_tier_has(struct disk_tier *t, struct disk_key key)
{
	pthread_mutex_lock(&t->lock);
	bool has = disk_index_find(&t->index, key) != NULL || is_queued(t, key);
	pthread_mutex_unlock(&t->lock);
	return has;
}

double disk_tier_ns(struct disk_tier *t, uint32_t n, size_t page_bytes)
{
	pthread_mutex_lock(&t->lock);
	/* A slow disk may have become faster, which only reading it shows. */
	uint64_t now = clock_now_ns();
	while (t->ns_per_byte > guess_ns_per_byte && now - t->rate_ns > FORGET_RATE_S * (uint64_t)NS_PER_S) {
		t->ns_per_byte = t->ns_per_byte / 2 > guess_ns_per_byte ? t->ns_per_byte / 2 : guess_ns_per_byte;
		t->rate_ns += FORGET_RATE_S * (uint64_t)NS_PER_S;
	}
	double bytes = (double)n * (double)page_bytes + (double)t->read_bytes_queued;
	double ns = n * page_ns + bytes * t->ns_per_byte;
	pthread_mutex_unlock(&t->lock);
	return ns;
}

int disk_tier_read(struct disk_tier *t, struct disk_read *r)
{
	uint32_t n = 0;
	r->n_done = 0;
	r->failed = false;
	atomic_init(&r->stop, false);
	pthread_mutex_lock(&t->lock);
	list_each(it, &t->reads)
		n++;
	int rc = n < DISK_MAX_READS && !t->closing && disk_tier_may(t, &t->reads_health) ? 0 : SL_ELIMIT;
	if (rc == 0) {
		list_push_back(&t->reads, &r->link);
		t->read_bytes_queued += 2 * (uint64_t)r->half * r->n;
		pthread_cond_signal(&t->to_read);
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void disk_tier_stop(struct disk_tier *t, struct disk_read *r)
{
	atomic_store(&r->stop, true);
	pthread_mutex_lock(&t->lock);
	bool queued = false;
	list_each(it, &t->reads)
		queued = queued || it == &r->link;
	if (queued) {
		list_remove(&r->link);
		t->read_bytes_queued -= 2 * (uint64_t)r->half * r->n;
	}
	while (t->reading == r)
		cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
	if (queued)
		r->done(r);
}
