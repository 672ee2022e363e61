/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads streams of other gateways: a copy of the log in this process, filled from the store by polling until its end.
 * If the owner is dead, this gateway claims the stream, and the answer continues here with the same log (resume.c); its
 * readers notice nothing.
 *
 *   READ ──nothing new──► HEAD ──► LEASE ──alive──► (wait, note) ──► READ …
 *    │ end: gone                     └──dead──► CLAIM ──mine──► UNRUN ──► READ to the last ──► resume
 *    └ nothing there at all: HEAD; not there either: no such stream    └──another's──► LEASE of that one
 *
 * An owner is dead if its process on this machine has ended, or if its lease was missing twice, some time apart: a
 * short outage of the store must not make every gateway look dead. A degraded response of the store proves nothing.
 * Only one gateway can write a claim; its key names the dead owner, so each death is claimed once, and the claim of a
 * gateway that died before it wrote the head leads to that gateway.
 *
 * A process has one copy of a stream: the directory of logs (replay.h) decides between two threads. A copy without
 * readers is dropped, unless the sweep (replay_sweep.c) began it and its owner is dead.
 */
#include "gateway/replay/replay_store_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/resume/resume.h"
#include "gateway/resume/replay_follow.h"
#include "gateway/exchange/exchange.h"
#include "gateway/answer/sse.h"

enum {
	POLL_LEAST_MS = 50,
	POLL_MOST_MS = 200,
	RETRY_MS = 200,
	LOOK_IDLE_MS = 300, /* between checks of the owner, without new events */
	LOOK_MS = 2000,     /* and with new events */
	TWICE_MS = 1500,    /* between the two checks for a missing lease */
	ORPHAN_MS = 600000, /* after that its readers get an error event */
	HEADLESS_MS = 10000,
	READ_BYTES = 256 << 10,
	MAX_RECORD = 256 << 20,
	MAX_FOLLOWS = 4096,
	STOP_NOTE_MS = 60000,
	MOST_HOPS = 8,
};

enum follow_stage { FOLLOW_READ, FOLLOW_HEAD, FOLLOW_LEASE, FOLLOW_NOTE, FOLLOW_CLAIM, FOLLOW_UNRUN };

struct follow {
	struct list node; /* first: replay_store.c */
	struct replay_store *store;
	char id[REPLAY_MAX_ID];
	uint64_t tenant;
	struct replay_log *log; /* the owner's reference; NULL: nothing found yet */
	struct list finders;    /* struct replay_find */
	struct cache_op op;
	struct gw_timer timer;
	enum follow_stage stage;
	struct sl_buf head;
	char owner[REPLAY_OWNER_CHARS];   /* "": unknown */
	char doubted[REPLAY_OWNER_CHARS]; /* the owner whose lease was missing at dead_ns */
	unsigned hops;                    /* from one dead owner to the one that claimed it */
	uint64_t next;                    /* event to read */
	uint64_t poll_ms;
	uint64_t moved_ns, looked_ns, dead_ns, noted_ns, began_ns;
	bool orphan; /* begun by the sweep */
	bool alive;  /* the owner, at the last check */
	bool claimed;
	bool head_read; /* since the claim: the owner may have rewritten the head before it died */
	bool headless;  /* neither events nor head were found, once */
	bool stop;      /* its end was requested */
	bool stop_noted;
};

static void step(struct follow *f, enum follow_stage to);

static struct follow *of_op(struct cache_op *op) { return list_entry(op, struct follow, op); }

static uint64_t since_ms(uint64_t then_ns) { return (clock_now_ns() - then_ns) / NS_PER_MS; }

/* ---- ends ---- */

/* The reference to the log must have been released. */
static void follow_free(struct follow *f)
{
	BUG_IF(f->log != NULL || !list_empty(&f->finders), "the copy of a stream is freed while it is in use");
	cache_cancel(&f->op);
	gw_timer_stop(&f->store->app->t->timers, &f->timer);
	list_remove(&f->node);
	f->store->n_follows--;
	metric_add(&replay_m_follows, -1);
	buf_dispose(&f->head);
	sl_free(f);
}

/* Calls every waiting find; each gets its own reference to log, unless that is NULL. */
static void call_finders(struct follow *f, struct replay_log *log, int code)
{
	while (!list_empty(&f->finders)) {
		struct replay_find *one = list_entry(f->finders.next, struct replay_find, node);
		list_remove(&one->node);
		if (log != NULL)
			replay_ref(log);
		one->done(one, log, code);
	}
}

static void end_log(struct follow *f, const struct replay_usage *usage)
{
	replay_end(f->log, usage);
	f->log = NULL;
}

/* Its end will not be known: its readers get an error event. */
static void fail(struct follow *f, const char *message)
{
	static const struct api_error e = {503, "server_error", "not_continued", NULL, 0};
	struct sl_buf event;
	log_warn("the stream of another gateway: %s", message);
	metric_add(&replay_m_uncontinued, 1);
	call_finders(f, f->log, f->log != NULL ? 0 : SL_ENOTFOUND);
	if (f->log != NULL) {
		buf_init(&event, MAX_RECORD);
		replay_break(f->log);
		if (sse_error(&event, &e, message) == 0)
			(void)replay_append(f->log, buf_data(&event), event.len);
		buf_dispose(&event);
		end_log(f, &(struct replay_usage){0});
	}
	follow_free(f);
}

/* Nothing was found, or the store did not respond. */
static void end_unknown(struct follow *f, int code)
{
	call_finders(f, NULL, code);
	follow_free(f);
}

static void follow_stop(struct follow *f)
{
	call_finders(f, NULL, SL_ECLOSED);
	if (f->log != NULL)
		end_log(f, &(struct replay_usage){0});
	follow_free(f);
}

/* ---- waiting ---- */

static void later(struct follow *f, uint64_t ms)
{
	gw_timer_start(&f->store->app->t->timers, &f->timer, ms * NS_PER_MS);
}

/* Drops a copy without readers. True: f has been freed. */
static bool drop_unused(struct follow *f)
{
	if (!list_empty(&f->finders) || f->claimed || f->stop || (f->orphan && !f->alive))
		return false;
	if (f->log != NULL && !replay_drop_unused(f->log))
		return false;
	f->log = NULL;
	follow_free(f);
	return true;
}

static uint64_t note_ms(const struct follow *f)
{
	uint64_t ms = f->store->app->t->cfg->resume.grace_ms / 4;
	return ms < POLL_LEAST_MS ? POLL_LEAST_MS : ms < REPLAY_BEAT_MS ? ms : REPLAY_BEAT_MS;
}

static void on_timer(struct gw_timer *timer)
{
	struct follow *f = list_entry(timer, struct follow, timer);
	if (cache_op_busy(&f->op) || drop_unused(f))
		return;
	bool note = (f->stop && !f->stop_noted) || (replay_is_read(f->log) && since_ms(f->noted_ns) >= note_ms(f));
	step(f, note && !f->claimed && f->owner[0] != '\0' ? FOLLOW_NOTE : FOLLOW_READ);
}

static void wait(struct follow *f)
{
	if (drop_unused(f))
		return;
	later(f, f->poll_ms);
	f->poll_ms = f->poll_ms * 2 < POLL_MOST_MS ? f->poll_ms * 2 : POLL_MOST_MS;
}

/* The store does not respond, or its fallback does: tries again later, if there is something to wait for. */
static void retry(struct follow *f)
{
	if (f->log == NULL && !f->orphan)
		end_unknown(f, SL_ECLOSED);
	else if (f->log == NULL)
		follow_free(f);
	else {
		call_finders(f, f->log, 0);
		later(f, RETRY_MS);
	}
}

/* ---- the log here ---- */

static void on_log_stop(void *ctx)
{
	struct follow *f = ctx;
	f->stop = true;
	if (!cache_op_busy(&f->op))
		later(f, 0);
}

/* False: f has been freed. */
static bool open_log(struct follow *f, uint64_t first)
{
	struct replay_log *there;
	if (f->log != NULL)
		return true;
	int rc =
	    replay_open_copy(f->store->app->replay, f->store->app->t, f->id, f->tenant, first, on_log_stop, f, &there);
	if (rc == 0) {
		f->log = there;
		f->next = first;
		return true;
	}
	if (rc > 0) { /* another thread was faster */
		call_finders(f, there, 0);
		replay_unref(there);
		follow_free(f);
	} else {
		end_unknown(f, rc);
	}
	return false;
}

/* Events of a batch from number f->next on. */
static int take_events(struct follow *f, const struct cache_item *item)
{
	const uint8_t *at = item->bytes + 1, *end = item->bytes + item->n;
	for (uint64_t i = item->first_seq; i < f->next && at < end; i++) {
		const uint8_t *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
		if (stop == NULL)
			return SL_EPROTO;
		at = stop + 2;
	}
	if (at >= end || end - at < 2 || memcmp(end - 2, "\n\n", 2) != 0)
		return SL_EPROTO;
	int rc = replay_append(f->log, at, (size_t)(end - at));
	if (rc == 0 && replay_next(f->log) != item->first_seq + item->n_items)
		rc = SL_EPROTO;
	f->next = item->first_seq + item->n_items;
	return rc;
}

/* 1: the item was the stream's end. */
static int take(struct follow *f, const struct cache_item *item)
{
	struct replay_usage usage;
	if (item->first_seq + item->n_items <= f->next)
		return 0;
	if (item->n > 1 && item->bytes[0] == REPLAY_BATCH_EVENTS)
		return take_events(f, item);
	if (item->n != REPLAY_END_BYTES || item->bytes[0] != REPLAY_BATCH_END)
		return SL_EPROTO;
	memcpy(&usage.n_prompt, item->bytes + 1, 4);
	memcpy(&usage.n_completion, item->bytes + 5, 4);
	struct replay_log *log = replay_ref(f->log);
	end_log(f, &usage);
	call_finders(f, log, 0);
	replay_unref(log);
	return 1;
}

/* ---- continuing ---- */

static void continue_here(struct follow *f)
{
	struct resume_head head;
	int rc = resume_head_read(&head, buf_data(&f->head), f->head.len);
	if (rc == 0) {
		rc = resume_answer(f->store->app, &head, f->log, f->stop);
		resume_head_dispose(&head);
	}
	if (rc == SL_ENOMEM) {
		later(f, RETRY_MS);
	} else if (rc != 0) {
		fail(f, "Its gateway stopped, and no other can continue it.");
	} else {
		f->log = NULL;
		follow_free(f);
	}
}

/* ---- responses of the store ---- */

static bool well(const struct cache_result *r) { return !r->degraded && (r->code == 0 || r->code == SL_ENOTFOUND); }

/* How long the last check of the owner counts. */
static uint64_t look_ms(const struct follow *f)
{
	return f->dead_ns == 0 && since_ms(f->moved_ns) < LOOK_IDLE_MS ? LOOK_MS : LOOK_IDLE_MS;
}

static void on_caught_up(struct follow *f)
{
	call_finders(f, f->log, 0);
	if (f->claimed && f->head_read)
		continue_here(f);
	else if (f->claimed)
		step(f, FOLLOW_HEAD);
	else if (f->owner[0] == '\0' || since_ms(f->looked_ns) >= look_ms(f))
		step(f, FOLLOW_HEAD);
	else
		wait(f);
}

static void on_read(struct cache_op *op, const struct cache_result *r)
{
	struct follow *f = of_op(op);
	int rc = 0;
	if (r->code == SL_ERANGE && !r->degraded && f->log == NULL && f->next < r->first_seq) {
		f->next = r->first_seq; /* its beginning was dropped */
		step(f, FOLLOW_READ);
		return;
	}
	if (r->code == SL_ERANGE && !r->degraded && f->next < r->first_seq) {
		fail(f, "The store dropped events before they were read here.");
		return;
	}
	if (!well(r) && !(r->code == SL_ERANGE && !r->degraded)) {
		retry(f);
		return;
	}
	if (r->n_items == 0) {
		if (f->log == NULL)
			step(f, FOLLOW_HEAD);
		else
			on_caught_up(f);
		return;
	}
	if (!open_log(f, f->next > r->items[0].first_seq ? f->next : r->items[0].first_seq))
		return;
	for (size_t i = 0; rc == 0 && i < r->n_items; i++)
		rc = take(f, &r->items[i]);
	f->moved_ns = clock_now_ns();
	f->poll_ms = POLL_LEAST_MS;
	if (rc > 0)
		follow_free(f);
	else if (rc < 0)
		fail(f, rc == SL_EPROTO ? "Its stored events are damaged." : "It did not fit into memory.");
	else
		step(f, FOLLOW_READ); /* until there is no more */
}

/* The owner is dead, so the head is final. */
static void take_head_again(struct follow *f, const struct cache_result *r)
{
	struct sl_buf old = f->head;
	if (r->code == 0) {
		buf_init(&f->head, MAX_RECORD);
		if (buf_append(&f->head, r->bytes, r->n) != 0) {
			f->head = old;
			later(f, RETRY_MS);
			return;
		}
		buf_dispose(&old);
	}
	f->head_read = true;
	step(f, FOLLOW_READ);
}

static void on_head(struct cache_op *op, const struct cache_result *r)
{
	struct follow *f = of_op(op);
	struct resume_head head;
	f->looked_ns = clock_now_ns();
	if (!well(r)) {
		retry(f);
		return;
	}
	if (f->claimed) {
		take_head_again(f, r);
		return;
	}
	if (r->code == SL_ENOTFOUND && f->log == NULL && f->headless) {
		end_unknown(f, SL_ENOTFOUND);
		return;
	}
	if (r->code == SL_ENOTFOUND) { /* perhaps the stream is ending */
		f->headless = true;
		if (f->log != NULL && since_ms(f->moved_ns) > HEADLESS_MS)
			fail(f, "Its gateway stopped, and no other can continue it.");
		else if (f->log != NULL)
			wait(f);
		else
			step(f, FOLLOW_READ);
		return;
	}
	buf_clear(&f->head, SIZE_MAX);
	int rc = buf_append(&f->head, r->bytes, r->n);
	if (rc == 0)
		rc = resume_head_read(&head, buf_data(&f->head), f->head.len);
	if (rc != 0) {
		if (rc == SL_ENOMEM)
			retry(f);
		else
			fail(f, "Its stored head is damaged.");
		return;
	}
	snprintf(f->owner, sizeof f->owner, "%s", head.owner);
	resume_head_dispose(&head);
	if (!open_log(f, 0))
		return;
	step(f, FOLLOW_LEASE);
}

/* False: it can't be continued now, but perhaps later. */
static bool may_claim(struct follow *f)
{
	struct resume_head head;
	if (resume_head_read(&head, buf_data(&f->head), f->head.len) != 0)
		return false;
	enum resume_chance chance = resume_chance(f->store->app, &head);
	resume_head_dispose(&head);
	return chance != RESUME_LATER || since_ms(f->began_ns) > ORPHAN_MS;
}

static void on_lease(struct cache_op *op, const struct cache_result *r)
{
	struct follow *f = of_op(op);
	if (!well(r)) {
		retry(f);
		return;
	}
	bool dead = false;
	bool doubted = f->dead_ns != 0 && strcmp(f->doubted, f->owner) == 0;
	if (r->code == 0) {
		dead = replay_lease_is_of_dead(r->bytes, r->n);
		if (doubted)
			f->dead_ns = 0;
		f->alive = !dead;
	} else if (strncmp(f->owner, replay_store_owner(f->store), strcspn(f->owner, "-")) == 0) {
		f->alive = true; /* this process has not renewed its own lease yet */
	} else if (!doubted) {
		snprintf(f->doubted, sizeof f->doubted, "%s", f->owner);
		f->dead_ns = clock_now_ns();
		f->alive = false;
	} else {
		dead = since_ms(f->dead_ns) >= TWICE_MS;
	}
	if (f->alive)
		f->began_ns = clock_now_ns();
	call_finders(f, f->log, 0);
	if (dead && f->hops++ < MOST_HOPS && may_claim(f)) {
		step(f, FOLLOW_CLAIM);
	} else {
		f->hops = 0;
		wait(f);
	}
}

static void on_claimed(struct cache_op *op, const struct cache_result *r)
{
	struct follow *f = of_op(op);
	if (r->code != 0 || r->degraded) {
		retry(f);
		return;
	}
	if (!r->found) {
		f->claimed = true;
		log_info("continuing an answer whose gateway has died");
		step(f, FOLLOW_UNRUN);
		return;
	}
	/* Claimed by another gateway, which may have died since. */
	size_t n = r->n < sizeof f->owner ? r->n : sizeof f->owner - 1;
	memcpy(f->owner, r->bytes, n);
	f->owner[n] = '\0';
	step(f, FOLLOW_LEASE);
}

static void on_unrun(struct cache_op *op, const struct cache_result *r)
{
	(void)r; /* after a failure it expires */
	step(of_op(op), FOLLOW_READ);
}

static void on_noted(struct cache_op *op, const struct cache_result *r)
{
	struct follow *f = of_op(op);
	f->noted_ns = clock_now_ns();
	f->stop_noted = f->stop && r->code == 0 && !r->degraded;
	step(f, FOLLOW_READ);
}

/* ---- the next operation ---- */

static void step(struct follow *f, enum follow_stage to)
{
	struct cache_client *cache = f->store->cache;
	const char *me = replay_store_owner(f->store);
	struct cache_key key;
	f->stage = to;
	switch (to) {
	case FOLLOW_READ:
		replay_key(&key, REPLAY_EVENTS, f->tenant, f->id);
		cache_log_read(cache, &f->op, &key, f->next, READ_BYTES, on_read);
		break;
	case FOLLOW_HEAD:
		replay_key(&key, REPLAY_HEAD, f->tenant, f->id);
		cache_get(cache, &f->op, &key, REPLAY_VERSION, on_head);
		break;
	case FOLLOW_LEASE:
		replay_lease_key(&key, f->owner);
		cache_get(cache, &f->op, &key, REPLAY_VERSION, on_lease);
		break;
	case FOLLOW_NOTE:
		replay_owner_key(&key, f->stop ? REPLAY_NOTE_STOP : REPLAY_NOTE_READ, f->owner, f->id);
		cache_put(cache, &f->op, &key, REPLAY_VERSION, f->id, strlen(f->id),
			  f->stop ? STOP_NOTE_MS : 2 * note_ms(f) + REPLAY_BEAT_MS, on_noted);
		break;
	case FOLLOW_CLAIM:
		replay_owner_key(&key, REPLAY_CLAIMS, f->owner, f->id);
		cache_put_absent(cache, &f->op, &key, REPLAY_VERSION, me, strlen(me), replay_run_ms(f->store->app),
				 on_claimed);
		break;
	case FOLLOW_UNRUN:
		replay_owner_key(&key, REPLAY_RUN, f->owner, f->id);
		cache_delete(cache, &f->op, &key, on_unrun);
		break;
	}
}

/* ---- beginnings ---- */

static struct follow *follow_create(struct replay_store *s, const char *id, uint64_t tenant)
{
	struct follow *f = s->n_follows < MAX_FOLLOWS ? sl_zalloc(sizeof *f) : NULL;
	if (f == NULL)
		return NULL;
	f->store = s;
	snprintf(f->id, sizeof f->id, "%s", id);
	f->tenant = tenant;
	f->poll_ms = POLL_LEAST_MS;
	f->moved_ns = f->looked_ns = f->began_ns = f->noted_ns = clock_now_ns();
	list_init(&f->finders);
	buf_init(&f->head, MAX_RECORD);
	gw_timer_init(&f->timer, on_timer);
	list_push_back(&s->follows, &f->node);
	s->n_follows++;
	metric_add(&replay_m_follows, 1);
	return f;
}

/* The copy that this thread has begun; NULL: none. */
static struct follow *find_follow(const struct replay_store *s, const char *id, uint64_t tenant)
{
	list_each(it, &s->follows) {
		struct follow *f = list_entry(it, struct follow, node);
		if (f->tenant == tenant && strcmp(f->id, id) == 0)
			return f;
	}
	return NULL;
}

int replay_store_find(struct gw_app *app, struct replay_find *find, const char *id, uint64_t tenant,
		      struct replay_log **out)
{
	struct replay_store *s = app->replay_store;
	list_init(&find->node);
	*out = replay_find(app->replay, id, tenant);
	if (*out != NULL)
		return 1;
	if (!replay_store_on(s))
		return SL_ENOTFOUND;
	struct follow *f = find_follow(s, id, tenant);
	bool known = f != NULL;
	if (!known)
		f = follow_create(s, id, tenant);
	if (f == NULL)
		return s->n_follows >= MAX_FOLLOWS ? SL_ELIMIT : SL_ENOMEM;
	list_push_back(&f->finders, &find->node);
	if (!known)
		step(f, FOLLOW_READ);
	return 0;
}

void replay_find_cancel(struct replay_find *find)
{
	if (find->node.next != NULL)
		list_remove(&find->node);
}

void replay_follow_orphan(struct replay_store *s, const char *id, uint64_t tenant)
{
	struct replay_log *here = replay_find(s->app->replay, id, tenant);
	if (here != NULL) {
		replay_unref(here);
		return;
	}
	struct follow *f = find_follow(s, id, tenant) == NULL ? follow_create(s, id, tenant) : NULL;
	if (f == NULL)
		return;
	f->orphan = true;
	step(f, FOLLOW_READ);
}

void replay_follows_stop(struct replay_store *s)
{
	if (s != NULL)
		list_each_safe(it, next, &s->follows)
			follow_stop(list_entry(it, struct follow, node));
}
