/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations in memory. They must match what scripts.c and redis_command.c do in Redis;
 * tests/unit/cache/test_cache.c runs one table over both.
 *
 * Answers are copied out (w->out): the record may be gone by the time they are read.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/mem_priv.h"

/* The value of this version; NULL: none. */
static const struct mem_field *value_of(const struct mem_store *s, const struct mem_record *r, uint8_t version)
{
	const struct mem_field *f = mem_field_find(s, r, "", 0);
	return f != NULL && f->n > 0 && f->bytes[0] == version ? f : NULL;
}

static int give_bytes(struct cache_work *w, const struct mem_field *f)
{
	uint8_t *copy = sl_alloc(f->n);
	if (copy == NULL)
		return SL_ENOMEM;
	memcpy(copy, f->bytes, f->n);
	w->out = copy;
	w->res.bytes = copy + 1;
	w->res.n = f->n - 1;
	return 0;
}

/* An answer of n items with room for `bytes` behind them; NULL: no memory. */
static struct cache_item *give_items(struct cache_work *w, size_t n, size_t bytes)
{
	struct cache_item *items = sl_alloc(n * sizeof *items + bytes);
	w->out = items;
	w->res.items = items;
	w->res.n_items = items != NULL ? n : 0;
	return items;
}

static int op_get(struct mem_store *s, struct cache_work *w)
{
	const struct mem_record *r = mem_find(s, w->keys);
	if (r != NULL && r->type != MEM_VALUE)
		return SL_EPROTO;
	const struct mem_field *f = value_of(s, r, w->version);
	return f != NULL ? give_bytes(w, f) : SL_ENOTFOUND;
}

static int op_put(struct mem_store *s, struct cache_work *w)
{
	struct mem_record *r = mem_find(s, w->keys);
	if (w->type == WORK_PUT_ABSENT) {
		if (r != NULL && r->type != MEM_VALUE)
			return SL_EPROTO;
		const struct mem_field *f = value_of(s, r, w->version);
		if (f != NULL) {
			w->res.found = true;
			return give_bytes(w, f);
		}
	}
	if (r != NULL && r->type != MEM_VALUE) {
		mem_remove(s, r);
		r = NULL;
	}
	if (r == NULL)
		r = mem_add(s, w->keys, MEM_VALUE);
	if (r == NULL)
		return SL_ENOMEM;
	mem_live(s, r, w->ttl_ms);
	return mem_field_set(s, r, "", 0, w->bytes, w->n, 0);
}

static int op_delete(struct mem_store *s, struct cache_work *w)
{
	struct mem_record *r = mem_find(s, w->keys);
	w->res.found = r != NULL;
	if (r != NULL)
		mem_remove(s, r);
	if (!cache_kind_indexed(w->keys->kind)) { /* the set that procedures keep beside it */
		struct cache_key beside = *w->keys;
		memcpy(beside.text + beside.len, ":x", sizeof ":x");
		beside.len += 2;
		r = mem_find(s, &beside);
		if (r != NULL)
			mem_remove(s, r);
	}
	return 0;
}

/* ---- logs ---- */

static struct mem_batch *first_batch(const struct mem_record *r)
{
	return list_entry(r->batches.next, struct mem_batch, node);
}

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
		r->first_seq = w->seq;
	}
	b->first_seq = w->seq;
	b->n_items = w->n_seq;
	b->n = w->n;
	if (w->n > 0)
		memcpy(b->bytes, w->bytes, w->n);
	list_push_back(&r->batches, &b->node);
	r->next_seq = end;
	size_t size = r->content + w->n + LOG_HEADER;
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
	struct cache_item *items = give_items(w, n, bytes);
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
	return 0;
}

/* ---- a tenant's keys ---- */

static int op_list(struct mem_store *s, struct cache_work *w)
{
	size_t n, i = 0;
	const struct list *records = mem_siblings(s, w->keys, &n);
	if (n == 0)
		return 0;
	struct cache_item *items = give_items(w, n, n * CACHE_DIGEST_LEN);
	if (items == NULL)
		return SL_ENOMEM;
	uint8_t *to = (uint8_t *)(items + n);
	list_each(it, records) {
		const struct mem_record *r = list_entry(it, struct mem_record, sibling);
		memcpy(to, cache_key_digest(&r->key), CACHE_DIGEST_LEN);
		items[i++] = (struct cache_item){.bytes = to, .n = CACHE_DIGEST_LEN};
		to += CACHE_DIGEST_LEN;
	}
	return 0;
}

static int dispatch(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us)
{
	switch (w->type) {
	case WORK_GET: return op_get(s, w);
	case WORK_PUT:
	case WORK_PUT_ABSENT: return op_put(s, w);
	case WORK_DELETE: return op_delete(s, w);
	case WORK_LOG_APPEND: return op_append(s, cfg, w, now_us);
	case WORK_LOG_READ: return op_log_read(s, w);
	case WORK_LIST: return op_list(s, w);
	case WORK_EVAL: return mem_lua_eval(s->lua, s, w, now_us);
	case WORK_FLUSH: return 0;
	}
	BUG("no work of type %d", (int)w->type);
}

void mem_work(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us)
{
	mem_store_expire(s, now_us);
	w->res = (struct cache_result){.degraded = w->degraded};
	w->res.code = dispatch(s, cfg, w, now_us);
	mem_end(s, now_us, w->res.code >= 0);
	if (w->res.code < 0)
		w->res.n_values = w->res.n_items = 0;
	mem_store_evict(s);
	metric_add(&cache_m_memory_ops, 1);
}
