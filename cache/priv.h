/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside cache/: an operation's request and result (struct cache_work) and the modules that process it.
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
#include "cache/sentinel.h"

/* ---- kinds (key.c) ---- */

enum cache_policy { POLICY_SHARE, POLICY_LOCAL, POLICY_ERROR };

const char *cache_kind_name(int kind);
enum cache_policy cache_kind_policy(int kind);
bool cache_kind_indexed(int kind); /* a tenant's keys of this kind can be listed */
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
	WORK_LIST, /* keys[0] is the index's */
	WORK_EVAL,
	WORK_FLUSH, /* returns after everything sent before it */
};

enum work_place { AT_NONE, AT_WAITING, AT_REDIS, AT_STORE };

struct redis_slot;

struct cache_work {
	struct mail mail;
	struct cache_client *client;
	enum work_type type;
	enum work_place place;
	bool degraded;
	bool local;              /* never sent to Redis */
	struct cache_op *op;     /* NULL: cancelled */
	struct heap_node due;    /* in client->due while op is set */
	uint64_t due_ns, end_ns; /* this stage's end, the operation's end */
	struct list node;        /* AT_WAITING: in client->waiting */
	struct redis_slot *slot; /* AT_REDIS */
	/* The request. Pointers lead into the same allocation; of a template for copy_work, to the caller's data. */
	uint32_t share;
	uint8_t version;
	uint64_t ttl_ms;
	uint64_t seq;
	uint32_t n_seq;
	size_t max_bytes;
	const struct cache_proc *proc;
	size_t n_keys, n_args;
	const struct cache_key *keys;
	const struct cache_value *args;
	const uint8_t *bytes; /* put: the version, then the value. Append: the batch */
	size_t n;
	/* The answer. Owned: out. */
	struct cache_result res;
	void *out;
};

/* ---- the process (cache.c) ---- */

enum { MAX_PROCS = CACHE_MAX_PROCS + 2 };

struct cache {
	struct cache_config cfg;
	char prefix[33];
	/* Redis: a path, a numeric address and a port, or sentinels that know one. */
	char *unix_path;
	char host[64];
	int port;
	struct sentinel_set sentinels;
	char *user, *password, *sentinel_password; /* NULL: none */
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

struct event;
/* event_free, where e may be NULL. */
void client_event_free(struct event *e);

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

/* Called on the store's thread: w is done. */
void client_take_back(struct cache_client *cl, struct cache_work *w);
/* Ends op with code, from the loop. */
void client_end_early(struct cache_client *cl, struct cache_op *op, int code, cache_done *done);
/* Called by the link: the answer to w, which the link has released. Calls done. */
void client_answered(struct cache_work *w, const struct cache_result *r);
/* Called by the link: Redis failed on w, which the link has released. */
void client_failed(struct cache_work *w, int code);
/* Called by the link: works that waited for the first connection go to it, or to the fallback. */
void client_release_waiting(struct cache_client *cl);

/* ---- a connection (redis.c) ---- */

int redis_link_create(struct cache_client *cl, struct redis_link **out);
void redis_link_destroy(struct redis_link *l);
enum cache_state redis_link_state(const struct redis_link *l);
const char *redis_link_text(const struct redis_link *l);
/* Takes w until client_answered or client_failed, or redis_link_forget. Negative: not taken. Only while
 * the state is CACHE_IS_UP. */
int redis_link_submit(struct redis_link *l, struct cache_work *w);
/* Releases w. timed_out counts as a failure. */
void redis_link_forget(struct redis_link *l, struct cache_work *w, bool timed_out);

enum {
	LOG_HEADER = 40,         /* overhead per batch, in both stores */
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

#endif
