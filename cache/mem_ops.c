/* SPDX-License-Identifier: Apache-2.0
 *
 * What each operation means in memory. It must mean the same as cache/scripts.c and redis_command.c
 * say it to Redis; tests/unit/cache/test_cache.c runs one table over both.
 *
 * Answers are copied out (w->out): by the time they are read the record may have gone.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/priv.h"

static int give_bytes(struct cache_work *w, const struct mem_record *r)
{
	uint8_t *copy = sl_alloc(r->n);
	if (copy == NULL)
		return SL_ENOMEM;
	memcpy(copy, r->bytes, r->n);
	w->out = copy;
	w->res.bytes = copy + 1;
	w->res.n = r->n - 1;
	return 0;
}

static bool is_value(const struct mem_record *r, uint8_t version)
{
	return r != NULL && r->type == MEM_VALUE && *(const uint8_t *)r->bytes == version;
}

static int op_get(struct mem_store *s, struct cache_work *w)
{
	const struct mem_record *r = mem_find(s, w->keys);
	if (r != NULL && r->type != MEM_VALUE)
		return SL_EPROTO;
	return is_value(r, w->version) ? give_bytes(w, r) : SL_ENOTFOUND;
}

static int op_put(struct mem_store *s, struct cache_work *w, uint64_t now_us)
{
	struct mem_record *r = mem_find(s, w->keys);
	if (w->type == WORK_PUT_ABSENT) {
		if (r != NULL && r->type != MEM_VALUE)
			return SL_EPROTO;
		if (is_value(r, w->version)) {
			w->res.found = true;
			return give_bytes(w, r);
		}
	}
	uint8_t *copy = sl_alloc(w->n);
	if (copy == NULL)
		return SL_ENOMEM;
	memcpy(copy, w->bytes, w->n);
	if (r != NULL && r->type != MEM_VALUE) {
		mem_remove(s, r);
		r = NULL;
	}
	if (r == NULL)
		r = mem_add(s, w->keys, MEM_VALUE);
	if (r == NULL) {
		sl_free(copy);
		return SL_ENOMEM;
	}
	sl_free(r->bytes);
	r->bytes = copy;
	r->n = w->n;
	mem_account(s, r, r->n);
	mem_set_ttl(s, r, now_us, w->ttl_ms);
	return 0;
}

static int op_delete(struct mem_store *s, struct cache_work *w)
{
	struct mem_record *r = mem_find(s, w->keys);
	w->res.found = r != NULL;
	if (r != NULL)
		mem_remove(s, r);
	return 0;
}

/* ---- logs ---- */

static struct mem_batch *first_batch(const struct mem_record *r)
{
	return list_entry(r->batches.next, struct mem_batch, node);
}

static size_t log_size(const struct mem_record *r) { return r->cost - r->n; }

static int op_append(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us)
{
	struct mem_record *r = mem_find(s, w->keys);
	if (r != NULL && r->type != MEM_LOG)
		return SL_EPROTO;
	uint64_t end = w->seq + w->n_seq;
	if (r != NULL) {
		w->res.first_seq = r->first_seq;
		w->res.next_seq = r->next_seq;
		if (end <= r->next_seq)
			return 0;
		if (w->seq != r->next_seq)
			return SL_ERANGE;
	}
	struct mem_batch *b = sl_alloc(sizeof *b + w->n);
	if (b == NULL)
		return SL_ENOMEM;
	if (r == NULL) {
		r = mem_add(s, w->keys, MEM_LOG);
		if (r == NULL) {
			sl_free(b);
			return SL_ENOMEM;
		}
		r->n = r->cost; /* so that the log's size is what its cost has more */
		r->first_seq = w->seq;
	}
	b->first_seq = w->seq;
	b->n_items = w->n_seq;
	b->n = w->n;
	if (w->n > 0)
		memcpy(b->bytes, w->bytes, w->n);
	list_push_back(&r->batches, &b->node);
	r->next_seq = end;
	size_t size = log_size(r) + w->n + LOG_HEADER;
	while (size > cfg->max_log_bytes && r->batches.next != &b->node) {
		struct mem_batch *old = first_batch(r);
		size -= old->n + LOG_HEADER;
		list_remove(&old->node);
		sl_free(old);
	}
	r->first_seq = first_batch(r)->first_seq;
	w->res.first_seq = r->first_seq;
	w->res.next_seq = end;
	mem_account(s, r, size);
	mem_set_ttl(s, r, now_us, w->ttl_ms);
	return 0;
}

/* How many batches from *first answer w, and their bytes. */
static size_t count_batches(const struct mem_record *r, const struct cache_work *w, const struct mem_batch **first,
			    size_t *bytes)
{
	size_t n = 0;
	*bytes = 0;
	list_each(it, &r->batches) {
		const struct mem_batch *b = list_entry(it, struct mem_batch, node);
		if (b->first_seq + b->n_items <= w->seq)
			continue;
		if (n > 0 && (*bytes + b->n > w->max_bytes || n == MAX_BATCHES_READ))
			break;
		if (n++ == 0)
			*first = b;
		*bytes += b->n;
	}
	return n;
}

static int op_log_read(struct mem_store *s, struct cache_work *w)
{
	const struct mem_record *r = mem_find(s, w->keys);
	if (r == NULL)
		return SL_ENOTFOUND;
	if (r->type != MEM_LOG)
		return SL_EPROTO;
	w->res.first_seq = r->first_seq;
	w->res.next_seq = r->next_seq;
	if (w->seq < r->first_seq || w->seq > r->next_seq)
		return SL_ERANGE;
	const struct mem_batch *first = NULL;
	size_t bytes, n = count_batches(r, w, &first, &bytes);
	if (n == 0)
		return 0;
	struct cache_item *items = sl_alloc(n * sizeof *items + bytes);
	if (items == NULL)
		return SL_ENOMEM;
	uint8_t *to = (uint8_t *)(items + n);
	const struct list *it = &first->node;
	for (size_t i = 0; i < n; i++, it = it->next) {
		const struct mem_batch *b = list_entry(it, struct mem_batch, node);
		if (b->n > 0)
			memcpy(to, b->bytes, b->n);
		items[i] = (struct cache_item){b->first_seq, b->n_items, to, b->n};
		to += b->n;
	}
	w->out = items;
	w->res.items = items;
	w->res.n_items = n;
	return 0;
}

/* ---- a tenant's keys ---- */

static int op_list(struct mem_store *s, struct cache_work *w)
{
	size_t n, i = 0;
	const struct list *records = mem_siblings(s, w->keys, &n);
	if (n == 0)
		return 0;
	struct cache_item *items = sl_alloc(n * (sizeof *items + CACHE_DIGEST_LEN));
	if (items == NULL)
		return SL_ENOMEM;
	uint8_t *to = (uint8_t *)(items + n);
	list_each(it, records) {
		const struct mem_record *r = list_entry(it, struct mem_record, sibling);
		memcpy(to, cache_key_digest(&r->key), CACHE_DIGEST_LEN);
		items[i++] = (struct cache_item){.bytes = to, .n = CACHE_DIGEST_LEN};
		to += CACHE_DIGEST_LEN;
	}
	w->out = items;
	w->res.items = items;
	w->res.n_items = n;
	return 0;
}

static int op_delete_all(struct mem_store *s, struct cache_work *w)
{
	size_t n;
	const struct list *records = mem_siblings(s, w->keys, &n);
	w->res.n_deleted = n;
	while (n-- > 0) /* the last one takes the ring with it */
		mem_remove(s, list_entry(records->next, struct mem_record, sibling));
	return 0;
}

/* ---- procedures ---- */

static struct mem_record *shared_record(struct mem_proc *t, size_t i)
{
	BUG_IF(i >= t->n_keys, "a procedure has no key %zu", i);
	struct mem_record *r = mem_find(t->store, &t->work->keys[i]);
	return r != NULL && r->type == MEM_RECORD ? r : NULL;
}

void *mem_proc_find(struct mem_proc *t, size_t i, size_t *n)
{
	struct mem_record *r = shared_record(t, i);
	*n = r == NULL ? 0 : r->n;
	return r == NULL ? NULL : r->bytes;
}

void *mem_proc_edit(struct mem_proc *t, size_t i, size_t n, uint64_t ttl_ms)
{
	struct mem_record *r = shared_record(t, i);
	void *bytes = r == NULL ? NULL : r->bytes;
	size_t had = r == NULL ? 0 : r->n;
	if (bytes == NULL || had != n) {
		bytes = sl_realloc_n(bytes, 1, n);
		if (bytes == NULL)
			return NULL;
		if (n > had)
			memset((uint8_t *)bytes + had, 0, n - had);
	}
	if (r == NULL) {
		struct mem_record *other = mem_find(t->store, &t->work->keys[i]);
		if (other != NULL)
			mem_remove(t->store, other);
		r = mem_add(t->store, &t->work->keys[i], MEM_RECORD);
		if (r == NULL) {
			sl_free(bytes);
			return NULL;
		}
	}
	bool is_new = r->bytes == NULL;
	r->bytes = bytes;
	r->n = n;
	mem_account(t->store, r, n);
	uint64_t left_us = r->due_us == UINT64_MAX ? UINT64_MAX : r->due_us - t->now_us;
	if (is_new || ttl_ms == 0 || ttl_ms > left_us / 1000)
		mem_set_ttl(t->store, r, t->now_us, ttl_ms);
	/* A tenant's list may have been full of longer lives. */
	r = shared_record(t, i);
	return r == NULL ? NULL : r->bytes;
}

void mem_proc_remove(struct mem_proc *t, size_t i)
{
	struct mem_record *r = shared_record(t, i);
	if (r != NULL)
		mem_remove(t->store, r);
}

int mem_proc_answer(struct mem_proc *t, int64_t i)
{
	struct cache_work *w = t->work;
	if (w->res.n_values == CACHE_MAX_VALUES)
		return SL_ELIMIT;
	w->values[w->res.n_values++] = (struct cache_value){.i = i};
	return 0;
}

/* The bytes of an answer stand behind the array of values, at offsets until all are there. */
int mem_proc_answer_bytes(struct mem_proc *t, const void *p, size_t n)
{
	struct cache_work *w = t->work;
	if (w->res.n_values == CACHE_MAX_VALUES)
		return SL_ELIMIT;
	size_t at = CACHE_MAX_VALUES * sizeof *w->values + w->n_out;
	uint8_t *bigger = sl_realloc_n(w->out, 1, at + n + 1);
	if (bigger == NULL)
		return SL_ENOMEM;
	if (n > 0)
		memcpy(bigger + at, p, n);
	bigger[at + n] = '\0';
	w->out = bigger;
	w->values = (struct cache_value *)(void *)bigger;
	w->values[w->res.n_values++] = (struct cache_value){.i = (int64_t)at, .p = w, .n = n};
	w->n_out += n + 1;
	return 0;
}

static int op_eval(struct mem_store *s, struct cache_work *w, uint64_t now_us)
{
	w->out = sl_alloc(CACHE_MAX_VALUES * sizeof *w->values);
	if (w->out == NULL)
		return SL_ENOMEM;
	w->values = w->out;
	w->n_out = 0;
	struct mem_proc call = {.now_us = now_us,
				.share = w->share,
				.n_keys = w->n_keys,
				.n_args = w->n_args,
				.args = w->args,
				.store = s,
				.work = w};
	int rc = w->proc->in_memory(&call);
	for (size_t i = 0; i < w->res.n_values; i++)
		if (w->values[i].p != NULL)
			w->values[i] =
			    (struct cache_value){.p = (uint8_t *)w->out + w->values[i].i, .n = w->values[i].n};
	w->res.values = w->values;
	return rc;
}

static int dispatch(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us)
{
	switch (w->type) {
	case WORK_GET: return op_get(s, w);
	case WORK_PUT:
	case WORK_PUT_ABSENT: return op_put(s, w, now_us);
	case WORK_DELETE: return op_delete(s, w);
	case WORK_LOG_APPEND: return op_append(s, cfg, w, now_us);
	case WORK_LOG_READ: return op_log_read(s, w);
	case WORK_LIST: return op_list(s, w);
	case WORK_DELETE_ALL: return op_delete_all(s, w);
	case WORK_EVAL: return op_eval(s, w, now_us);
	case WORK_FLUSH: return 0;
	}
	BUG("no work of type %d", (int)w->type);
}

void mem_work(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us)
{
	mem_store_expire(s, now_us);
	w->res = (struct cache_result){.degraded = w->degraded};
	w->res.code = dispatch(s, cfg, w, now_us);
	if (w->res.code < 0)
		w->res.n_values = w->res.n_items = 0;
	mem_store_evict(s);
	metric_add(&cache_m_memory_ops, 1);
}
