/* SPDX-License-Identifier: Apache-2.0
 *
 * A list that a lock guards, and a lock of each, as in variant_state.c. A batch that the store may have taken is sent
 * again as it was, so what comes meanwhile waits.
 */
#include "gateway/variant/variant_past.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/list.h"

/* Rounds of variant_sync.c after which the store is asked though there is nothing new: ten seconds. */
enum { IDLE_ROUNDS = 40 };

struct variant_past {
	struct list node;
	unsigned refs; /* under the list's lock */
	uint64_t key;
	pthread_mutex_t lock; /* of what follows */
	struct trial_history history;
	struct trial_past total, sent;
	int64_t batch;
	unsigned idle; /* rounds */
	bool sending, unsure;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all = {&all, &all};

/* ---- life ---- */

static struct variant_past *find(uint64_t key)
{
	list_each(it, &all) {
		struct variant_past *p = list_entry(it, struct variant_past, node);
		if (p->key == key)
			return p;
	}
	return NULL;
}

static struct variant_past *create(uint64_t key)
{
	struct variant_past *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return NULL;
	p->key = key;
	p->idle = IDLE_ROUNDS; /* so that the first round asks */
	pthread_mutex_init(&p->lock, NULL);
	list_push_back(&all, &p->node);
	return p;
}

struct variant_past *variant_past_get(uint64_t key)
{
	pthread_mutex_lock(&list_lock);
	struct variant_past *p = find(key);
	if (p == NULL)
		p = create(key);
	if (p != NULL)
		p->refs++;
	pthread_mutex_unlock(&list_lock);
	return p;
}

struct variant_past *variant_past_ref(struct variant_past *p)
{
	if (p == NULL)
		return NULL;
	pthread_mutex_lock(&list_lock);
	p->refs++;
	pthread_mutex_unlock(&list_lock);
	return p;
}

void variant_past_unref(struct variant_past *p)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&list_lock);
	const bool last = --p->refs == 0;
	if (last)
		list_remove(&p->node);
	pthread_mutex_unlock(&list_lock);
	if (!last)
		return;
	pthread_mutex_destroy(&p->lock);
	sl_free(p);
}

size_t variant_pasts_list(struct variant_past **out, size_t room)
{
	size_t n = 0;
	pthread_mutex_lock(&list_lock);
	list_each(it, &all) {
		if (n == room)
			break;
		out[n] = list_entry(it, struct variant_past, node);
		out[n++]->refs++;
	}
	pthread_mutex_unlock(&list_lock);
	return n;
}

uint64_t variant_past_key(const struct variant_past *p) { return p->key; }

/* ---- answers ---- */

void variant_past_take(struct variant_past *p, bool failed, uint64_t user)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	trial_remember(&p->history, failed, user);
	pthread_mutex_unlock(&p->lock);
}

struct trial_past variant_past_view(struct variant_past *p)
{
	if (p == NULL)
		return (struct trial_past){0};
	pthread_mutex_lock(&p->lock);
	const struct trial_past v = trial_past_sum(trial_past_sum(p->total, p->sent), p->history.fresh);
	pthread_mutex_unlock(&p->lock);
	return v;
}

/* ---- the store ---- */

static bool has_to_send(struct variant_past *p)
{
	if (p->sending)
		return false;
	return p->unsure || p->history.fresh.n > 0 || p->idle++ >= IDLE_ROUNDS;
}

bool variant_past_send(struct variant_past *p, struct trial_past *out, int64_t *batch)
{
	pthread_mutex_lock(&p->lock);
	const bool may = has_to_send(p);
	if (may) {
		if (!p->unsure) {
			p->sent = p->history.fresh;
			p->history.fresh = (struct trial_past){0};
			p->batch++;
		}
		p->sending = p->unsure = true;
		*out = p->sent;
		*batch = p->batch;
	}
	pthread_mutex_unlock(&p->lock);
	return may;
}

void variant_past_told(struct variant_past *p, const struct trial_past *told)
{
	pthread_mutex_lock(&p->lock);
	p->sending = false;
	if (told != NULL) {
		p->total = *told;
		p->sent = (struct trial_past){0};
		p->unsure = false;
		p->idle = 0;
	}
	pthread_mutex_unlock(&p->lock);
}
