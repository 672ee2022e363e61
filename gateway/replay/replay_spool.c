/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a replay log to the store: first the stream's head and its entry in the list of running streams, then its
 * events in batches of 32 or of a quarter of a second, finally its end. It keeps no events: the log holds them until
 * they are stored. One operation at a time, off the event path.
 *
 *   HEAD ──► RUN ──► EVENTS ──end stored──► UNRUN ──► UNHEAD ──► gone
 *     │       │         └──deleted────► UNEVENTS ─┘
 *     └───────┴── given up: this process only
 *
 * Failed writes are retried. The spool gives up when the log has dropped events that are not stored, when the store has
 * lost events, or when the log ended too long ago. An append may be repeated, and may find that another gateway (which
 * considered this one dead) has appended the same events: then it continues after them.
 *
 * spool_rewrite writes the head again, before more events.
 *
 * The spool holds a reference to its log. Owned by the answer until spool_end, then by its store.
 */
#include "gateway/replay/replay_store_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/exchange/exchange.h"

enum {
	BATCH_EVENTS = 32,
	BATCH_MS = 250,
	BATCH_BYTES = 256 << 10,
	RETRY_MS = 200,
	MOST_RETRIES_AT_END = 50,
	MAX_EVENT = 64 << 20,
	MAX_HEAD = 1 << 20, /* the store's own, unless configured */
};

enum spool_stage { SPOOL_HEAD, SPOOL_RUN, SPOOL_EVENTS, SPOOL_UNEVENTS, SPOOL_UNRUN, SPOOL_UNHEAD };

struct spool {
	struct list node; /* first: replay_store.c */
	struct replay_store *store;
	struct replay_log *log; /* a reference */
	uint64_t tenant;
	enum spool_stage stage;
	struct cache_op op;
	struct gw_timer timer;
	struct sl_buf head;
	uint64_t next;   /* the first event that the store does not have */
	uint32_t n_sent; /* events of the append on its way; 0: the end */
	bool background, ended, given_up, unwritten;
	bool rewrite;                 /* the head is to be written again */
	bool rewriting;               /* it is being written */
	bool outdated;                /* a newer head has come meanwhile */
	void (*rewritten)(void *ctx); /* NULL: no caller waits */
	void *rewritten_ctx;
	void (*begun)(void *ctx); /* the same for HEAD and RUN */
	void *begun_ctx;
	unsigned retries; /* since the end */
	struct replay_usage usage;
	struct cache_key stop_note, read_note;
};

static void run(struct spool *sp);

static struct spool *of_op(struct cache_op *op) { return list_entry(op, struct spool, op); }

static void spool_free(struct spool *sp)
{
	cache_cancel(&sp->op);
	gw_timer_stop(&sp->store->app->t->timers, &sp->timer);
	list_remove(&sp->node);
	sp->store->n_spools--;
	metric_add(&replay_m_spools, -1);
	buf_dispose(&sp->head);
	replay_unref(sp->log);
	sl_free(sp);
}

static void call_rewritten(struct spool *sp)
{
	void (*done)(void *ctx) = sp->rewritten;
	sp->rewritten = NULL;
	if (done != NULL)
		done(sp->rewritten_ctx);
}

static void call_begun(struct spool *sp)
{
	void (*begun)(void *ctx) = sp->begun;
	sp->begun = NULL;
	if (begun != NULL)
		begun(sp->begun_ctx);
}

static void give_up(struct spool *sp, const char *why)
{
	log_warn("a stream is kept in this process only: %s", why);
	metric_add(&replay_m_lost, 1);
	sp->given_up = true;
	if (sp->ended) {
		spool_free(sp);
		return;
	}
	call_begun(sp);
	call_rewritten(sp);
}

static void later(struct spool *sp, uint64_t ms)
{
	gw_timer_start(&sp->store->app->t->timers, &sp->timer, ms * NS_PER_MS);
}

static void failed(struct spool *sp)
{
	metric_add(&replay_m_failures, 1);
	if (sp->ended && ++sp->retries > MOST_RETRIES_AT_END) {
		give_up(sp, "the store does not answer");
		return;
	}
	later(sp, RETRY_MS);
	call_begun(sp); /* callers do not wait for a failing store */
	call_rewritten(sp);
}

static bool well(const struct cache_result *r) { return r->code == 0 && !r->degraded; }

/* ---- records other than events ---- */

static void on_put(struct cache_op *op, const struct cache_result *r)
{
	struct spool *sp = of_op(op);
	if (!well(r)) {
		sp->rewriting = sp->outdated = false;
		failed(sp);
		return;
	}
	if (sp->rewriting && sp->outdated) {
		sp->rewriting = sp->outdated = false;
	} else if (sp->rewriting) {
		sp->rewriting = sp->rewrite = false;
		buf_dispose(&sp->head);
		call_rewritten(sp);
	} else {
		sp->stage = sp->stage == SPOOL_HEAD ? SPOOL_RUN : SPOOL_EVENTS;
		if (!sp->rewrite)
			buf_dispose(&sp->head);
		if (sp->stage == SPOOL_EVENTS)
			call_begun(sp);
	}
	run(sp);
}

/* The bound of a batch. */
static size_t most_bytes(const struct spool *sp)
{
	size_t most = sp->store->app->t->cfg->store.value_bytes;
	return most > 0 && most < BATCH_BYTES ? most : BATCH_BYTES;
}

static size_t most_head_bytes(const struct spool *sp)
{
	size_t most = sp->store->app->t->cfg->store.value_bytes;
	return (most > 0 ? most : MAX_HEAD) - 1;
}

static void put_head(struct spool *sp)
{
	struct cache_key key;
	/* A head that is too large is stored without its request: other gateways can read the stream, but not continue
	 * it. */
	if (sp->head.len > most_head_bytes(sp))
		buf_cut(&sp->head, strnlen((const char *)buf_data(&sp->head), sp->head.len - 1) + 1);
	if (sp->head.len > most_head_bytes(sp)) {
		give_up(sp, "its head is too large for the store");
		return;
	}
	replay_key(&key, REPLAY_HEAD, sp->tenant, replay_id(sp->log));
	cache_put(sp->store->cache, &sp->op, &key, REPLAY_VERSION, buf_data(&sp->head), sp->head.len,
		  replay_run_ms(sp->store->app), on_put);
}

static void put_run(struct spool *sp)
{
	struct cache_key key;
	char text[REPLAY_MAX_ID + 32];
	int n = snprintf(text, sizeof text, "%c %016llx %s", sp->background ? 'b' : 'r', (unsigned long long)sp->tenant,
			 replay_id(sp->log));
	replay_owner_key(&key, REPLAY_RUN, sp->store->owner, replay_id(sp->log));
	cache_put(sp->store->cache, &sp->op, &key, REPLAY_VERSION, text, (size_t)n, replay_run_ms(sp->store->app),
		  on_put);
}

static void on_deleted(struct cache_op *op, const struct cache_result *r)
{
	struct spool *sp = of_op(op);
	/* Its remaining records expire; a gateway that finds them finds the end in the log, too. */
	if (well(r) && sp->stage != SPOOL_UNHEAD) {
		sp->stage = sp->stage == SPOOL_UNEVENTS ? SPOOL_UNRUN : SPOOL_UNHEAD;
		run(sp);
	} else {
		spool_free(sp);
	}
}

static void delete_key(struct spool *sp)
{
	struct cache_key key;
	if (sp->stage == SPOOL_UNRUN)
		replay_owner_key(&key, REPLAY_RUN, sp->store->owner, replay_id(sp->log));
	else
		replay_key(&key, sp->stage == SPOOL_UNEVENTS ? REPLAY_EVENTS : REPLAY_HEAD, sp->tenant,
			   replay_id(sp->log));
	cache_delete(sp->store->cache, &sp->op, &key, on_deleted);
}

/* ---- events ---- */

static void on_appended(struct cache_op *op, const struct cache_result *r)
{
	struct spool *sp = of_op(op);
	uint64_t all = replay_next(sp->log);
	if (r->code == SL_ERANGE && !r->degraded && r->next_seq > sp->next && r->next_seq <= all + 1) {
		sp->next = r->next_seq < all ? r->next_seq : all;
		if (r->next_seq > all && sp->ended)
			sp->stage = SPOOL_UNRUN;
	} else if (r->code == SL_ERANGE && !r->degraded) {
		give_up(sp, "the store has lost some of its events");
		return;
	} else if (!well(r)) {
		failed(sp);
		return;
	} else if (sp->n_sent > 0) {
		sp->next += sp->n_sent;
	} else {
		sp->stage = SPOOL_UNRUN;
	}
	run(sp);
}

static uint64_t events_ttl_ms(const struct spool *sp)
{
	const struct gw_app *app = sp->store->app;
	uint64_t keep_ms = app->t->cfg->resume.keep_ms;
	return sp->n_sent > 0 ? replay_run_ms(app) : keep_ms > 0 ? keep_ms : 1;
}

static void append(struct spool *sp)
{
	uint8_t end[REPLAY_END_BYTES] = {REPLAY_BATCH_END};
	struct cache_key key;
	struct sl_buf batch;
	uint8_t kind = REPLAY_BATCH_EVENTS;
	buf_init(&batch, MAX_EVENT);
	int rc = buf_append(&batch, &kind, 1);
	if (rc == 0)
		rc = replay_copy(sp->log, sp->next, BATCH_EVENTS, most_bytes(sp), &batch, &sp->n_sent);
	if (rc == 0 && sp->n_sent == 0) { /* no more events: the end */
		memcpy(end + 1, &sp->usage.n_prompt, 4);
		memcpy(end + 5, &sp->usage.n_completion, 4);
		buf_clear(&batch, SIZE_MAX);
		rc = buf_append(&batch, end, sizeof end);
	}
	if (rc == 0 && batch.len > most_head_bytes(sp))
		rc = SL_ELIMIT;
	replay_key(&key, REPLAY_EVENTS, sp->tenant, replay_id(sp->log));
	if (rc == 0)
		cache_log_append(sp->store->cache, &sp->op, &key, sp->next, sp->n_sent > 0 ? sp->n_sent : 1,
				 buf_data(&batch), batch.len, events_ttl_ms(sp), on_appended);
	buf_dispose(&batch);
	if (rc == SL_ENOMEM)
		failed(sp);
	else if (rc != 0)
		give_up(sp, rc == SL_ELIMIT ? "one of its events is too large for the store"
					    : "it dropped events that were not stored yet");
}

/* ---- its one operation ---- */

static bool is_due(const struct spool *sp)
{
	uint64_t n = replay_next(sp->log) - sp->next;
	return sp->stage != SPOOL_EVENTS || sp->ended || sp->rewrite || n >= BATCH_EVENTS || (n > 0 && sp->next == 0);
}

/* Starts the next write, now or when it is due. */
static void run(struct spool *sp)
{
	if (cache_op_busy(&sp->op) || sp->given_up)
		return;
	/* Delete also what was being written when the log was deleted. */
	if (sp->ended && !sp->unwritten && replay_deleted(sp->log)) {
		sp->unwritten = true;
		sp->stage = SPOOL_UNEVENTS;
	}
	if (!is_due(sp)) {
		if (replay_next(sp->log) > sp->next && !sp->timer.node.in)
			later(sp, BATCH_MS);
		return;
	}
	gw_timer_stop(&sp->store->app->t->timers, &sp->timer);
	/* Not while the store is down: the fallback in memory is invisible to other gateways. */
	if (!replay_store_up(sp->store)) {
		failed(sp);
		return;
	}
	switch (sp->stage) {
	case SPOOL_HEAD: put_head(sp); break;
	case SPOOL_RUN: put_run(sp); break;
	case SPOOL_EVENTS:
		sp->rewriting = sp->rewrite && !sp->ended;
		if (sp->rewriting)
			put_head(sp);
		else
			append(sp);
		break;
	case SPOOL_UNEVENTS:
	case SPOOL_UNRUN:
	case SPOOL_UNHEAD: delete_key(sp); break;
	}
}

static void on_timer(struct gw_timer *timer)
{
	struct spool *sp = list_entry(timer, struct spool, timer);
	if (cache_op_busy(&sp->op) || sp->given_up)
		return;
	if (sp->stage == SPOOL_EVENTS && !sp->ended && !sp->rewrite && replay_next(sp->log) > sp->next &&
	    replay_store_up(sp->store))
		append(sp);
	else
		run(sp);
}

/* ---- the owner ---- */

struct spool *spool_open(struct replay_store *s, struct replay_log *log, uint64_t tenant, uint64_t from,
			 const void *head, size_t n_head, bool background)
{
	struct spool *sp = replay_store_on(s) ? sl_zalloc(sizeof *sp) : NULL;
	if (sp == NULL)
		return NULL;
	buf_init(&sp->head, n_head);
	if (buf_append(&sp->head, head, n_head) != 0) {
		buf_dispose(&sp->head);
		sl_free(sp);
		return NULL;
	}
	sp->store = s;
	sp->log = replay_ref(log);
	sp->tenant = tenant;
	sp->next = from;
	sp->background = background;
	gw_timer_init(&sp->timer, on_timer);
	replay_owner_key(&sp->stop_note, REPLAY_NOTE_STOP, s->owner, replay_id(log));
	replay_owner_key(&sp->read_note, REPLAY_NOTE_READ, s->owner, replay_id(log));
	list_push_back(&s->spools, &sp->node);
	s->n_spools++;
	metric_add(&replay_m_spools, 1);
	run(sp);
	return sp;
}

bool spool_rewrite(struct spool *sp, const void *head, size_t n, void (*done)(void *ctx), void *ctx)
{
	if (sp->given_up || sp->ended || !replay_store_up(sp->store))
		return false;
	struct sl_buf newer;
	buf_init(&newer, n);
	if (buf_append(&newer, head, n) != 0)
		return false;
	buf_dispose(&sp->head); /* the store's client has copied a head that is being written */
	sp->head = newer;
	sp->rewritten = done;
	sp->rewritten_ctx = ctx;
	sp->rewrite = true;
	sp->outdated = sp->rewriting;
	run(sp);
	return true;
}

bool spool_await(struct spool *sp, void (*begun)(void *ctx), void *ctx)
{
	if (sp->given_up || sp->ended || !cache_op_busy(&sp->op) || (sp->stage != SPOOL_HEAD && sp->stage != SPOOL_RUN))
		return false;
	sp->begun = begun;
	sp->begun_ctx = ctx;
	return true;
}

void spool_moved(struct spool *sp)
{
	if (sp != NULL)
		run(sp);
}

void spool_end(struct spool *sp, const struct replay_usage *usage)
{
	if (sp == NULL)
		return;
	sp->ended = true;
	sp->rewritten = sp->begun = NULL;
	sp->usage = *usage;
	if (sp->given_up)
		spool_free(sp);
	else
		run(sp);
}

void spool_leave(struct spool *sp)
{
	if (sp != NULL)
		spool_free(sp);
}

void spool_stop(struct spool *sp) { spool_free(sp); }

bool spool_works(const struct spool *sp)
{
	return sp != NULL && !sp->given_up && sp->stage == SPOOL_EVENTS && !sp->rewrite && replay_store_up(sp->store);
}

bool spool_is_noted(struct spool *sp, const void *digest)
{
	const size_t n = CACHE_DIGEST_LEN;
	if (memcmp(sp->stop_note.text + sp->stop_note.len - n, digest, n) == 0) {
		replay_stop(sp->log);
		return true;
	}
	if (memcmp(sp->read_note.text + sp->read_note.len - n, digest, n) == 0) {
		replay_touch(sp->log);
		return true;
	}
	return false;
}
