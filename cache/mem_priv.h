/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store: records (mem_store.c) of fields (mem_field.c), found in hash tables (mem_table.c); operations on
 * them (mem_ops.c); and Redis' commands for procedures, whose Lua an interpreter runs (mem_lua.c).
 *
 * Thread: the store's (memory.c), or a test's.
 */
#ifndef CACHE_MEM_PRIV_H
#define CACHE_MEM_PRIV_H

#include "cache/priv.h"

/* ---- intrusive hash tables (mem_table.c) ---- */

struct mem_entry { /* the first member of what the table holds */
	struct mem_entry *next;
	size_t hash;
};

struct mem_table {
	struct mem_entry **buckets;
	size_t n_buckets, n; /* n_buckets: a power of two */
};

int mem_table_init(struct mem_table *t); /* 0, SL_ENOMEM */
void mem_table_dispose(struct mem_table *t);
void mem_table_add(struct mem_table *t, struct mem_entry *e, size_t hash);
void mem_table_remove(struct mem_table *t, struct mem_entry *e);
/* The entries of this hash, one after the other. NULL: no more. */
struct mem_entry *mem_table_first(const struct mem_table *t, size_t hash);
struct mem_entry *mem_table_next(const struct mem_entry *e, size_t hash);
size_t mem_hash(const void *p, size_t n, size_t seed);

/* ---- records (mem_store.c) ---- */

struct mem_batch { /* of a log */
	struct list node;
	uint64_t first_seq;
	uint32_t n_items;
	size_t n;
	uint8_t bytes[];
};

enum mem_type { MEM_LOG, MEM_VALUE, MEM_HASH, MEM_ZSET };

/* A value is one field without a name. */
struct mem_field {
	struct mem_entry entry;
	struct mem_record *record;
	struct list node;          /* in record->fields */
	struct heap_node by_score; /* sorted sets: in record->scores */
	double score;
	struct list changed; /* in store->journal */
	struct mem_field *replaced;
	bool is_gone; /* a tombstone */
	size_t n_name, n;
	uint8_t bytes[]; /* name, value */
};

struct mem_record {
	struct mem_entry entry;
	struct heap_node due;
	uint64_t due_us; /* UINT64_MAX: never, and not in the heap */
	struct list lru;
	struct list sibling; /* in index->records, by due_us */
	struct list touched; /* in store->touched while an operation changes it */
	struct mem_index *index;
	enum mem_type type;
	size_t content; /* bytes of fields or batches */
	bool has_new_ttl;
	uint64_t new_ttl_ms; /* from the end of the operation on */
	struct list fields;
	size_t n_fields;
	struct heap scores;
	struct list batches; /* log */
	uint64_t first_seq, next_seq;
	struct cache_key key;
};

struct mem_store {
	struct mem_table records, indices, fields;
	struct heap due;
	struct list lru[CACHE_N_KINDS]; /* the least recently used first */
	uint64_t used[CACHE_N_KINDS], most[CACHE_N_KINDS];
	uint32_t max_keys_per_tenant;
	struct list journal, touched; /* empty between operations */
	struct mem_lua *lua;
};

int mem_store_create(const struct cache_config *cfg, struct mem_store **out);
void mem_store_destroy(struct mem_store *s);
/* Removes expired records. Returns when the next one expires; UINT64_MAX: never. */
uint64_t mem_store_expire(struct mem_store *s, uint64_t now_us);
/* Removes what exceeds each kind's memory, the least recently used first. */
void mem_store_evict(struct mem_store *s);
/* NULL: absent. Counts as a use. */
struct mem_record *mem_find(struct mem_store *s, const struct cache_key *key);
/* A new, empty record; key must be absent. NULL: exhausted. */
struct mem_record *mem_add(struct mem_store *s, const struct cache_key *key, enum mem_type type);
void mem_remove(struct mem_store *s, struct mem_record *r);
/* After r's fields or batches changed: their bytes. */
void mem_account(struct mem_store *s, struct mem_record *r, size_t content);
/* ttl_ms 0: never. Moves r to its position in its tenant's list, and removes records beyond the limit (maybe r). */
void mem_set_ttl(struct mem_store *s, struct mem_record *r, uint64_t now_us, uint64_t ttl_ms);
/* The records of a tenant and kind, a ring of `sibling`; NULL: none. index as of cache_key_index. */
struct list *mem_siblings(struct mem_store *s, const struct cache_key *index, size_t *n);
/* BUGs unless counts, costs and lists agree. */
void mem_store_validate(const struct mem_store *s);

/* ---- fields (mem_field.c) ---- */

/* NULL: absent, or r is NULL. Valid until the field is changed. */
struct mem_field *mem_field_find(const struct mem_store *s, const struct mem_record *r, const void *name, size_t n);
/* 0, SL_ENOMEM: then end the operation without keeping it. */
int mem_field_set(struct mem_store *s, struct mem_record *r, const void *name, size_t n_name, const void *value,
		  size_t n, double score);
int mem_field_remove(struct mem_store *s, struct mem_field *f);
/* ttl_ms 0: for ever. */
void mem_live(struct mem_store *s, struct mem_record *r, uint64_t ttl_ms);
/* Ends the operation: keeps its changes, or undoes all of them. */
void mem_end(struct mem_store *s, uint64_t now_us, bool keep);
/* Frees all fields of a record that is being removed, without the journal. */
void mem_fields_free(struct mem_store *s, struct mem_record *r);

/* ---- procedures (mem_lua.c) ---- */

int mem_lua_create(uint64_t most_bytes, struct mem_lua **out);
void mem_lua_destroy(struct mem_lua *m);
/* Runs w->proc; the answer is in w->res. The caller ends the operation. 0, SL_ENOMEM, SL_ELIMIT (the answer), SL_EPROTO
 * (the procedure failed: a record of another type). */
int mem_lua_eval(struct mem_lua *m, struct mem_store *s, struct cache_work *w, uint64_t now_us);

/* ---- operations (mem_ops.c) ---- */

/* Does w; the answer is in w->res. */
void mem_work(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us);

#endif
