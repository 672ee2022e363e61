/* SPDX-License-Identifier: Apache-2.0
 *
 * The store: small values, logs and limits that outlive a request, in Redis (shared by all gateways) or in this
 * process's memory, behind one asynchronous interface with one meaning.
 *
 *   cache      one for each process
 *   client     one for each thread, bound to that thread's event loop; at most max_ops outstanding operations, further ones end with SL_ELIMIT
 *   operation  a struct cache_op that the caller embeds, so starting one can't fail for lack of memory. It returns at
 *              once, copies its arguments, and calls done exactly once, from the loop, after op_timeout_ms at the latest
 *              (SL_ETIMEOUT). It must outlive that call or cache_cancel; results are valid until done returns
 *   key        "{tenant}:kind:" and the SHA-256 of the client's name for it: no key contains client bytes, and a
 * tenant's keys share a slot of a Redis cluster
 *   procedure  an atomic Lua script that Redis and the memory store both run
 *
 * A done function may call everything except cache_client_destroy. Callers: gateway/.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heap.h"
#include "base/list.h"

/* Values begin with a version byte that the writer chooses. A reader of another version finds nothing.
 *
 * When Redis fails (unreachable, too slow, LOADING, READONLY, OOM, NOAUTH, malformed), by kind:
 *
 *   kind            on failure  meaning
 *   CACHE_LIMIT     share       fails closed to a local share: this process's memory enforces each limit
 *                               divided by n_gateways; the result is degraded
 *   CACHE_REPLAY    local       fails to this process only: memory, degraded
 *   CACHE_SHARED    local       the same (compression, prefix registry, warming; Idempotency-Keys ignore a degraded
 *                               answer)
 *   CACHE_SESSION   error       fails to stateless: SL_ECLOSED or another code at once; degraded is set
 *   CACHE_IDENTITY  error       keys of tenants: the caller falls back to its configuration
 *
 * No operation waits for a Redis that is known to be down: after breaker_failures consecutive failures the circuit
 * opens, and operations are answered by policy at once until a probe (reconnection with jittered exponential backoff,
 * then a write) succeeds. Data written to memory meanwhile is not copied to Redis: a limit's local charges, at most one
 * window's, are lost. */

struct event_base;
struct cache;
struct cache_client;
struct cache_work; /* an operation's request and result; private to cache/ */

enum cache_store { CACHE_MEMORY, CACHE_REDIS };

enum cache_kind {
	CACHE_LIMIT,
	CACHE_SESSION,
	CACHE_REPLAY,
	CACHE_IDENTITY,
	CACHE_SHARED,
	CACHE_N_KINDS,
};

enum {
	CACHE_MAX_KEYS = 8, /* of one operation */
	CACHE_MAX_ARGS = 64,
	CACHE_MAX_VALUES = 128, /* of a procedure's answer */
	CACHE_MAX_PROCS = 16,
	CACHE_TENANT_MAX = 64, /* bytes of a tenant's name in a key; a longer name is hashed */
	CACHE_DIGEST_LEN = 64,
};

struct cache_config {
	enum cache_store store;
	const char *address; /* "unix:/path", "host:port" or "[::1]:port"; or sentinels (sentinel.h); resolved once */
	bool own_server;     /* on a unix socket: the server must run as our user, or nothing is sent (base/peer.h) */
	const char *user;    /* NULL: the default user */
	const char *password_file;          /* NULL: none. cache_create reads its first line */
	const char *sentinel_password_file; /* NULL: none; likewise */
	int database;
	const char *prefix; /* before every key, up to 32 of [A-Za-z0-9:._-] */
	uint32_t connect_timeout_ms;
	uint32_t op_timeout_ms; /* Redis gets three quarters of it, the fallback to memory the rest */
	uint32_t backoff_least_ms, backoff_most_ms;
	uint32_t breaker_failures; /* consecutive ones that open the circuit */
	uint32_t max_ops;          /* outstanding, for each client */
	size_t max_value_bytes;
	size_t max_log_bytes;         /* of one log; the oldest entries are dropped first */
	uint32_t max_keys_per_tenant; /* of one kind; the soonest to expire are dropped first */
	uint64_t memory_bytes;        /* of the memory store; each kind has its own share */
	uint32_t n_gateways;          /* that share the limits; local shares divide by it */
	/* Tests: the time in microseconds for memory and for procedures in Redis. NULL: wall time that never steps
	 * (memory) and TIME (Redis). */
	uint64_t (*now_us)(void *ctx);
	void *now_ctx;
};

/* Memory, and the defaults of every bound. */
void cache_config_init(struct cache_config *cfg);

/* ---- atomic procedures ---- */

/* An argument or one value of an answer: bytes when p is set, otherwise the number i (|i| < 2^53, so
 * that Lua's numbers hold it). */
struct cache_value {
	int64_t i;
	const void *p;
	size_t n;
};

/* A Lua 5.1 text that runs atomically beside the data: in Redis, and in the memory store's own interpreter on its
 * records. KEYS are the call's. ARGV[1] is the time in microseconds, or "0" in Redis, which means: use TIME. The call's
 * arguments follow from ARGV[2] on; a number may be a string of digits. In memory ARGV.share is set: divide limits by
 * it. The script returns a flat array of integers and strings.
 *
 * It may use KEYS[i], for kinds that are not listed also KEYS[i] .. ":x", and these commands: GET, SET [PX], HMGET,
 * HSET, HDEL, HGETALL, ZADD, ZREM, ZCARD, ZRANGEBYSCORE from -inf, PTTL, PEXPIRE, PERSIST, UNLINK. Only reading
 * commands have usable results. Numbers must be whole. In memory a call that fails changes nothing. Static. */
struct cache_proc {
	const char *name;
	const char *lua;
};

/* ---- life ---- */

/* procs (n at most CACHE_MAX_PROCS, borrowed for ever) are added to those of cache/limits.h. Starts
 * the memory store's thread. Redis need not be there. The process must ignore SIGPIPE. 0, SL_EINVAL,
 * SL_EIO, SL_ENOMEM with err. */
int cache_create(const struct cache_config *cfg, const struct cache_proc *const *procs, size_t n_procs,
		 struct cache **out, struct sl_err *err);
/* Every client must have been destroyed. */
void cache_destroy(struct cache *c);

/* Called on the thread that runs base, like everything that takes a client. 0, SL_ENOMEM, SL_EIO. */
int cache_client_create(struct cache *c, struct event_base *base, struct cache_client **out);
/* BUG if an operation is outstanding and not cancelled. */
void cache_client_destroy(struct cache_client *cl);

enum cache_state {
	CACHE_IS_MEMORY,     /* Redis is unavailable */
	CACHE_IS_CONNECTING, /* the first time: operations wait, within their time */
	CACHE_IS_UP,
	CACHE_IS_DOWN, /* the circuit is open: operations are answered by policy */
};
enum cache_state cache_client_state(const struct cache_client *cl);
/* "memory", "up", "down: why" and so on for a status page. Borrowed until the next event. */
const char *cache_client_state_text(const struct cache_client *cl);

/* ---- keys ---- */

struct cache_key {
	uint8_t kind;
	uint8_t n_tenant; /* bytes of text up to and with the closing brace */
	uint8_t len;
	char text[157]; /* terminated */
};

/* tenant: a name of [A-Za-z0-9._-], hashed if it has other characters or is longer than CACHE_TENANT_MAX. part:
 * identifies the value within tenant and kind; any bytes, any length. */
void cache_key_make(struct cache_key *out, enum cache_kind kind, const char *tenant, const void *part, size_t n);
/* 64 lower-case hex digits and a terminator. */
void cache_sha256_hex(const void *data, size_t n, char out[65]);
/* A key from a digest of cache_list. SL_EINVAL unless digest is CACHE_DIGEST_LEN lower-case hex digits. */
int cache_key_from_digest(struct cache_key *out, enum cache_kind kind, const char *tenant, const void *digest,
			  size_t n);

/* ---- operations ---- */

struct cache_item { /* of a log: a batch as it was appended; of a list: a key's digest */
	uint64_t first_seq;
	uint32_t n_items;
	const uint8_t *bytes;
	size_t n;
};

struct cache_result {
	int code;
	bool degraded;        /* Redis failed: this process's memory answered, or (code < 0) nothing did */
	bool found;           /* put_absent: a value existed, see bytes; delete: a value existed */
	const uint8_t *bytes; /* get, put_absent: the value without its version */
	size_t n;
	uint64_t first_seq, next_seq; /* of the log: its first number, and the next append's */
	const struct cache_item *items;
	size_t n_items;
	const struct cache_value *values; /* eval */
	size_t n_values;
};

struct cache_op;
typedef void cache_done(struct cache_op *op, const struct cache_result *r);

struct cache_op { /* private; zeroed before its first use */
	struct list node;
	struct cache_client *client; /* NULL: idle */
	struct cache_work *work;
	cache_done *done;
	int code; /* of an operation without an answer; degraded: ended by policy */
	bool degraded;
};

static inline bool cache_op_busy(const struct cache_op *op) { return op->client != NULL; }

/* done is not called. The operation may still take effect. Does nothing when op is idle. */
void cache_cancel(struct cache_op *op);

/* SL_ENOTFOUND when absent or of another version. */
void cache_get(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
	       cache_done *done);
/* ttl_ms 0: for ever (memory: until evicted). SL_ELIMIT: too large. */
void cache_put(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
	       const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done);
/* 0 in both cases. found: a value of this version existed; it is returned and nothing is written. A value of another
 * version is overwritten. */
void cache_put_absent(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
		      const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done);
/* 0 whether it was there or not; values and logs. */
void cache_delete(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, cache_done *done);

/* Appends n_items items, numbered from first_seq, as one batch; ttl_ms (not 0) applies to the whole log. The first
 * batch may have any number. A batch that the log already has (all below next_seq) changes nothing and returns 0, so an
 * append with unknown outcome may be repeated. SL_ERANGE: not the next number, which is next_seq. SL_ELIMIT: batch too
 * large. */
void cache_log_append(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint64_t first_seq,
		      uint32_t n_items, const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done);
/* Batches in order from the one that holds from_seq, up to about max_bytes (at least one batch).
 * None when from_seq is next_seq. SL_ENOTFOUND: no log; SL_ERANGE: from_seq was trimmed or is beyond. */
void cache_log_read(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint64_t from_seq,
		    size_t max_bytes, cache_done *done);

/* The digests of a tenant's keys of one kind (session, replay, identity), the soonest to expire first. */
void cache_list(struct cache_client *cl, struct cache_op *op, enum cache_kind kind, const char *tenant,
		cache_done *done);

/* Runs a registered procedure on keys of one kind and one tenant. */
void cache_eval(struct cache_client *cl, struct cache_op *op, const struct cache_proc *proc,
		const struct cache_key *keys, size_t n_keys, const struct cache_value *args, size_t n_args,
		cache_done *done);
/* The same, always in this process's memory: for completing what began there degraded. */
void cache_eval_local(struct cache_client *cl, struct cache_op *op, const struct cache_proc *proc,
		      const struct cache_key *keys, size_t n_keys, const struct cache_value *args, size_t n_args,
		      cache_done *done);

#endif
