/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/token/prompt_memo.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

void prompt_memo_init(struct prompt_memo *m)
{
	*m = (struct prompt_memo){0};
	pthread_mutex_init(&m->lock, NULL);
}

static void empty(struct prompt_memo_slot *s)
{
	sl_free(s->prompt);
	sl_free(s->ids);
	*s = (struct prompt_memo_slot){0};
}

void prompt_memo_dispose(struct prompt_memo *m)
{
	for (int i = 0; i < PROMPT_MEMO_SLOTS; i++)
		empty(&m->slots[i]);
	pthread_mutex_destroy(&m->lock);
}

static bool matters(const struct prompt_memo_key *key)
{
	return key->text != 0 && key->prompt.n > 0 && key->prompt.n <= PROMPT_MEMO_BYTES;
}

static bool is_same(const struct prompt_memo_key *a, const struct prompt_memo_key *b)
{
	return a->tenant == b->tenant && a->salt == b->salt && a->text == b->text && a->kind == b->kind &&
	       a->prompt.n == b->prompt.n && memcmp(a->prompt.at, b->prompt.at, a->prompt.n) == 0;
}

static struct prompt_memo_slot *find(struct prompt_memo *m, const struct prompt_memo_key *key)
{
	for (int i = 0; i < PROMPT_MEMO_SLOTS; i++)
		if (m->slots[i].ids != NULL && is_same(&m->slots[i].key, key))
			return &m->slots[i];
	return NULL;
}

bool prompt_memo_find(struct prompt_memo *m, const struct prompt_memo_key *key, struct tok_ids *ids, uint64_t now_ns)
{
	if (!matters(key))
		return false;
	pthread_mutex_lock(&m->lock);
	const struct prompt_memo_slot *s = find(m, key);
	bool found = s != NULL && now_ns < s->until_ns && (ids->max == 0 || s->n_ids <= ids->max);
	if (found && (found = (ids->ids = sl_alloc(s->n_ids * sizeof *s->ids)) != NULL)) {
		memcpy(ids->ids, s->ids, s->n_ids * sizeof *s->ids);
		ids->n = ids->cap = s->n_ids;
	}
	pthread_mutex_unlock(&m->lock);
	return found;
}

void prompt_memo_put(struct prompt_memo *m, const struct prompt_memo_key *key, const struct tok_ids *ids,
		     uint64_t now_ns)
{
	if (!matters(key) || ids->n == 0)
		return;
	struct prompt_memo_slot fresh = {.key = *key, .n_ids = ids->n, .until_ns = now_ns + PROMPT_MEMO_MS * NS_PER_MS};
	fresh.key.prompt.at = fresh.prompt = sl_strndup(key->prompt.at, key->prompt.n);
	fresh.ids = sl_alloc(ids->n * sizeof *ids->ids);
	if (fresh.ids == NULL || fresh.prompt == NULL) {
		empty(&fresh);
		return;
	}
	memcpy(fresh.ids, ids->ids, ids->n * sizeof *ids->ids);
	pthread_mutex_lock(&m->lock);
	struct prompt_memo_slot *s = find(m, key);
	if (s == NULL)
		s = &m->slots[m->next++ % PROMPT_MEMO_SLOTS];
	struct prompt_memo_slot old = *s;
	*s = fresh;
	pthread_mutex_unlock(&m->lock);
	empty(&old);
}
