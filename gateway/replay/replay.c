/* SPDX-License-Identifier: Apache-2.0
 *
 * A log is one buffer of bytes and the end offset of each event, both counted from the first event that is kept. A
 * reader stores the number of its event and how many of its bytes (with the id line) were read. The directory finds
 * logs by name and holds a reference to each, also to ended logs until they expire; expiry is checked when logs are
 * opened or looked up.
 *
 * Locks: the directory's before a log's. Messages: a reader is its own wake-up message, posted at most once; a reader
 * closed meanwhile is freed when its message arrives. Messages are posted under the log's lock, and only to the thread
 * of an open reader or owner, so that thread is alive; it empties its mailbox before it ends.
 */
#include "gateway/replay/replay.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/metrics.h"

enum { BUCKETS = 256, RETRY_MS = 1000, MAX_SNAPSHOT = 8 << 20, PREFIX_BYTES = 64, NOTE_BYTES = 80 };

struct replay {
	struct replay_config cfg;
	pthread_mutex_t lock;
	struct list buckets[BUCKETS]; /* logs, by name */
	struct list by_age;           /* logs, oldest first */
	size_t bytes;                 /* of all logs in it */
};

struct replay_log {
	struct list in_bucket, in_age; /* the directory's lock; unlinked when removed from it */
	struct replay *of;
	char id[REPLAY_MAX_ID];
	uint64_t tenant;
	pthread_mutex_t lock; /* for all below */
	int refs;
	bool ended, in_directory;
	bool ahead;                   /* a copy: its source may have more events */
	bool deleted;                 /* by its tenant */
	bool broken;                  /* replay_break */
	uint64_t ended_ns, lonely_ns; /* lonely: since when it has no readers; 0: it has some */
	struct gw_thread *home;       /* the owner's; NULL: the owner has released it */
	void (*stop)(void *ctx);
	void *stop_ctx;
	struct sl_buf bytes;
	uint64_t first, base; /* number of the first kept event, and its absolute offset */
	uint64_t *ends;       /* [n] absolute */
	size_t n, cap;
	struct sl_buf snapshot;
	struct replay_usage usage;
	struct list readers;
	char note[NOTE_BYTES]; /* number n_notes; sent while there is no event */
	uint32_t n_notes;
};

struct replay_reader {
	struct gw_message message;
	struct list node;
	struct replay_log *log;
	struct gw_thread *t;
	void (*ready)(void *ctx);
	void *ctx;
	uint64_t event; /* its next one */
	size_t at;      /* bytes of it that were read, with its prefix */
	bool ids, begun, ping;
	uint32_t n_notes; /* that it has read or skipped */
	bool posted, closed;
};

GAUGE(logs_open, "sluice_replay_logs", "Event streams kept to be read again");
GAUGE(bytes_kept, "sluice_replay_bytes", "Bytes of event streams kept to be read again");

/* ---- the directory ---- */

/* Readers of a copy may be ahead by events that the dead owner sent but did not store. */
enum { MOST_AHEAD = 1 << 16 };

static struct list *bucket_of(struct replay *r, const char *id)
{
	return &r->buckets[XXH3_64bits(id, strlen(id)) % BUCKETS];
}

int replay_create(const struct replay_config *cfg, struct replay **out)
{
	struct replay *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return SL_ENOMEM;
	r->cfg = *cfg;
	pthread_mutex_init(&r->lock, NULL);
	for (int i = 0; i < BUCKETS; i++)
		list_init(&r->buckets[i]);
	list_init(&r->by_age);
	*out = r;
	return 0;
}

static void log_free(struct replay_log *log)
{
	BUG_IF(!list_empty(&log->readers), "an event log with readers is freed");
	buf_dispose(&log->bytes);
	buf_dispose(&log->snapshot);
	pthread_mutex_destroy(&log->lock);
	sl_free(log->ends);
	sl_free(log);
}

void replay_unref(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	bool last = --log->refs == 0;
	pthread_mutex_unlock(&log->lock);
	if (last)
		log_free(log);
}

/* Under the directory's lock. */
static void forget(struct replay_log *log)
{
	struct replay *r = log->of;
	list_remove(&log->in_bucket);
	list_remove(&log->in_age);
	pthread_mutex_lock(&log->lock);
	r->bytes -= log->bytes.len;
	metric_add(&bytes_kept, -(int64_t)log->bytes.len);
	log->in_directory = false;
	pthread_mutex_unlock(&log->lock);
	metric_add(&logs_open, -1);
	replay_unref(log);
}

/* Drops old ended logs, and more ended logs until `need` bytes are free. Under the directory's lock. */
static void expire(struct replay *r, size_t need)
{
	uint64_t now = clock_now_ns();
	list_each_safe(it, next, &r->by_age) {
		struct replay_log *log = list_entry(it, struct replay_log, in_age);
		pthread_mutex_lock(&log->lock);
		bool old = log->ended && now - log->ended_ns > r->cfg.keep_ms * NS_PER_MS;
		bool may = log->ended;
		pthread_mutex_unlock(&log->lock);
		if (old || (may && r->bytes + need > r->cfg.all_bytes))
			forget(log);
	}
}

void replay_destroy(struct replay *r)
{
	if (r == NULL)
		return;
	list_each_safe(it, next, &r->by_age) {
		struct replay_log *log = list_entry(it, struct replay_log, in_age);
		BUG_IF(!log->ended || log->refs != 1, "event log %s is in use", log->id);
		forget(log);
	}
	pthread_mutex_destroy(&r->lock);
	sl_free(r);
}

struct replay_log *replay_ref(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->refs++;
	pthread_mutex_unlock(&log->lock);
	return log;
}

/* Under the directory's lock; with a reference. */
static struct replay_log *find(struct replay *r, const char *id, uint64_t tenant)
{
	list_each(it, bucket_of(r, id)) {
		struct replay_log *log = list_entry(it, struct replay_log, in_bucket);
		if (strcmp(log->id, id) == 0 && log->tenant == tenant)
			return replay_ref(log);
	}
	return NULL;
}

struct replay_log *replay_find(struct replay *r, const char *id, uint64_t tenant)
{
	pthread_mutex_lock(&r->lock);
	expire(r, 0);
	struct replay_log *found = find(r, id, tenant);
	pthread_mutex_unlock(&r->lock);
	return found;
}

/* ---- the owner ---- */

static struct replay_log *log_create(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant,
				     void (*stop)(void *ctx), void *ctx)
{
	struct replay_log *log = sl_zalloc(sizeof *log);
	if (log == NULL)
		return NULL;
	BUG_IF(strlen(id) >= sizeof log->id, "a stream named %s", id);
	snprintf(log->id, sizeof log->id, "%s", id);
	log->of = r;
	log->tenant = tenant;
	log->home = t;
	log->stop = stop;
	log->stop_ctx = ctx;
	log->refs = 2; /* the owner's, the directory's */
	log->lonely_ns = clock_now_ns();
	log->in_directory = true;
	pthread_mutex_init(&log->lock, NULL);
	buf_init(&log->bytes, r->cfg.log_bytes);
	buf_init(&log->snapshot, MAX_SNAPSHOT);
	list_init(&log->readers);
	return log;
}

/* Under the directory's lock. False: no room. */
static bool enter(struct replay *r, struct replay_log *log)
{
	expire(r, r->cfg.log_bytes / 16);
	if (r->bytes > r->cfg.all_bytes)
		return false;
	list_push_back(bucket_of(r, log->id), &log->in_bucket);
	list_push_back(&r->by_age, &log->in_age);
	metric_add(&logs_open, 1);
	return true;
}

int replay_open(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, void (*stop)(void *ctx),
		void *ctx, struct replay_log **out)
{
	struct replay_log *log = log_create(r, t, id, tenant, stop, ctx);
	if (log == NULL)
		return SL_ENOMEM;
	pthread_mutex_lock(&r->lock);
	bool room = enter(r, log);
	pthread_mutex_unlock(&r->lock);
	if (!room) {
		log_free(log);
		return SL_ELIMIT;
	}
	*out = log;
	return 0;
}

int replay_open_copy(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, uint64_t first,
		     void (*stop)(void *ctx), void *ctx, struct replay_log **out)
{
	struct replay_log *log = log_create(r, t, id, tenant, stop, ctx);
	if (log == NULL)
		return SL_ENOMEM;
	log->first = first;
	log->ahead = true;
	pthread_mutex_lock(&r->lock);
	struct replay_log *there = find(r, id, tenant);
	bool room = there == NULL && enter(r, log);
	pthread_mutex_unlock(&r->lock);
	*out = room ? log : there;
	if (!room)
		log_free(log);
	return room ? 0 : there != NULL ? 1 : SL_ELIMIT;
}

void replay_hand_over(struct replay_log *log, void (*stop)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&log->lock);
	log->stop = stop;
	log->stop_ctx = ctx;
	pthread_mutex_unlock(&log->lock);
}

bool replay_drop_unused(struct replay_log *log)
{
	struct replay *r = log->of;
	pthread_mutex_lock(&r->lock);
	pthread_mutex_lock(&log->lock);
	/* Both locks are held: no new reader can find it. */
	bool unused = log->refs == (log->in_directory ? 2 : 1);
	bool listed = log->in_directory;
	if (unused)
		log->home = NULL;
	pthread_mutex_unlock(&log->lock);
	if (unused && listed)
		forget(log);
	pthread_mutex_unlock(&r->lock);
	if (unused)
		replay_unref(log);
	return unused;
}

void replay_break(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->broken = true;
	list_each(it, &log->readers) {
		struct replay_reader *rd = list_entry(it, struct replay_reader, node);
		if (rd->event > log->first + log->n)
			rd->event = log->first + log->n;
	}
	pthread_mutex_unlock(&log->lock);
}

void replay_touch(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	if (log->lonely_ns != 0)
		log->lonely_ns = clock_now_ns();
	pthread_mutex_unlock(&log->lock);
}

bool replay_is_read(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	bool is = !list_empty(&log->readers);
	pthread_mutex_unlock(&log->lock);
	return is;
}

uint64_t replay_next(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	uint64_t next = log->first + log->n;
	pthread_mutex_unlock(&log->lock);
	return next;
}

/* Under the log's lock: the bytes of event i, which is there. */
static const uint8_t *event_at(const struct replay_log *log, uint64_t i, size_t *n)
{
	size_t k = (size_t)(i - log->first);
	uint64_t begin = k > 0 ? log->ends[k - 1] : log->base;
	*n = (size_t)(log->ends[k] - begin);
	return buf_data(&log->bytes) + (begin - log->base);
}

int replay_copy(struct replay_log *log, uint64_t from, uint32_t max_events, size_t max_bytes, struct sl_buf *out,
		uint32_t *n_events)
{
	int rc = 0;
	size_t n;
	*n_events = 0;
	pthread_mutex_lock(&log->lock);
	if (from < log->first || from > log->first + log->n)
		rc = SL_ERANGE;
	for (uint64_t i = from; rc == 0 && i < log->first + log->n && *n_events < max_events; i++) {
		const uint8_t *at = event_at(log, i, &n);
		if (*n_events > 0 && out->len + n > max_bytes)
			break;
		rc = buf_append(out, at, n);
		*n_events += rc == 0;
	}
	pthread_mutex_unlock(&log->lock);
	return rc;
}

bool replay_matches(struct replay_log *log, uint64_t i, const void *event, size_t n)
{
	bool same = false;
	size_t have;
	pthread_mutex_lock(&log->lock);
	if (i < log->first) {
		same = true;
	} else if (i < log->first + log->n) {
		const uint8_t *at = event_at(log, i, &have);
		same = have == n && memcmp(at, event, n) == 0;
	}
	pthread_mutex_unlock(&log->lock);
	return same;
}

/* Under the log's lock. */
static void wake_readers(struct replay_log *log)
{
	list_each(it, &log->readers) {
		struct replay_reader *rd = list_entry(it, struct replay_reader, node);
		if (rd->posted)
			continue;
		rd->posted = true;
		gw_post(rd->t, &rd->message);
	}
}

/* Drops the older half of the events. */
static size_t drop_half(struct replay_log *log)
{
	size_t n = (log->n + 1) / 2;
	if (n == 0)
		return 0;
	size_t bytes = (size_t)(log->ends[n - 1] - log->base);
	buf_consume(&log->bytes, bytes);
	log->base += bytes;
	log->first += n;
	log->n -= n;
	memmove(log->ends, log->ends + n, log->n * sizeof *log->ends);
	return bytes;
}

static int add_end(struct replay_log *log, uint64_t end)
{
	if (log->n == log->cap) {
		size_t cap = log->cap > 0 ? log->cap * 2 : 64;
		uint64_t *grown = sl_realloc_n(log->ends, cap, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		log->ends = grown;
		log->cap = cap;
	}
	log->ends[log->n++] = end;
	return 0;
}

int replay_append(struct replay_log *log, const void *events, size_t n)
{
	struct replay *r = log->of;
	pthread_mutex_lock(&log->lock);
	size_t before = log->bytes.len, dropped = 0, n_before = log->n;
	while (log->bytes.len + n > r->cfg.log_bytes && log->n > 0)
		dropped += drop_half(log);
	n_before = dropped > 0 ? log->n : n_before;
	uint64_t at = log->base + log->bytes.len;
	int rc = buf_append(&log->bytes, events, n);
	const char *from = events, *end = from + n;
	while (rc == 0 && from < end) {
		const char *stop = memmem(from, (size_t)(end - from), "\n\n", 2);
		BUG_IF(stop == NULL, "a part of an event is logged");
		at += (uint64_t)(stop + 2 - from);
		from = stop + 2;
		rc = add_end(log, at);
	}
	if (rc != 0) { /* all or nothing */
		log->n = n_before;
		buf_cut(&log->bytes, (size_t)((log->n > 0 ? log->ends[log->n - 1] : log->base) - log->base));
	}
	int64_t grown = (int64_t)log->bytes.len - (int64_t)before;
	bool listed = log->in_directory;
	wake_readers(log);
	pthread_mutex_unlock(&log->lock);
	if (listed) {
		pthread_mutex_lock(&r->lock);
		pthread_mutex_lock(&log->lock);
		/* It may have been removed from the directory in between, together with its bytes. */
		if (log->in_directory) {
			r->bytes = (size_t)((int64_t)r->bytes + grown);
			metric_add(&bytes_kept, grown);
		}
		pthread_mutex_unlock(&log->lock);
		pthread_mutex_unlock(&r->lock);
	}
	return rc;
}

int replay_set_snapshot(struct replay_log *log, const void *json, size_t n)
{
	pthread_mutex_lock(&log->lock);
	buf_clear(&log->snapshot, 0);
	int rc = buf_append(&log->snapshot, json, n);
	pthread_mutex_unlock(&log->lock);
	return rc;
}

void replay_end(struct replay_log *log, const struct replay_usage *usage)
{
	pthread_mutex_lock(&log->lock);
	log->ended = true;
	log->ended_ns = clock_now_ns();
	log->home = NULL;
	log->usage = *usage;
	wake_readers(log);
	pthread_mutex_unlock(&log->lock);
	replay_unref(log);
}

bool replay_abandoned(struct replay_log *log, uint64_t for_ns)
{
	pthread_mutex_lock(&log->lock);
	bool is = log->lonely_ns != 0 && clock_now_ns() - log->lonely_ns >= for_ns;
	pthread_mutex_unlock(&log->lock);
	return is;
}

/* ---- readers ---- */

struct stop_message {
	struct gw_message message;
	struct replay_log *log; /* a reference */
};

static void on_stop(struct gw_thread *t, struct gw_message *m)
{
	struct stop_message *stop = list_entry(m, struct stop_message, message);
	struct replay_log *log = stop->log;
	(void)t;
	pthread_mutex_lock(&log->lock);
	bool owned = log->home != NULL;
	pthread_mutex_unlock(&log->lock);
	/* Only this thread can end it. */
	if (owned)
		log->stop(log->stop_ctx);
	replay_unref(log);
	sl_free(stop);
}

void replay_stop(struct replay_log *log)
{
	struct stop_message *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return; /* then it ends for lack of readers */
	m->message.run = on_stop;
	m->log = log;
	pthread_mutex_lock(&log->lock);
	bool owned = log->home != NULL;
	if (owned) {
		log->refs++;
		gw_post(log->home, &m->message);
	}
	pthread_mutex_unlock(&log->lock);
	if (!owned)
		sl_free(m);
}

bool replay_ended(struct replay_log *log, struct replay_usage *usage)
{
	pthread_mutex_lock(&log->lock);
	bool ended = log->ended;
	*usage = log->usage;
	pthread_mutex_unlock(&log->lock);
	return ended;
}

bool replay_delivered(struct replay_log *log, uint64_t from)
{
	pthread_mutex_lock(&log->lock);
	bool all = log->ended && from == log->first + log->n;
	pthread_mutex_unlock(&log->lock);
	return all;
}

bool replay_snapshot(struct replay_log *log, struct sl_buf *out, int *rc)
{
	pthread_mutex_lock(&log->lock);
	bool there = log->snapshot.len > 0;
	*rc = there ? buf_append(out, buf_data(&log->snapshot), log->snapshot.len) : 0;
	pthread_mutex_unlock(&log->lock);
	return there;
}

void replay_forget(struct replay_log *log)
{
	struct replay *r = log->of;
	pthread_mutex_lock(&r->lock);
	pthread_mutex_lock(&log->lock);
	bool listed = log->in_directory;
	pthread_mutex_unlock(&log->lock);
	if (listed)
		forget(log);
	pthread_mutex_unlock(&r->lock);
}

void replay_delete(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->deleted = true;
	pthread_mutex_unlock(&log->lock);
	replay_forget(log);
}

bool replay_deleted(struct replay_log *log)
{
	pthread_mutex_lock(&log->lock);
	bool is = log->deleted;
	pthread_mutex_unlock(&log->lock);
	return is;
}

const char *replay_id(const struct replay_log *log) { return log->id; }

/* ---- readers ---- */

static void on_wake(struct gw_thread *t, struct gw_message *m)
{
	struct replay_reader *rd = list_entry(m, struct replay_reader, message);
	(void)t;
	pthread_mutex_lock(&rd->log->lock);
	bool closed = rd->closed;
	rd->posted = false;
	pthread_mutex_unlock(&rd->log->lock);
	if (!closed) {
		rd->ready(rd->ctx);
		return;
	}
	replay_unref(rd->log);
	sl_free(rd);
}

int replay_read(struct replay_log *log, struct gw_thread *t, uint64_t from, bool ids, void (*ready)(void *ctx),
		void *ctx, struct replay_reader **out)
{
	struct replay_reader *rd = sl_zalloc(sizeof *rd);
	if (rd == NULL)
		return SL_ENOMEM;
	*rd = (struct replay_reader){
	    .message = {.run = on_wake}, .log = log, .t = t, .ready = ready, .ctx = ctx, .event = from, .ids = ids};
	pthread_mutex_lock(&log->lock);
	if (from == REPLAY_NEXT)
		rd->event = from = log->first + log->n;
	/* Readers ahead of the end of a broken one get that end. */
	if (log->broken && log->n > 0 && from > log->first + log->n)
		rd->event = from = log->first + log->n - 1;
	uint64_t most = log->first + log->n + (log->ahead && !log->ended ? MOST_AHEAD : 0);
	bool there = from >= log->first && from <= most;
	if (there) {
		log->refs++;
		log->lonely_ns = 0;
		list_push_back(&log->readers, &rd->node);
	}
	pthread_mutex_unlock(&log->lock);
	if (!there) {
		sl_free(rd);
		return SL_ERANGE;
	}
	*out = rd;
	return 0;
}

/* The lines before an event's own. */
static size_t prefix_of(const struct replay_reader *rd, char out[PREFIX_BYTES])
{
	if (!rd->ids)
		return 0;
	int n = rd->begun
		    ? snprintf(out, PREFIX_BYTES, "id: %llu\n", (unsigned long long)rd->event)
		    : snprintf(out, PREFIX_BYTES, "retry: %d\nid: %llu\n", RETRY_MS, (unsigned long long)rd->event);
	return (size_t)n;
}

static size_t copy_part(uint8_t *dst, size_t room, const void *from, size_t n, size_t *skip)
{
	if (*skip >= n) {
		*skip -= n;
		return 0;
	}
	size_t take = n - *skip < room ? n - *skip : room;
	memcpy(dst, (const uint8_t *)from + *skip, take);
	*skip = 0;
	return take;
}

/* Under the lock: the next part of the reader's event; 0 when there is none. */
static size_t copy_event(struct replay_reader *rd, uint8_t *dst, size_t room)
{
	struct replay_log *log = rd->log;
	if (rd->event >= log->first + log->n)
		return 0;
	char prefix[PREFIX_BYTES];
	size_t n_prefix = prefix_of(rd, prefix), n_event, skip = rd->at, n;
	const uint8_t *event = event_at(log, rd->event, &n_event);
	n = copy_part(dst, room, prefix, n_prefix, &skip);
	if (n < room)
		n += copy_part(dst + n, room - n, event, n_event, &skip);
	rd->at += n;
	if (rd->at == n_prefix + n_event) {
		rd->at = 0;
		rd->event++;
		rd->begun = true;
	}
	return n;
}

/* Under the lock. */
static size_t copy_note(struct replay_reader *rd, uint8_t *dst, size_t room)
{
	struct replay_log *log = rd->log;
	size_t n = strlen(log->note);
	bool due = rd->n_notes != log->n_notes && log->n == 0 && log->first == 0 && rd->at == 0;
	if (!due || n > room)
		return 0;
	memcpy(dst, log->note, n);
	rd->n_notes = log->n_notes;
	return n;
}

void replay_note(struct replay_log *log, const char *line)
{
	pthread_mutex_lock(&log->lock);
	snprintf(log->note, sizeof log->note, "%s", line);
	log->n_notes++;
	wake_readers(log);
	pthread_mutex_unlock(&log->lock);
}

ssize_t replay_pull(struct replay_reader *rd, uint8_t *dst, size_t room, bool *end)
{
	static const char comment[] = ": ping\n";
	struct replay_log *log = rd->log;
	size_t n = 0, more;
	pthread_mutex_lock(&log->lock);
	if (rd->ping && rd->at == 0 && room >= sizeof comment - 1) {
		memcpy(dst, comment, sizeof comment - 1);
		n = sizeof comment - 1;
		rd->ping = false;
	}
	n += copy_note(rd, dst + n, room - n);
	if (rd->event < log->first) {
		pthread_mutex_unlock(&log->lock);
		return SL_ELIMIT;
	}
	while (n < room && (more = copy_event(rd, dst + n, room - n)) > 0)
		n += more;
	*end = log->ended && rd->event >= log->first + log->n;
	pthread_mutex_unlock(&log->lock);
	return (ssize_t)n;
}

bool replay_ping(struct replay_reader *rd)
{
	rd->ping = rd->at == 0;
	return rd->ping;
}

void replay_close(struct replay_reader *rd)
{
	struct replay_log *log = rd->log;
	pthread_mutex_lock(&log->lock);
	rd->closed = true;
	list_remove(&rd->node);
	if (list_empty(&log->readers))
		log->lonely_ns = clock_now_ns();
	bool posted = rd->posted;
	pthread_mutex_unlock(&log->lock);
	if (posted)
		return; /* freed when its message arrives */
	replay_unref(log);
	sl_free(rd);
}
