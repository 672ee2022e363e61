/* SPDX-License-Identifier: Apache-2.0
 *
 * A name of the kind content belongs to the directory and is released a while after its log has ended. Ended names are
 * listed in the order of their ends; each new request releases the expired ones from the front.
 */
#include "gateway/sharing/coalesce.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/metrics.h"

struct coalesce_name {
	struct inflight_entry entry; /* not listed: forgotten */
	struct list in_ended;
	uint64_t window_ns, ended_ns;
	struct coalesce_claim claim; /* content: the log only */
};

GAUGE(names, "sluice_twins_names", "Answers that other requests can join, by content or by retry");

/* ---- names, under the lock ---- */

static struct coalesce_name *find(struct inflight *f, enum inflight_kind kind, const struct request_digest *d)
{
	struct inflight_entry *e = inflight_find(f, kind, d, NULL);
	return e != NULL ? list_entry(e, struct coalesce_name, entry) : NULL;
}

static struct coalesce_name *add(struct inflight *f, enum inflight_kind kind, const struct request_digest *d)
{
	struct coalesce_name *name = sl_zalloc(sizeof *name);
	if (name == NULL || !inflight_add(f, &name->entry, kind, d)) {
		sl_free(name);
		return NULL;
	}
	list_init(&name->in_ended);
	metric_add(&names, 1);
	return name;
}

/* Removes the name from the directory without freeing it. */
static void unlist(struct inflight *f, struct coalesce_name *name)
{
	if (!inflight_listed(&name->entry))
		return;
	inflight_remove(f, &name->entry);
	list_remove(&name->in_ended);
	metric_add(&names, -1);
}

static void release(struct inflight *f, struct coalesce_name *name)
{
	unlist(f, name);
	if (name->claim.log != NULL)
		token_log_unref(name->claim.log);
	sl_free(name);
}

static void expire(struct inflight *f)
{
	uint64_t now = clock_now_ns();
	while (!list_empty(&f->ended)) {
		struct coalesce_name *name = list_entry(f->ended.next, struct coalesce_name, in_ended);
		if (now - name->ended_ns <= name->window_ns)
			return;
		release(f, name);
	}
}

void coalesce_drop_ended(struct inflight *f)
{
	while (!list_empty(&f->ended))
		release(f, list_entry(f->ended.next, struct coalesce_name, in_ended));
}

/* ---- content ---- */

/* An ended answer can be found by its name for a while; the log of a failed one refuses to be joined. */
static void on_ended(void *ctx, struct token_log *log)
{
	struct inflight *f = ctx;
	struct coalesce_name *name = token_log_name(log);
	if (name == NULL)
		return;
	pthread_mutex_lock(&f->lock);
	name->ended_ns = clock_now_ns();
	if (!inflight_listed(&name->entry) || name->window_ns == 0)
		release(f, name);
	else
		list_push_back(&f->ended, &name->in_ended);
	pthread_mutex_unlock(&f->lock);
}

struct token_log *coalesce_log(struct inflight *f) { return token_log_create(on_ended, f); }

/* Makes room for a new answer when the old one can no longer be joined. The old name is released when its log ends. */
static void make_way(struct inflight *f, struct coalesce_name *name)
{
	bool ended = !list_empty(&name->in_ended);
	unlist(f, name);
	if (ended)
		release(f, name);
}

int coalesce_enter(struct inflight *f, const struct request_digest *content, uint64_t window_ns, struct token_log **out)
{
	int joined = 0;
	*out = NULL;
	pthread_mutex_lock(&f->lock);
	expire(f);
	struct coalesce_name *name = find(f, INFLIGHT_CONTENT, content);
	if (name != NULL && token_log_joinable(name->claim.log)) {
		*out = token_log_ref(name->claim.log);
		joined = 1;
	} else {
		if (name != NULL)
			make_way(f, name);
		struct token_log *log = coalesce_log(f);
		name = log != NULL ? add(f, INFLIGHT_CONTENT, content) : NULL;
		if (name != NULL) {
			name->window_ns = window_ns;
			name->claim.log = token_log_ref(log);
			token_log_set_name(log, name);
			*out = log;
		} else if (log != NULL) {
			token_log_unref(log);
		}
	}
	pthread_mutex_unlock(&f->lock);
	return joined;
}

size_t coalesce_count(struct inflight *f)
{
	pthread_mutex_lock(&f->lock);
	size_t n = f->n[INFLIGHT_CONTENT];
	pthread_mutex_unlock(&f->lock);
	return n;
}

/* ---- retries ---- */

struct coalesce_name *coalesce_name(struct inflight *f, const struct request_digest *retry,
				    const struct coalesce_claim *claim)
{
	pthread_mutex_lock(&f->lock);
	struct coalesce_name *name = find(f, INFLIGHT_RETRY, retry) == NULL ? add(f, INFLIGHT_RETRY, retry) : NULL;
	if (name != NULL) {
		name->claim = *claim;
		if (claim->log != NULL)
			token_log_ref(claim->log);
	}
	pthread_mutex_unlock(&f->lock);
	return name;
}

void coalesce_forget(struct inflight *f, struct coalesce_name *name)
{
	if (name == NULL)
		return;
	pthread_mutex_lock(&f->lock);
	release(f, name);
	pthread_mutex_unlock(&f->lock);
}

bool coalesce_find(struct inflight *f, const struct request_digest *retry, struct coalesce_claim *out)
{
	pthread_mutex_lock(&f->lock);
	const struct coalesce_name *name = find(f, INFLIGHT_RETRY, retry);
	if (name != NULL) {
		*out = name->claim;
		if (out->log != NULL && token_log_joinable(out->log))
			token_log_ref(out->log);
		else
			out->log = NULL;
	}
	pthread_mutex_unlock(&f->lock);
	return name != NULL;
}
