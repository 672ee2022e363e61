/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt keeps digests only, and the beginning of its last message to recognise a user who is typing.
 *
 * Each prompt owns its message: it is posted at most once, under the directory's lock and before the prompt has ended.
 * If the prompt ends while its message is in flight, it is freed when the message arrives.
 */
#include "gateway/sharing/supersede.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"

_Static_assert((int)INFLIGHT_SECRET_BYTES >= (int)XXH3_SECRET_SIZE_MIN, "XXH3 needs a longer secret");

struct supersede_prompt {
	struct inflight_entry entry;
	struct gw_message message;
	struct inflight *of;
	struct gw_thread *t;
	void (*superseded)(void *ctx);
	void *ctx;
	bool posted;         /* under the lock */
	bool ended, arrived; /* on its thread */
	uint64_t began_ns;
	struct request_digest name, request;
	struct message_digest whole, before;
	bool named, may_join, guess, answered;
	size_t n; /* messages */
	size_t n_last;
	char *last; /* owned; min(n_last, SUPERSEDE_LAST_BYTES) bytes, or NULL */
};

COUNTER(superseded_total, "sluice_superseded_total", "Answers that a newer prompt of their conversation ended");

void supersede_digest(const struct inflight *f, const struct message_digest *before, const void *bytes, size_t n,
		      struct message_digest *out)
{
	XXH128_canonical_t all[2];
	memset(all, 0, sizeof all);
	if (before != NULL)
		memcpy(&all[0], before, sizeof *before);
	XXH128_canonicalFromHash(&all[1], XXH3_128bits_withSecret(bytes, n, f->secret, sizeof f->secret));
	XXH128_canonicalFromHash(&all[0], XXH3_128bits_withSecret(all, sizeof all, f->secret, sizeof f->secret));
	memcpy(out, &all[0], sizeof *out);
}

static bool same(const struct message_digest *a, const struct message_digest *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

static bool same_request(const struct request_digest *a, const struct request_digest *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* ---- same conversation? ---- */

/* Was a word added or a typing error corrected? The common beginning and end are 3/4 of the longer text, or all of the
 * shorter. */
static bool nearly_same(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t shorter = n_a < n_b ? n_a : n_b, longer = n_a < n_b ? n_b : n_a, head = 0, tail = 0;
	while (head < shorter && a[head] == b[head])
		head++;
	while (tail < shorter - head && a[n_a - 1 - tail] == b[n_b - 1 - tail])
		tail++;
	return head + tail == shorter || (head + tail) * 4 >= longer * 3;
}

static size_t kept(size_t n) { return n < SUPERSEDE_LAST_BYTES ? n : SUPERSEDE_LAST_BYTES; }

static bool guess(const struct supersede_prompt *old, const struct supersede_request *r, uint64_t now)
{
	const struct supersede_messages *m = &r->messages;
	if (!r->guess || !old->guess || old->n == 0)
		return false;
	if (m->n > old->n && same(&m->at[old->n - 1], &old->whole))
		return true;
	if (old->answered && m->n >= old->n && same(&m->at[old->n - 2], &old->before))
		return true;
	bool same_before = m->n == old->n && (m->n == 1 || same(&m->at[m->n - 2], &old->before));
	return same_before && now - old->began_ns <= r->burst_ns && old->last != NULL && m->last != NULL &&
	       nearly_same(old->last, kept(old->n_last), m->last, kept(m->n_last));
}

static bool is_older(const struct supersede_prompt *old, const struct supersede_request *r, uint64_t now)
{
	if (old->posted)
		return false;
	if (old->may_join && r->may_join && same_request(&old->request, &r->request))
		return false;
	/* A name is certain, a guess is not. */
	if (old->named || r->named)
		return old->named && r->named && same_request(&old->name, &r->name);
	return guess(old, r, now);
}

/* ---- beginning and end ---- */

static void prompt_free(struct supersede_prompt *p)
{
	sl_free(p->last);
	sl_free(p);
}

static void on_message(struct gw_thread *t, struct gw_message *m)
{
	struct supersede_prompt *p = list_entry(m, struct supersede_prompt, message);
	(void)t;
	p->arrived = true;
	if (p->ended)
		prompt_free(p);
	else
		p->superseded(p->ctx);
}

static struct supersede_prompt *prompt_create(const struct supersede_request *r)
{
	const struct supersede_messages *m = &r->messages;
	struct supersede_prompt *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return NULL;
	list_init(&p->entry.node);
	p->message.run = on_message;
	p->named = r->named;
	p->name = r->name;
	p->may_join = r->may_join;
	p->request = r->request;
	p->guess = r->guess && m->n > 0;
	if (!p->guess)
		return p;
	p->n = m->n;
	p->answered = m->answered && m->n > 1;
	p->whole = m->at[m->n - 1];
	if (m->n > 1)
		p->before = m->at[m->n - 2];
	p->n_last = m->n_last;
	p->last = m->last != NULL ? sl_strndup(m->last, kept(m->n_last)) : NULL;
	return p;
}

size_t supersede_begin(struct inflight *f, const struct supersede_request *r, struct gw_thread *t,
		       void (*superseded)(void *ctx), void *ctx, struct supersede_prompt **out)
{
	struct supersede_prompt *p = prompt_create(r);
	const struct inflight_entry *e = NULL;
	uint64_t now = clock_now_ns();
	size_t n = 0;
	bool listed = false;
	pthread_mutex_lock(&f->lock);
	while ((e = inflight_find(f, INFLIGHT_USER, &r->user, e)) != NULL) {
		struct supersede_prompt *old = list_entry(e, struct supersede_prompt, entry);
		if (!is_older(old, r, now))
			continue;
		old->posted = true;
		gw_post(old->t, &old->message);
		n++;
	}
	if (p != NULL) {
		p->of = f;
		p->t = t;
		p->superseded = superseded;
		p->ctx = ctx;
		p->began_ns = now;
		listed = inflight_add(f, &p->entry, INFLIGHT_USER, &r->user);
	}
	pthread_mutex_unlock(&f->lock);
	if (p != NULL && !listed) {
		prompt_free(p);
		p = NULL;
	}
	metric_add(&superseded_total, (int64_t)n);
	*out = p;
	return n;
}

void supersede_end(struct supersede_prompt *p)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&p->of->lock);
	inflight_remove(p->of, &p->entry);
	bool posted = p->posted;
	pthread_mutex_unlock(&p->of->lock);
	p->ended = true;
	if (!posted || p->arrived)
		prompt_free(p);
}
