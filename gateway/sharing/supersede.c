/* SPDX-License-Identifier: Apache-2.0
 *
 * One table under one lock: buckets by user, in each the prompts in flight, as many as the user has. A
 * prompt keeps digests only, and the beginning of its last message for as long as a user may be typing.
 *
 * Messages: a talk is its own, posted at most once, under the lock and only while it has not ended; one
 * that ends while its message is on its way is freed when that arrives.
 */
#include "gateway/sharing/supersede.h"

#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/metrics.h"

enum { BUCKETS = 1024, SECRET_BYTES = XXH3_SECRET_SIZE_MIN };

struct talk {
	struct gw_message message;
	struct list node;
	struct superseding *of;
	struct gw_thread *t;
	void (*superseded)(void *ctx);
	void *ctx;
	bool posted;         /* the lock */
	bool ended, arrived; /* its thread's */
	uint64_t began_ns;
	struct supersede_digest_of who, name, request, whole, before;
	bool named, may_join, guess, answered;
	size_t n; /* messages */
	size_t n_last;
	char *last; /* owned; min(n_last, TALK_LAST_BYTES) bytes, or NULL */
};

struct superseding {
	uint8_t secret[SECRET_BYTES];
	pthread_mutex_t lock;
	struct list buckets[BUCKETS];
	size_t n;
};

COUNTER(superseded_total, "sluice_superseded_total", "Answers ended because a newer prompt of their conversation came");

int supersede_create(struct superseding **out)
{
	struct superseding *ts = sl_zalloc(sizeof *ts);
	if (ts == NULL)
		return SL_ENOMEM;
	BUG_IF(RAND_bytes(ts->secret, SECRET_BYTES) != 1, "no random bytes");
	pthread_mutex_init(&ts->lock, NULL);
	for (int i = 0; i < BUCKETS; i++)
		list_init(&ts->buckets[i]);
	*out = ts;
	return 0;
}

void supersede_destroy(struct superseding *ts)
{
	if (ts == NULL)
		return;
	BUG_IF(ts->n != 0, "%zu prompts are in flight at the end", ts->n);
	pthread_mutex_destroy(&ts->lock);
	sl_free(ts);
}

void supersede_digest(const struct superseding *ts, const struct supersede_digest_of *before, const void *bytes,
		      size_t n, struct supersede_digest_of *out)
{
	XXH128_canonical_t all[2];
	memset(all, 0, sizeof all);
	if (before != NULL)
		memcpy(&all[0], before, sizeof *before);
	XXH128_canonicalFromHash(&all[1], XXH3_128bits_withSecret(bytes, n, ts->secret, SECRET_BYTES));
	XXH128_canonicalFromHash(&all[0], XXH3_128bits_withSecret(all, sizeof all, ts->secret, SECRET_BYTES));
	memcpy(out, &all[0], sizeof *out);
}

static bool same(const struct supersede_digest_of *a, const struct supersede_digest_of *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

static struct list *bucket_of(struct superseding *ts, const struct supersede_digest_of *who)
{
	uint64_t n;
	memcpy(&n, who->bytes, sizeof n);
	return &ts->buckets[n % BUCKETS];
}

/* ---- one conversation? ---- */

/* A word was added, or a typing error mended: what is alike at both ends is three quarters of the longer. */
static bool nearly_same(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t shorter = n_a < n_b ? n_a : n_b, longer = n_a < n_b ? n_b : n_a, head = 0, tail = 0;
	while (head < shorter && a[head] == b[head])
		head++;
	while (tail < shorter - head && a[n_a - 1 - tail] == b[n_b - 1 - tail])
		tail++;
	return head + tail == shorter || (head + tail) * 4 >= longer * 3;
}

static size_t kept(size_t n) { return n < TALK_LAST_BYTES ? n : TALK_LAST_BYTES; }

static bool guess(const struct talk *old, const struct supersede_turn_of *turn, uint64_t now)
{
	const struct supersede_messages_of *m = &turn->messages;
	if (!turn->guess || !old->guess || old->n == 0)
		return false;
	if (m->n > old->n && same(&m->at[old->n - 1], &old->whole))
		return true;
	if (old->answered && m->n >= old->n && same(&m->at[old->n - 2], &old->before))
		return true;
	bool same_before = m->n == old->n && (m->n == 1 || same(&m->at[m->n - 2], &old->before));
	return same_before && now - old->began_ns <= turn->burst_ns && old->last != NULL && m->last != NULL &&
	       nearly_same(old->last, kept(old->n_last), m->last, kept(m->n_last));
}

static bool is_older(const struct talk *old, const struct supersede_turn_of *turn, uint64_t now)
{
	if (!same(&old->who, &turn->who) || old->posted)
		return false;
	if (old->may_join && turn->may_join && same(&old->request, &turn->request))
		return false;
	/* Names say more than any guess. */
	if (old->named || turn->named)
		return old->named && turn->named && same(&old->name, &turn->name);
	return guess(old, turn, now);
}

/* ---- beginning and end ---- */

static void supersede_free_of(struct talk *talk)
{
	sl_free(talk->last);
	sl_free(talk);
}

static void on_message(struct gw_thread *t, struct gw_message *m)
{
	struct talk *talk = list_entry(m, struct talk, message);
	(void)t;
	talk->arrived = true;
	if (talk->ended)
		supersede_free_of(talk);
	else
		talk->superseded(talk->ctx);
}

static struct talk *supersede_create_of(const struct supersede_turn_of *turn)
{
	const struct supersede_messages_of *m = &turn->messages;
	struct talk *talk = sl_zalloc(sizeof *talk);
	if (talk == NULL)
		return NULL;
	talk->message.run = on_message;
	talk->who = turn->who;
	talk->named = turn->named;
	talk->name = turn->name;
	talk->may_join = turn->may_join;
	talk->request = turn->request;
	talk->guess = turn->guess && m->n > 0;
	if (!talk->guess)
		return talk;
	talk->n = m->n;
	talk->answered = m->answered && m->n > 1;
	talk->whole = m->at[m->n - 1];
	if (m->n > 1)
		talk->before = m->at[m->n - 2];
	talk->n_last = m->n_last;
	talk->last = m->last != NULL ? sl_strndup(m->last, kept(m->n_last)) : NULL;
	return talk;
}

size_t supersede_begin(struct superseding *ts, const struct supersede_turn_of *turn, struct gw_thread *t,
		       void (*superseded)(void *ctx), void *ctx, struct talk **out)
{
	struct talk *talk = supersede_create_of(turn);
	struct list *bucket = bucket_of(ts, &turn->who);
	uint64_t now = clock_now_ns();
	size_t n = 0;
	pthread_mutex_lock(&ts->lock);
	list_each(it, bucket) {
		struct talk *old = list_entry(it, struct talk, node);
		if (!is_older(old, turn, now))
			continue;
		old->posted = true;
		gw_post(old->t, &old->message);
		n++;
	}
	bool room = ts->n < TALKS_MAX;
	if (talk != NULL && room) {
		talk->of = ts;
		talk->t = t;
		talk->superseded = superseded;
		talk->ctx = ctx;
		talk->began_ns = now;
		list_push_back(bucket, &talk->node);
		ts->n++;
	}
	pthread_mutex_unlock(&ts->lock);
	if (talk != NULL && !room) {
		supersede_free_of(talk);
		talk = NULL;
	}
	metric_add(&superseded_total, (int64_t)n);
	*out = talk;
	return n;
}

void supersede_end(struct talk *talk)
{
	if (talk == NULL)
		return;
	pthread_mutex_lock(&talk->of->lock);
	list_remove(&talk->node);
	talk->of->n--;
	bool posted = talk->posted;
	pthread_mutex_unlock(&talk->of->lock);
	talk->ended = true;
	if (!posted || talk->arrived)
		supersede_free_of(talk);
}
