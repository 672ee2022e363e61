/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside cache/: an operation's request and result (struct cache_work) and who carries it.
 *
 *   client.c   owns operations and works, deadlines, the policy        the client's thread
 *   redis*.c   one connection of a client                              the client's thread
 *   memory.c   one thread: works come and go through mailboxes; mem_*.c are what it does
 *
 * A work belongs to the client's thread except while it is at the store (AT_STORE); then only `op`
 * and `due` are still the client's.
 */
#ifndef CACHE_PRIV_H
#define CACHE_PRIV_H

#include <stdatomic.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "cache/cache.h"
#include "cache/mem_proc.h"

/* ---- kinds (key.c) ---- */

enum cache_policy { POLICY_SHARE, POLICY_LOCAL, POLICY_ERROR };

const char *cache_kind_name(int kind);
enum cache_policy cache_kind_policy(int kind);
bool cache_kind_indexed(int kind); /* a tenant's keys of it can be listed */
int cache_kind_memory_percent(int kind);
void cache_key_index(struct cache_key *out, enum cache_kind kind, const char *tenant);
/* Bytes before the digest; the digest itself (terminated). */
size_t cache_key_stem(const struct cache_key *key);
const char *cache_key_digest(const struct cache_key *key);

/* ---- works ---- */

enum work_type {
	WORK_GET,
	WORK_PUT,
	WORK_PUT_ABSENT,
	WORK_DELETE,
	WORK_LOG_APPEND,
	WORK_LOG_READ,
	WORK_LIST,       /* keys[0] is the index's */
	WORK_DELETE_ALL, /* the same */
	WORK_EVAL,
	WORK_FLUSH, /* comes back: whatever was sent before it has too */
};

enum work_place { AT_NONE, AT_WAITING, AT_REDIS, AT_STORE };

struct redis_slot;

struct cache_work {
	struct mail mail;
	struct cache_client *client;
	enum work_type type;
	enum work_place place;
	bool degraded;
	bool local;              /* never to Redis */
	struct cache_op *op;     /* NULL: nobody waits any more */
	struct heap_node due;    /* in client->due while op is set */
	uint64_t due_ns, end_ns; /* this stage's end, the operation's end */
	struct list node;        /* AT_WAITING: in client->waiting */
	struct redis_slot *slot; /* AT_REDIS */
	/* The request. Pointers lead into the same allocation. */
	uint32_t share;
	uint8_t version;
	uint64_t ttl_ms;
	uint64_t seq;
	uint32_t n_seq;
	size_t max_bytes;
	const struct cache_proc *proc;
	size_t n_keys, n_args;
	struct cache_key *keys;
	struct cache_value *args;
	uint8_t *bytes; /* put: the version, then the value. Append: the batch */
	size_t n;
	/* The answer. Owned: out. */
	struct cache_result res;
	struct cache_value *values; /* eval at the store: room for CACHE_MAX_VALUES, in out */
	void *out;
	size_t n_out; /* bytes of an eval's answer */
};

/* ---- the process's part (cache.c) ---- */

enum { MAX_PROCS = CACHE_MAX_PROCS + 2 };

struct cache {
	struct cache_config cfg;
	char prefix[33];
	/* Redis: a path, or a numeric address and a port. */
	char *unix_path;
	char host[64];
	int port;
	char *user, *password; /* NULL: none */
	const struct cache_proc *procs[MAX_PROCS];
	size_t n_procs;
	struct mem_thread *memory;
	atomic_int n_clients;
};

/* ---- the store's thread (memory.c) ---- */

int mem_thread_start(struct cache *c, struct mem_thread **out);
void mem_thread_stop(struct mem_thread *m);
/* Any thread. Takes w and sends it back to the client's inbox. */
void mem_thread_send(struct mem_thread *m, struct cache_work *w);

/* ---- the client (client.c) ---- */

struct redis_link; /* redis.c */

struct cache_client {
	struct cache *cache;
	struct event_base *base;
	struct mailbox inbox; /* works that the store has done */
	struct event *inbox_event, *ready_event, *due_event;
	struct list ready;   /* operations that end without an answer */
	struct list waiting; /* works until the first connection is made */
	struct heap due;     /* works with an operation */
	uint64_t armed_ns;   /* what due_event waits for; 0: nothing */
	size_t n_works;
	bool in_done;
	struct redis_link *link; /* NULL: memory only */
};

/* The store's thread: w is done. */
void client_take_back(struct cache_client *cl, struct cache_work *w);
/* op ends with code from the loop, soon. */
void client_end_early(struct cache_client *cl, struct cache_op *op, int code, cache_done *done);
/* The link: the answer to w, which it has let go of. Calls done. */
void client_answered(struct cache_work *w, const struct cache_result *r);
/* The link: Redis failed at w, which it has let go of. */
void client_failed(struct cache_work *w, int code);
/* The link: what waited for the first connection can go to it, or must not wait any longer. */
void client_release_waiting(struct cache_client *cl);

/* ---- a connection (redis.c) ---- */

int redis_link_create(struct cache_client *cl, struct redis_link **out);
void redis_link_destroy(struct redis_link *l);
enum cache_state redis_link_state(const struct redis_link *l);
const char *redis_link_text(const struct redis_link *l);
/* Takes w until client_answered or client_failed, or redis_link_forget. Negative: not taken. Only while
 * the state is CACHE_IS_UP. */
int redis_link_submit(struct redis_link *l, struct cache_work *w);
/* Lets go of w. timed_out counts as a failure. */
void redis_link_forget(struct redis_link *l, struct cache_work *w, bool timed_out);

/* ---- the records (mem_store.c), what is done with them (mem_ops.c) ---- */

struct mem_batch { /* of a log */
	struct list node;
	uint64_t first_seq;
	uint32_t n_items;
	size_t n;
	uint8_t bytes[];
};

enum mem_type { MEM_VALUE, MEM_LOG, MEM_RECORD };

struct mem_record {
	struct mem_record *chain;
	struct heap_node due;
	uint64_t due_us; /* UINT64_MAX: never, and not in the heap */
	struct list lru;
	struct list sibling; /* in index->records, by due_us */
	struct mem_index *index;
	enum mem_type type;
	size_t cost;
	void *bytes; /* value with its version; a counterpart's record */
	size_t n;
	struct list batches; /* log */
	uint64_t first_seq, next_seq;
	struct cache_key key;
};

struct mem_store;

int mem_store_create(const struct cache_config *cfg, struct mem_store **out);
void mem_store_destroy(struct mem_store *s);
/* Ends what is due; the next time something is, UINT64_MAX: nothing. */
uint64_t mem_store_expire(struct mem_store *s, uint64_t now_us);
/* Takes what is too much of each kind, the least recently used first. */
void mem_store_evict(struct mem_store *s);
/* NULL: absent. Counts as a use. */
struct mem_record *mem_find(struct mem_store *s, const struct cache_key *key);
/* A new, empty record; key must be absent. NULL: exhausted. */
struct mem_record *mem_add(struct mem_store *s, const struct cache_key *key, enum mem_type type);
void mem_remove(struct mem_store *s, struct mem_record *r);
/* After r's bytes or batches changed: cost is that of its content. */
void mem_account(struct mem_store *s, struct mem_record *r, size_t content);
/* ttl_ms 0: never. Sorts r into its tenant's list, and removes what that has too many (maybe r). */
void mem_set_ttl(struct mem_store *s, struct mem_record *r, uint64_t now_us, uint64_t ttl_ms);
/* The records of a tenant and kind, a ring of `sibling`; NULL: none. index as of cache_key_index. */
struct list *mem_siblings(struct mem_store *s, const struct cache_key *index, size_t *n);
/* BUGs unless counts, costs and lists agree. */
void mem_store_validate(const struct mem_store *s);

/* Does w; the answer is in w->res. */
void mem_work(struct mem_store *s, const struct cache_config *cfg, struct cache_work *w, uint64_t now_us);

enum {
	LOG_HEADER = 40,         /* what a batch costs beside its bytes, in both stores */
	MAX_BATCHES_READ = 1024, /* in one answer */
};

/* ---- metrics (cache_metrics.c) ---- */

enum cache_failure {
	FAILED_CLOSED,
	FAILED_TIMEOUT,
	FAILED_LOADING,
	FAILED_READONLY,
	FAILED_OOM,
	FAILED_NOAUTH,
	FAILED_MOVED,
	FAILED_BUSY,
	FAILED_WRONG_TYPE,
	FAILED_MALFORMED,
	FAILED_FULL,
	FAILED_OTHER,
	N_FAILURES,
};

extern struct metric cache_m_redis_ops, cache_m_memory_ops, cache_m_refused, cache_m_timeouts, cache_m_expired,
    cache_m_up, cache_m_connects, cache_m_opened, cache_m_redis_seconds;
extern struct metric cache_m_failures[N_FAILURES], cache_m_degraded[CACHE_N_KINDS], cache_m_evicted[CACHE_N_KINDS],
    cache_m_bytes[CACHE_N_KINDS];
void cache_metrics_register(void); /* once; any number of calls */

#endif
