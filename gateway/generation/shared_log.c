/* SPDX-License-Identifier: Apache-2.0
 *
 * The log is one buffer of messages in a form of its own (a head and the bytes that the engine's frame
 * had); a reader has an offset into it, counted from the log's beginning. QUEUED and DONE stand beside it:
 * each comes once.
 *
 * Messages between threads: a reader is its own wake-up, on its way at most once; one that is closed
 * meanwhile is freed when it arrives. The log is the wake-up of its owner and keeps a reference while it
 * is on its way. Both are posted under the log's lock and only to a thread that has not let go yet (a
 * reader not closed, an owner not ended), so it is alive; a thread takes what is left in its box before
 * it goes.
 */
#include "gateway/generation/shared_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/metrics.h"

struct piece {
	uint8_t kind; /* enum coalesce_kind: TOKENS, CHOICE */
	uint8_t choice, n_top, finish;
	uint16_t n;
	uint8_t length_why, unused;
	uint32_t n_text, n_pieces;
};

struct shared_log {
	struct gw_message message; /* to its owner */
	void (*on_end)(void *ctx, struct shared_log *log);
	void *on_end_ctx;
	struct coalesce_name *name;
	pthread_mutex_t lock; /* for all below */
	int refs;
	struct gw_thread *home; /* NULL: no owner yet, or it has ended */
	void (*moved)(void *ctx);
	void *moved_ctx;
	bool posted;
	bool whole; /* its beginning is there */
	bool is_queued, ended;
	uint64_t seed;
	struct proto_queued queued;
	struct proto_done done;
	char *text_of_done; /* owned; done's message, unless that is empty */
	struct sl_buf bytes;
	uint64_t base; /* offset of bytes' first */
	struct list readers;
	unsigned n_readers;
	uint64_t most;
};

struct shared_reader {
	struct gw_message message;
	struct list node;
	struct shared_log *log;
	struct gw_thread *t;
	void (*ready)(void *ctx);
	void *ctx;
	uint64_t at;
	bool had_queued, lost, ended;
	bool posted, closed;
	struct sl_buf piece; /* a copy of the last one */
};

static atomic_size_t all_bytes;

static struct metric bytes_kept = {
    .kind = METRIC_GAUGE, .name = "sluice_twins_bytes", .help = "Bytes kept of answers that twins may join"};
static struct metric readers_lost = {
    .kind = METRIC_COUNTER, .name = "sluice_twins_lost_total", .help = "Twins that were too slow for what they shared"};

__attribute__((constructor)) static void register_metrics(void)
{
	metric_register(&bytes_kept);
	metric_register(&readers_lost);
}

static void count_bytes(int64_t n)
{
	atomic_fetch_add(&all_bytes, (size_t)n);
	metric_add(&bytes_kept, n);
}

/* ---- life ---- */

struct shared_log *shared_log_create(void (*ended)(void *ctx, struct shared_log *log), void *ctx)
{
	struct shared_log *log = sl_zalloc(sizeof *log);
	if (log == NULL)
		return NULL;
	log->on_end = ended;
	log->on_end_ctx = ctx;
	log->refs = 1;
	log->whole = true;
	pthread_mutex_init(&log->lock, NULL);
	buf_init(&log->bytes, TWIN_LOG_BYTES);
	list_init(&log->readers);
	return log;
}

struct shared_log *shared_log_ref(struct shared_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->refs++;
	pthread_mutex_unlock(&log->lock);
	return log;
}

void shared_log_unref(struct shared_log *log)
{
	pthread_mutex_lock(&log->lock);
	bool last = --log->refs == 0;
	pthread_mutex_unlock(&log->lock);
	if (!last)
		return;
	BUG_IF(!list_empty(&log->readers), "a shared answer is freed under its readers");
	count_bytes(-(int64_t)log->bytes.len);
	buf_dispose(&log->bytes);
	pthread_mutex_destroy(&log->lock);
	sl_free(log->text_of_done);
	sl_free(log);
}

void shared_log_set_name(struct shared_log *log, struct coalesce_name *name) { log->name = name; }
struct coalesce_name *shared_log_name(const struct shared_log *log) { return log->name; }

static bool joinable(const struct shared_log *log)
{
	return log->whole && !(log->ended && log->done.finish >= PROTO_FINISH_CANCELLED);
}

bool shared_log_joinable(struct shared_log *log)
{
	pthread_mutex_lock(&log->lock);
	bool is = joinable(log);
	pthread_mutex_unlock(&log->lock);
	return is;
}

/* ---- waking, under the lock ---- */

static void on_moved(struct gw_thread *t, struct gw_message *m)
{
	struct shared_log *log = list_entry(m, struct shared_log, message);
	pthread_mutex_lock(&log->lock);
	log->posted = false;
	bool owned = log->home == t;
	pthread_mutex_unlock(&log->lock);
	/* Only this thread ends it. */
	if (owned)
		log->moved(log->moved_ctx);
	shared_log_unref(log);
}

static void wake_owner(struct shared_log *log)
{
	if (log->home == NULL || log->posted)
		return;
	log->posted = true;
	log->refs++;
	gw_post(log->home, &log->message);
}

static void wake(struct shared_reader *rd)
{
	if (rd->posted)
		return;
	rd->posted = true;
	gw_post(rd->t, &rd->message);
}

static void wake_readers(struct shared_log *log)
{
	list_each(it, &log->readers)
		wake(list_entry(it, struct shared_reader, node));
}

/* ---- the owner ---- */

void shared_log_own(struct shared_log *log, struct gw_thread *t, uint64_t seed, void (*moved)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&log->lock);
	BUG_IF(log->home != NULL || log->ended, "a shared answer gets a second owner");
	log->message.run = on_moved;
	log->seed = seed;
	log->moved = moved;
	log->moved_ctx = ctx;
	log->home = t;
	if (log->n_readers > 0)
		wake_owner(log);
	pthread_mutex_unlock(&log->lock);
}

void shared_log_queued(struct shared_log *log, const struct proto_queued *m)
{
	pthread_mutex_lock(&log->lock);
	log->queued = *m;
	log->is_queued = true;
	wake_readers(log);
	pthread_mutex_unlock(&log->lock);
}

static void drop(struct shared_log *log, uint64_t to)
{
	size_t n = (size_t)(to - log->base);
	if (n == 0)
		return;
	buf_consume(&log->bytes, n);
	log->base = to;
	log->whole = false;
	count_bytes(-(int64_t)n);
}

static struct shared_reader *slowest(const struct shared_log *log)
{
	struct shared_reader *last = NULL;
	list_each(it, &log->readers) {
		struct shared_reader *rd = list_entry(it, struct shared_reader, node);
		if (!rd->lost && (last == NULL || rd->at < last->at))
			last = rd;
	}
	return last;
}

static void lose(struct shared_reader *rd)
{
	rd->lost = true;
	metric_add(&readers_lost, 1);
	wake(rd);
}

/* Nobody joins any more; what its readers have taken goes. The slowest of them, or NULL. */
static struct shared_reader *shut(struct shared_log *log)
{
	struct shared_reader *last = slowest(log);
	log->whole = false;
	drop(log, last != NULL ? last->at : log->base + log->bytes.len);
	if (last == NULL)
		buf_clear(&log->bytes, 0);
	return last;
}

/* For n bytes. False: they are not worth keeping. */
static bool make_room(struct shared_log *log, size_t n)
{
	bool kept = log->n_readers > 0 || atomic_load(&all_bytes) + n <= TWIN_ALL_BYTES;
	if (log->whole && kept && log->bytes.len + n <= TWIN_LOG_BYTES)
		return true;
	for (struct shared_reader *last; (last = shut(log)) != NULL; lose(last))
		if (log->bytes.len + n <= TWIN_LOG_BYTES)
			return true;
	return false;
}

/* All or nothing. */
static int put(struct shared_log *log, const struct piece *p, const void *records, const void *text, const void *pieces)
{
	size_t n_records = p->kind == TWIN_TOKENS ? (size_t)p->n * (12 + 8 * (size_t)p->n_top) : 0;
	size_t n = sizeof *p + n_records + p->n_text + p->n_pieces;
	uint8_t *to;
	int rc = buf_reserve(&log->bytes, n, &to);
	if (rc != 0)
		return rc;
	memcpy(to, p, sizeof *p);
	to += sizeof *p;
	if (n_records > 0)
		memcpy(to, records, n_records);
	if (p->n_text > 0)
		memcpy(to + n_records, text, p->n_text);
	if (p->n_pieces > 0)
		memcpy(to + n_records + p->n_text, pieces, p->n_pieces);
	buf_commit(&log->bytes, n);
	count_bytes((int64_t)n);
	return 0;
}

static void lose_all(struct shared_log *log)
{
	list_each(it, &log->readers) {
		struct shared_reader *rd = list_entry(it, struct shared_reader, node);
		if (!rd->lost)
			lose(rd);
	}
	(void)shut(log);
}

static void add(struct shared_log *log, const struct piece *p, const void *records, const void *text,
		const void *pieces)
{
	size_t most = sizeof *p + (size_t)p->n * (12 + 8 * (size_t)p->n_top) + p->n_text + p->n_pieces;
	pthread_mutex_lock(&log->lock);
	if (most > TWIN_LOG_BYTES)
		lose_all(log);
	else if (make_room(log, most) && put(log, p, records, text, pieces) != 0)
		lose_all(log);
	else
		wake_readers(log);
	pthread_mutex_unlock(&log->lock);
}

void shared_log_tokens(struct shared_log *log, const struct proto_tokens *m)
{
	const struct piece p = {.kind = TWIN_TOKENS,
				.choice = m->choice,
				.n_top = m->n_top,
				.n = m->n,
				.n_text = (uint32_t)m->text.n,
				.n_pieces = (uint32_t)m->pieces.all.n};
	add(log, &p, m->records, m->text.at, m->pieces.all.at);
}

void shared_log_choice(struct shared_log *log, const struct proto_choice *m)
{
	const struct piece p = {
	    .kind = TWIN_CHOICE, .choice = m->choice, .finish = m->finish, .length_why = m->length_why};
	add(log, &p, NULL, NULL, NULL);
}

void shared_log_end(struct shared_log *log, const struct proto_done *m)
{
	pthread_mutex_lock(&log->lock);
	BUG_IF(log->ended, "a shared answer ends twice");
	log->ended = true;
	log->home = NULL;
	log->done = *m;
	log->done.message = (struct proto_str){"", 0};
	if (m->message.n > 0 && (log->text_of_done = sl_strndup(m->message.at, m->message.n)) != NULL)
		log->done.message = (struct proto_str){log->text_of_done, m->message.n};
	wake_readers(log);
	pthread_mutex_unlock(&log->lock);
	log->on_end(log->on_end_ctx, log);
}

unsigned shared_log_readers(struct shared_log *log, uint64_t *most)
{
	pthread_mutex_lock(&log->lock);
	unsigned n = log->n_readers;
	*most = log->most;
	pthread_mutex_unlock(&log->lock);
	return n;
}

/* ---- readers ---- */

static void reader_free(struct shared_reader *rd)
{
	shared_log_unref(rd->log);
	buf_dispose(&rd->piece);
	sl_free(rd);
}

static void on_wake(struct gw_thread *t, struct gw_message *m)
{
	struct shared_reader *rd = list_entry(m, struct shared_reader, message);
	(void)t;
	pthread_mutex_lock(&rd->log->lock);
	bool closed = rd->closed;
	rd->posted = false;
	pthread_mutex_unlock(&rd->log->lock);
	if (closed)
		reader_free(rd);
	else
		rd->ready(rd->ctx);
}

int twin_read(struct shared_log *log, struct gw_thread *t, void (*ready)(void *ctx), void *ctx,
	      struct shared_reader **out)
{
	struct shared_reader *rd = sl_zalloc(sizeof *rd);
	if (rd == NULL)
		return SL_ENOMEM;
	*rd = (struct shared_reader){.message = {.run = on_wake}, .log = log, .t = t, .ready = ready, .ctx = ctx};
	buf_init(&rd->piece, TWIN_LOG_BYTES);
	pthread_mutex_lock(&log->lock);
	bool may = joinable(log);
	if (may) {
		log->refs++;
		log->n_readers++;
		list_push_back(&log->readers, &rd->node);
		wake(rd);
		wake_owner(log);
	}
	pthread_mutex_unlock(&log->lock);
	if (!may) {
		sl_free(rd);
		return SL_ERANGE;
	}
	*out = rd;
	return 0;
}

/* Under the lock: a copy of the next message, whole. */
static bool take_piece(struct shared_reader *rd, struct piece *p)
{
	const uint8_t *from = buf_data(&rd->log->bytes) + (rd->at - rd->log->base);
	memcpy(p, from, sizeof *p);
	size_t n_records = p->kind == TWIN_TOKENS ? (size_t)p->n * (12 + 8 * (size_t)p->n_top) : 0;
	size_t n = n_records + p->n_text + p->n_pieces;
	buf_clear(&rd->piece, SIZE_MAX);
	if (n > 0 && buf_append(&rd->piece, from + sizeof *p, n) != 0)
		return false;
	rd->at += sizeof *p + n;
	return true;
}

static void tell_tokens(const struct shared_reader *rd, const struct piece *p, struct proto_tokens *out)
{
	size_t n_records = (size_t)p->n * (12 + 8 * (size_t)p->n_top);
	const uint8_t *at = buf_data(&rd->piece);
	*out = (struct proto_tokens){.n = p->n,
				     .choice = p->choice,
				     .n_top = p->n_top,
				     .records = at,
				     .text = {(const char *)at + n_records, p->n_text}};
	out->pieces.all = (struct proto_str){(const char *)at + n_records + p->n_text, p->n_pieces};
}

void twin_next(struct shared_reader *rd, struct shared_event *out)
{
	struct shared_log *log = rd->log;
	struct piece p;
	out->kind = TWIN_NOTHING;
	if (rd->ended)
		return;
	pthread_mutex_lock(&log->lock);
	if (rd->lost) {
		out->kind = TWIN_LOST;
	} else if (log->is_queued && !rd->had_queued) {
		rd->had_queued = true;
		out->kind = TWIN_QUEUED;
		out->u.queued = log->queued;
	} else if (rd->at < log->base + log->bytes.len) {
		bool taken = take_piece(rd, &p);
		rd->lost = !taken;
		out->kind = taken ? (enum coalesce_kind)p.kind : TWIN_LOST;
	} else if (log->ended) {
		out->kind = TWIN_DONE;
		out->u.done = log->done;
	}
	pthread_mutex_unlock(&log->lock);
	rd->ended = out->kind == TWIN_DONE || out->kind == TWIN_LOST;
	if (out->kind == TWIN_TOKENS)
		tell_tokens(rd, &p, &out->u.tokens);
	else if (out->kind == TWIN_CHOICE)
		out->u.choice =
		    (struct proto_choice){.choice = p.choice, .finish = p.finish, .length_why = p.length_why};
}

uint64_t twin_seed(struct shared_reader *rd)
{
	pthread_mutex_lock(&rd->log->lock);
	uint64_t seed = rd->log->seed;
	pthread_mutex_unlock(&rd->log->lock);
	return seed;
}

void twin_moved(struct shared_reader *rd, uint64_t n)
{
	struct shared_log *log = rd->log;
	pthread_mutex_lock(&log->lock);
	if (n > log->most) {
		log->most = n;
		wake_owner(log);
	}
	pthread_mutex_unlock(&log->lock);
}

void twin_close(struct shared_reader *rd)
{
	struct shared_log *log = rd->log;
	pthread_mutex_lock(&log->lock);
	rd->closed = true;
	list_remove(&rd->node);
	if (--log->n_readers == 0)
		wake_owner(log);
	bool posted = rd->posted;
	pthread_mutex_unlock(&log->lock);
	if (!posted)
		reader_free(rd); /* otherwise when its message arrives */
}
