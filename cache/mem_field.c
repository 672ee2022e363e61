/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of records, and the journal that makes an operation atomic: each change is a new field, or a tombstone, that
 * keeps the field it replaced until mem_end. TTLs are set and empty records removed at the end of the operation as
 * well, because a new TTL may evict other records of the tenant.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/mem_priv.h"

static size_t hash_of(const struct mem_record *r, const void *name, size_t n)
{
	return mem_hash(name, n, (uintptr_t)r * 0x9e3779b97f4a7c15u);
}

static size_t cost_of(const struct mem_field *f) { return sizeof *f + f->n_name + f->n; }

static void attach(struct mem_store *s, struct mem_field *f)
{
	struct mem_record *r = f->record;
	mem_table_add(&s->fields, &f->entry, hash_of(r, f->bytes, f->n_name));
	list_push_back(&r->fields, &f->node);
	if (r->type == MEM_ZSET)
		heap_insert(&r->scores, &f->by_score);
	r->n_fields++;
	mem_account(s, r, r->content + cost_of(f));
}

static void detach(struct mem_store *s, struct mem_field *f)
{
	struct mem_record *r = f->record;
	mem_table_remove(&s->fields, &f->entry);
	list_remove(&f->node);
	if (f->by_score.in)
		heap_remove(&r->scores, &f->by_score);
	r->n_fields--;
	mem_account(s, r, r->content - cost_of(f));
}

void mem_fields_free(struct mem_store *s, struct mem_record *r)
{
	while (!list_empty(&r->fields)) {
		struct mem_field *f = list_entry(r->fields.next, struct mem_field, node);
		detach(s, f);
		sl_free(f);
	}
}

struct mem_field *mem_field_find(const struct mem_store *s, const struct mem_record *r, const void *name, size_t n)
{
	size_t hash = r == NULL ? 0 : hash_of(r, name, n);
	struct mem_entry *e = r == NULL ? NULL : mem_table_first(&s->fields, hash);
	for (; e != NULL; e = mem_table_next(e, hash)) {
		struct mem_field *f = (struct mem_field *)e;
		if (f->record == r && f->n_name == n && memcmp(f->bytes, name, n) == 0)
			return f;
	}
	return NULL;
}

static void touch(struct mem_store *s, struct mem_record *r)
{
	list_remove(&r->touched);
	list_push_back(&s->touched, &r->touched);
}

/* The newest entry of the journal. NULL: no memory. */
static struct mem_field *change(struct mem_store *s, struct mem_record *r, const void *name, size_t n_name,
				const void *value, size_t n)
{
	touch(s, r);
	struct mem_field *f = sl_alloc(sizeof *f + n_name + n);
	if (f == NULL)
		return NULL;
	*f = (struct mem_field){.record = r, .is_gone = true, .n_name = n_name, .n = n};
	list_init(&f->node);
	memcpy(f->bytes, name, n_name);
	if (n > 0)
		memcpy(f->bytes + n_name, value, n);
	f->replaced = mem_field_find(s, r, name, n_name);
	if (f->replaced != NULL)
		detach(s, f->replaced);
	list_push_back(&s->journal, &f->changed);
	return f;
}

int mem_field_set(struct mem_store *s, struct mem_record *r, const void *name, size_t n_name, const void *value,
		  size_t n, double score)
{
	struct mem_field *f = change(s, r, name, n_name, value, n);
	if (f == NULL)
		return SL_ENOMEM;
	f->is_gone = false;
	f->score = score;
	attach(s, f);
	return 0;
}

int mem_field_remove(struct mem_store *s, struct mem_field *f)
{
	return change(s, f->record, f->bytes, f->n_name, NULL, 0) == NULL ? SL_ENOMEM : 0;
}

void mem_live(struct mem_store *s, struct mem_record *r, uint64_t ttl_ms)
{
	touch(s, r);
	r->has_new_ttl = true;
	r->new_ttl_ms = ttl_ms;
}

void mem_end(struct mem_store *s, uint64_t now_us, bool keep)
{
	while (!list_empty(&s->journal)) {
		struct list *next = keep ? s->journal.next : s->journal.prev;
		struct mem_field *f = list_entry(next, struct mem_field, changed);
		list_remove(&f->changed);
		if (keep) {
			sl_free(f->replaced);
			f->replaced = NULL;
		} else {
			if (!f->is_gone)
				detach(s, f);
			if (f->replaced != NULL)
				attach(s, f->replaced);
		}
		if (!keep || f->is_gone)
			sl_free(f);
	}
	while (!list_empty(&s->touched)) {
		struct mem_record *r = list_entry(s->touched.next, struct mem_record, touched);
		bool has_new_ttl = r->has_new_ttl;
		list_remove(&r->touched);
		r->has_new_ttl = false;
		if (r->n_fields == 0)
			mem_remove(s, r);
		else if (keep && has_new_ttl)
			mem_set_ttl(s, r, now_us, r->new_ttl_ms);
	}
}
