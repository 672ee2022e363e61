/* SPDX-License-Identifier: Apache-2.0
 *
 * A log is three buffers: records of one size, text and pieces. Thousands of logs get one token each in a step, so the
 * cost of a token is the cache lines it touches: an emptied buffer begins at the front of its memory again, so a reader
 * that keeps up uses the same record and the same bytes over and over.
 *
 * Messages between threads: each reader, and the writer of a shared log, is its own message, posted at most once at a
 * time, under the lock and only until it closes. One that closes while posted is released on arrival. Threads empty
 * their inbox before they end.
 */
#include "gateway/generation/token_log.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/metrics.h"

enum {
	/* A token rarely has more than a few bytes, and the held-back beginning of a stop string is released with one.
	 * Beyond it the generation fails rather than grow. */
	MAX_TEXT = 4 << 20,
	KEEP_BYTES = 1 << 10, /* of each buffer of an emptied log that was shared */
};

struct record {
	uint32_t end[TOKEN_RECORDS]; /* of the token's text and pieces, counted from token 0, modulo 2^32 */
	float logprob;
	uint32_t id;
	uint8_t choice;
	struct proto_id_f32 tops[]; /* [n_top] */
};

/* Also the writer of a shared log, which is never lost. */
struct token_reader {
	struct gw_message message;
	struct list node;
	struct token_log *log; /* a reference, until it is released */
	struct gw_thread *t;   /* NULL: a shared log without a writer yet */
	void (*ready)(void *ctx);
	void *ctx;
	uint64_t at; /* it has the tokens before */
	bool lost, posted, closed;
};

struct token_share {
	struct token_log log;
	void (*on_end)(void *ctx, struct token_log *log);
	void *on_end_ctx;
	struct coalesce_name *name;
	atomic_int refs;
	pthread_mutex_t lock; /* of the log and all below */
	bool whole;
	size_t bytes; /* counted in bytes_kept */
	struct token_reader writer;
	struct list readers; /* without the writer */
	unsigned n_readers;
	uint64_t most;
};

GAUGE(bytes_kept, "sluice_twins_bytes", "Bytes kept of answers that twins may join");
COUNTER(readers_lost, "sluice_twins_lost_total", "Twins that were too slow for what they shared");
COUNTER(tokens_logged, "sluice_tokens_logged_total", "Tokens appended to logs of generations");

/* ---- tokens ---- */

static const struct record *record_at(const struct token_log *log, uint64_t index)
{
	return (const void *)(buf_data(&log->parts[TOKEN_RECORDS]) + (index - log->first) * log->record_bytes);
}

/* Where token `index`, or the next one to come, begins in a part. */
static uint32_t begin_of(const struct token_log *log, uint64_t index, int part)
{
	if (index == log->first)
		return 0;
	return part == TOKEN_RECORDS ? (uint32_t)(index - log->first) * log->record_bytes
				     : record_at(log, index - 1)->end[part] - log->base[part];
}

static struct proto_str bytes_of(const struct token_log *log, uint64_t first, uint64_t end, int part)
{
	uint32_t from = begin_of(log, first, part), to = begin_of(log, end, part);
	return to > from ? (struct proto_str){(const char *)buf_data(&log->parts[part]) + from, to - from}
			 : (struct proto_str){"", 0};
}

/* All or nothing. */
static int append(struct token_log *log, const struct proto_tokens *m)
{
	struct sl_buf *text = &log->parts[TOKEN_TEXT], *pieces = &log->parts[TOKEN_PIECES];
	struct proto_str left = m->pieces.all;
	uint8_t *at, *unused;
	int rc = buf_reserve(&log->parts[TOKEN_RECORDS], (size_t)m->n * log->record_bytes, &at);
	if (rc == 0 && left.n > 0)
		rc = buf_reserve(pieces, left.n, &unused);
	if (rc == 0)
		rc = buf_append(text, m->text.at, m->text.n);
	if (rc != 0)
		return rc;
	(void)buf_append(pieces, left.at, left.n);
	uint32_t text_end = log->base[TOKEN_TEXT] + text->len - (uint32_t)m->text.n;
	uint32_t pieces_end = log->base[TOKEN_PIECES] + pieces->len;
	for (uint16_t i = 0; i < m->n; i++, at += log->record_bytes) {
		struct proto_token t = proto_token_at(m, i);
		struct record *r = (void *)at;
		text_end += t.n_bytes;
		for (int k = 0; left.n > 0 && k <= m->n_top; k++)
			proto_piece_next(&left);
		*r = (struct record){{text_end, pieces_end - (uint32_t)left.n}, t.logprob, t.id, m->choice};
		for (uint8_t k = 0; k < log->n_top; k++)
			r->tops[k] = k < m->n_top ? proto_top_at(m, i, k) : (struct proto_id_f32){.v = -INFINITY};
	}
	buf_commit(&log->parts[TOKEN_RECORDS], (size_t)m->n * log->record_bytes);
	log->end += m->n;
	metric_add(&tokens_logged, m->n);
	return 0;
}

static void drop(struct token_log *log, uint64_t to)
{
	if (to <= log->first)
		return;
	uint32_t n[TOKEN_PARTS];
	for (int k = 0; k < TOKEN_PARTS; k++)
		n[k] = to == log->end ? log->parts[k].len : begin_of(log, to, k);
	for (int k = 0; k < TOKEN_PARTS; k++) {
		buf_consume(&log->parts[k], n[k]);
		log->base[k] += n[k];
	}
	log->first = to;
}

bool token_log_run(const struct token_log *log, uint64_t at, uint32_t most, struct gen_chunk *out)
{
	if (at >= log->end)
		return false;
	uint64_t end = at, last = log->end - at > most ? at + most : log->end;
	uint8_t choice = record_at(log, at)->choice;
	while (end < last && record_at(log, end)->choice == choice)
		end++;
	struct proto_str text = bytes_of(log, at, end, TOKEN_TEXT);
	*out = (struct gen_chunk){
	    .first_token = at, .n_tokens = (uint32_t)(end - at), .choice = choice, .text = text.at, .n_bytes = text.n};
	return true;
}

void token_log_token(const struct token_log *log, uint64_t index, struct gen_token *out)
{
	BUG_IF(index < log->first || index >= log->end, "token %llu is not in the log", (unsigned long long)index);
	const struct record *r = record_at(log, index);
	*out = (struct gen_token){.id = r->id,
				  .logprob = r->logprob,
				  .n_bytes = bytes_of(log, index, index + 1, TOKEN_TEXT).n,
				  .pieces = bytes_of(log, index, index + 1, TOKEN_PIECES),
				  .tops = r->tops,
				  .n_top = log->n_top};
}

/* ---- life ---- */

int token_log_init(struct token_log *log, uint8_t n_choices, uint8_t n_top, uint64_t seed)
{
	*log =
	    (struct token_log){.n_choices = n_choices,
			       .n_top = n_top,
			       .record_bytes = (uint16_t)(sizeof(struct record) + n_top * sizeof(struct proto_id_f32)),
			       .seed = seed};
	buf_init(&log->parts[TOKEN_TEXT], MAX_TEXT);
	buf_init(&log->parts[TOKEN_PIECES], MAX_TEXT);
	buf_init(&log->parts[TOKEN_RECORDS], BUF_MOST);
	log->choices = n_choices > 1 ? sl_zalloc_n(n_choices, sizeof *log->choices) : &log->only;
	return log->choices == NULL ? SL_ENOMEM : 0;
}

void token_log_dispose(struct token_log *log)
{
	for (int k = 0; k < TOKEN_PARTS; k++)
		buf_dispose(&log->parts[k]);
	sl_free(log->message);
	if (log->choices != &log->only)
		sl_free(log->choices);
}

struct token_log *token_log_create(void (*ended)(void *ctx, struct token_log *log), void *ctx)
{
	struct token_share *sh = sl_zalloc(sizeof *sh);
	if (sh == NULL)
		return NULL;
	*sh = (struct token_share){.log.share = sh, .on_end = ended, .on_end_ctx = ctx, .refs = 1, .whole = true};
	pthread_mutex_init(&sh->lock, NULL);
	list_init(&sh->readers);
	return &sh->log;
}

struct token_log *token_log_ref(struct token_log *log)
{
	atomic_fetch_add(&log->share->refs, 1);
	return log;
}

void token_log_unref(struct token_log *log)
{
	struct token_share *sh = log->share;
	if (atomic_fetch_sub(&sh->refs, 1) > 1)
		return;
	BUG_IF(!list_empty(&sh->readers), "a shared answer is freed under its readers");
	metric_add(&bytes_kept, -(int64_t)sh->bytes);
	token_log_dispose(log);
	pthread_mutex_destroy(&sh->lock);
	sl_free(sh);
}

void token_log_set_name(struct token_log *log, struct coalesce_name *name) { log->share->name = name; }
struct coalesce_name *token_log_name(const struct token_log *log) { return log->share->name; }

static void lock(const struct token_log *log)
{
	if (log->share != NULL)
		pthread_mutex_lock(&log->share->lock);
}

static void unlock(const struct token_log *log)
{
	if (log->share != NULL)
		pthread_mutex_unlock(&log->share->lock);
}

static bool joinable(const struct token_log *log)
{
	return log->share->whole && !(log->ended && log->done.finish >= PROTO_FINISH_CANCELLED);
}

bool token_log_joinable(struct token_log *log)
{
	lock(log);
	bool is = joinable(log);
	unlock(log);
	return is;
}

/* ---- waking ---- */

static void release(struct token_reader *rd)
{
	struct token_log *log = rd->log;
	if (rd != &log->share->writer)
		sl_free(rd);
	token_log_unref(log);
}

static void on_wake(struct gw_thread *t, struct gw_message *m)
{
	struct token_reader *rd = list_entry(m, struct token_reader, message);
	(void)t;
	lock(rd->log);
	bool closed = rd->closed;
	rd->posted = false;
	unlock(rd->log);
	if (closed)
		release(rd);
	else
		rd->ready(rd->ctx);
}

/* Under the lock, as are wake_all and what is between here and the writer. */
static void wake(struct token_reader *rd)
{
	if (rd->t == NULL || rd->posted || rd->closed)
		return;
	rd->posted = true;
	gw_post(rd->t, &rd->message);
}

static void wake_readers(struct token_log *log)
{
	if (log->share == NULL)
		return;
	list_each(it, &log->share->readers)
		wake(list_entry(it, struct token_reader, node));
}

/* Takes the lock, releases it. */
static void close_unlock(struct token_reader *rd)
{
	rd->closed = true;
	bool posted = rd->posted;
	unlock(rd->log);
	if (!posted)
		release(rd);
}

/* ---- bounds ---- */

static size_t bytes_from(const struct token_log *log, uint64_t at)
{
	size_t n = 0;
	for (int k = 0; k < TOKEN_PARTS; k++)
		n += log->parts[k].len - begin_of(log, at, k);
	return n;
}

static void count_bytes(struct token_share *sh)
{
	size_t n = bytes_from(&sh->log, sh->log.first);
	metric_add(&bytes_kept, (int64_t)(n - sh->bytes));
	sh->bytes = n;
}

static void lose(struct token_reader *rd)
{
	rd->lost = true;
	metric_add(&readers_lost, 1);
	wake(rd);
}

/* From now on the log can't be joined. Readers more than TOKEN_LOG_BYTES behind, with n bytes to come, are lost; what
 * the others and the writer's subscriber have is dropped. */
static void shrink(struct token_log *log, size_t n)
{
	struct token_share *sh = log->share;
	uint64_t to = sh->writer.at;
	sh->whole = false;
	list_each(it, &sh->readers) {
		struct token_reader *rd = list_entry(it, struct token_reader, node);
		if (!rd->lost && bytes_from(log, rd->at) + n > TOKEN_LOG_BYTES)
			lose(rd);
		if (!rd->lost && rd->at < to)
			to = rd->at;
	}
	drop(log, to);
	for (int k = 0; k < TOKEN_PARTS && log->first == log->end; k++)
		buf_clear(&log->parts[k], KEEP_BYTES);
	count_bytes(sh);
}

/* ---- the writer ---- */

void token_log_own(struct token_log *log, struct token_log *from, struct gw_thread *t, void (*moved)(void *ctx),
		   void *ctx)
{
	struct token_share *sh = log->share;
	lock(log);
	BUG_IF(sh->writer.t != NULL || log->ended, "a shared answer gets a second owner");
	*log = *from;
	log->share = sh;
	if (from->choices == &from->only)
		log->choices = &log->only;
	*from = (struct token_log){0};
	sh->writer = (struct token_reader){
	    .message = {.run = on_wake}, .log = token_log_ref(log), .t = t, .ready = moved, .ctx = ctx};
	if (sh->n_readers > 0)
		wake(&sh->writer);
	unlock(log);
}

void token_log_queued(struct token_log *log, const struct proto_queued *m)
{
	lock(log);
	if (!log->is_queued) {
		log->queued = *m;
		log->is_queued = true;
		wake_readers(log);
	}
	log->queued.position = m->position;
	log->queued.predicted_ttft_us = m->predicted_ttft_us;
	unlock(log);
}

int token_log_append(struct token_log *log, const struct proto_tokens *m)
{
	struct token_share *sh = log->share;
	if (sh == NULL)
		return append(log, m);
	size_t n = (size_t)m->n * log->record_bytes + m->text.n + m->pieces.all.n;
	lock(log);
	bool kept = sh->n_readers > 0 || (size_t)metric_get(&bytes_kept) + n <= TOKEN_LOGS_BYTES;
	if (!sh->whole || !kept || sh->bytes + n > TOKEN_LOG_BYTES)
		shrink(log, n);
	int rc = append(log, m);
	if (rc != 0) {
		/* Without what is kept for readers there may be room. */
		shrink(log, TOKEN_LOG_BYTES + 1);
		rc = append(log, m);
	}
	count_bytes(sh);
	wake_readers(log);
	unlock(log);
	return rc;
}

static void end_choice(struct token_log *log, uint8_t i, const struct token_choice *end)
{
	if (log->choices[i].finish != 0)
		return;
	log->choices[i] = *end;
	log->choices[i].after = log->end;
}

void token_log_choice(struct token_log *log, const struct proto_choice *m)
{
	lock(log);
	end_choice(
	    log, m->choice,
	    &(struct token_choice){.finish = m->finish, .why = m->length_why, .stop = m->stop, .stop_at = m->stop_at});
	wake_readers(log);
	unlock(log);
}

void token_log_end(struct token_log *log, const struct proto_done *m)
{
	struct token_share *sh = log->share;
	lock(log);
	BUG_IF(log->ended, "a log ends twice");
	/* With one choice only DONE reports its end. */
	for (uint8_t i = 0; i < log->n_choices; i++)
		end_choice(log, i,
			   &(struct token_choice){
			       .finish = m->finish, .why = m->length_why, .stop = m->stop, .stop_at = m->stop_at});
	log->done = *m;
	log->ended = true;
	wake_readers(log);
	if (sh != NULL && sh->writer.t != NULL)
		close_unlock(&sh->writer);
	else
		unlock(log);
	if (sh != NULL)
		sh->on_end(sh->on_end_ctx, log);
}

struct proto_str token_log_keep(struct token_log *log, struct proto_str message)
{
	if (message.n > 0)
		log->message = sl_strndup(message.at, message.n);
	return log->message != NULL ? (struct proto_str){log->message, message.n} : (struct proto_str){"", 0};
}

void token_log_take(struct token_log *log, uint64_t to)
{
	struct token_share *sh = log->share;
	if (sh == NULL) {
		drop(log, to);
		return;
	}
	sh->writer.at = to;
	/* A log with one reference can't be found any more. */
	if (sh->whole && !(log->ended && sh->refs == 1))
		return;
	lock(log);
	shrink(log, 0);
	unlock(log);
}

unsigned token_log_readers(const struct token_log *log, uint64_t *most)
{
	*most = 0;
	if (log->share == NULL)
		return 0;
	lock(log);
	unsigned n = log->share->n_readers;
	*most = log->share->most;
	unlock(log);
	return n;
}

/* ---- readers ---- */

int token_log_read(struct token_log *log, struct gw_thread *t, void (*ready)(void *ctx), void *ctx,
		   struct token_reader **out)
{
	struct token_share *sh = log->share;
	struct token_reader *rd = sl_zalloc(sizeof *rd);
	if (rd == NULL)
		return SL_ENOMEM;
	*rd = (struct token_reader){.message = {.run = on_wake}, .log = log, .t = t, .ready = ready, .ctx = ctx};
	lock(log);
	bool may = joinable(log);
	if (may) {
		token_log_ref(log);
		sh->n_readers++;
		list_push_back(&sh->readers, &rd->node);
		wake(rd);
		wake(&sh->writer);
	}
	unlock(log);
	if (!may)
		sl_free(rd);
	else
		*out = rd;
	return may ? 0 : SL_ERANGE;
}

enum token_news token_reader_sync(struct token_reader *rd, uint64_t at, uint32_t most, struct token_log *view)
{
	const struct token_log *log = rd->log;
	lock(log);
	uint64_t had = view->end, end = log->end - at < most ? log->end : at + most;
	bool good = !rd->lost, same = end <= had;
	for (int k = 0; k < TOKEN_PARTS && good; k++) {
		struct proto_str bytes = bytes_of(log, at, end, k);
		view->base[k] = log->base[k] + begin_of(log, at, k);
		buf_clear(&view->parts[k], SIZE_MAX);
		good = buf_append(&view->parts[k], bytes.at, bytes.n) == 0;
	}
	for (uint8_t i = 0; i < log->n_choices && good; i++) {
		const struct token_choice *c = &log->choices[i];
		same = same && c->finish == view->choices[i].finish;
		uint64_t arrived_ns = view->choices[i].token_ns; /* at this reader */
		view->choices[i] = *c;
		view->choices[i].token_ns = arrived_ns;
	}
	if (good) {
		rd->at = view->first = at;
		view->end = end;
		view->is_queued = log->is_queued;
		view->seed = log->seed;
		view->queued = log->queued;
		view->done = log->done;
	} else if (!rd->lost) {
		lose(rd);
	}
	bool all = log->ended && end == log->end;
	unlock(log);
	return !good ? TOKEN_LOST : all ? TOKEN_ALL : same ? TOKEN_NOTHING : TOKEN_MORE;
}

void token_reader_moved(struct token_reader *rd, uint64_t n)
{
	struct token_share *sh = rd->log->share;
	lock(rd->log);
	if (n > sh->most) {
		sh->most = n;
		wake(&sh->writer);
	}
	unlock(rd->log);
}

void token_reader_close(struct token_reader *rd)
{
	struct token_share *sh = rd->log->share;
	lock(rd->log);
	list_remove(&rd->node);
	if (--sh->n_readers == 0)
		wake(&sh->writer);
	close_unlock(rd);
}
