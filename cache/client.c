/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's client of the store: operations, their timeouts, and the fallback when Redis fails.
 *
 * The caller's struct cache_op is a handle; a struct cache_work with copies of everything travels. Either can outlive
 * the other: a cancelled or timed-out operation leaves its work at the store (freed on return) or a slot at Redis (the
 * answer is dropped).
 *
 *   start ──► AT_REDIS ──(failed, too slow: policy)──► AT_STORE ──► done
 *     │  └──► AT_WAITING for the first connection ──┘      ▲
 *     └────────────────── memory only ─────────────────────┘
 *     └─ ready: ends from the loop with a code and no answer (refused, invalid, policy ERROR, timeout)
 *
 * Invariants: an op with client set has a work or is in `ready`; a work with an op is in `due`; the op is idle when
 * done is called, so done may reuse or free it.
 *
 * Thread: the client's, except client_take_back.
 */
#include <event2/event.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cache/priv.h"

static bool due_sooner(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct cache_work, due)->due_ns <
	       heap_entry(b, const struct cache_work, due)->due_ns;
}

/* ---- completion ---- */

static void free_work(struct cache_work *w)
{
	w->client->n_works--;
	sl_free(w->out);
	sl_free(w);
}

/* Detaches op and w from each other. */
static void part(struct cache_op *op, struct cache_work *w)
{
	if (w->due.in)
		heap_remove(&w->client->due, &w->due);
	w->op = NULL;
	op->work = NULL;
}

static void call_done(struct cache_op *op, const struct cache_result *r)
{
	struct cache_client *cl = op->client;
	bool nested = cl->in_done;
	op->client = NULL;
	cl->in_done = true;
	op->done(op, r);
	cl->in_done = nested;
}

static void make_ready(struct cache_client *cl, struct cache_op *op, int code, bool degraded)
{
	op->code = code;
	op->degraded = degraded;
	/* A timer and not event_active: a caller that starts operations in done must not keep the loop iteration from
	 * ending. */
	static const struct timeval at_once;
	if (list_empty(&cl->ready) && event_add(cl->ready_event, &at_once) != 0)
		event_active(cl->ready_event, EV_TIMEOUT, 0);
	list_push_back(&cl->ready, &op->node);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct cache_client *cl = arg;
	struct list batch;
	list_init(&batch);
	list_append(&batch, &cl->ready);
	while (!list_empty(&batch)) {
		struct cache_op *op = list_entry(batch.next, struct cache_op, node);
		list_remove(&op->node);
		call_done(op, &(struct cache_result){.code = op->code, .degraded = op->degraded});
	}
}

static void begin(struct cache_client *cl, struct cache_op *op, cache_done *done)
{
	BUG_IF(op->client != NULL, "an operation is started that is under way");
	op->client = cl;
	op->work = NULL;
	op->done = done;
	list_init(&op->node);
}

void client_end_early(struct cache_client *cl, struct cache_op *op, int code, cache_done *done)
{
	begin(cl, op, done);
	make_ready(cl, op, code, false);
}

void client_answered(struct cache_work *w, const struct cache_result *r)
{
	struct cache_op *op = w->op;
	part(op, w);
	call_done(op, r);
	free_work(w);
}

void cache_cancel(struct cache_op *op)
{
	struct cache_work *w = op->work;
	if (op->client == NULL)
		return;
	list_remove(&op->node);
	op->client = NULL;
	if (w == NULL)
		return;
	part(op, w);
	switch (w->place) {
	case AT_REDIS:
		redis_link_forget(w->client->link, w, false);
		free_work(w);
		break;
	case AT_WAITING:
		list_remove(&w->node);
		free_work(w);
		break;
	case AT_STORE: /* freed when it comes back */ break;
	case AT_NONE: BUG("an operation's work is nowhere");
	}
}

/* ---- time ---- */

static void arm(struct cache_client *cl)
{
	if (cl->due.top == NULL)
		return;
	uint64_t due = heap_entry(cl->due.top, struct cache_work, due)->due_ns;
	if (cl->armed_ns != 0 && cl->armed_ns <= due)
		return;
	uint64_t now = clock_now_ns();
	uint64_t in_us = due > now ? (due - now + 999) / 1000 : 0;
	struct timeval tv = {.tv_sec = (time_t)(in_us / 1000000), .tv_usec = (suseconds_t)(in_us % 1000000)};
	if (event_add(cl->due_event, &tv) == 0)
		cl->armed_ns = due;
}

static void set_due(struct cache_work *w, uint64_t due_ns)
{
	struct cache_client *cl = w->client;
	if (w->due.in)
		heap_remove(&cl->due, &w->due);
	w->due_ns = due_ns;
	heap_insert(&cl->due, &w->due);
	arm(cl);
}

/* ---- routing ---- */

static void to_store(struct cache_work *w)
{
	w->place = AT_STORE;
	/* Even if the loop is late, the store gets its quarter of the time. */
	uint64_t least = clock_now_ns() + w->client->cache->cfg.op_timeout_ms * (NS_PER_MS / 4);
	set_due(w, least > w->end_ns ? least : w->end_ns);
	mem_thread_send(w->client->cache->memory, w);
}

void client_failed(struct cache_work *w, int code)
{
	int kind = w->keys[0].kind;
	metric_add(&cache_m_degraded[kind], 1);
	w->place = AT_NONE;
	w->degraded = true;
	switch (cache_kind_policy(kind)) {
	case POLICY_SHARE:
		w->share = w->client->cache->cfg.n_gateways;
		to_store(w);
		return;
	case POLICY_LOCAL: to_store(w); return;
	case POLICY_ERROR: break;
	}
	struct cache_op *op = w->op;
	part(op, w);
	make_ready(w->client, op, code, true);
	free_work(w);
}

static void route(struct cache_work *w)
{
	struct cache_client *cl = w->client;
	if (cl->link == NULL || w->local) {
		to_store(w);
		return;
	}
	switch (redis_link_state(cl->link)) {
	case CACHE_IS_UP: {
		uint64_t redis_ns = cl->cache->cfg.op_timeout_ms * (NS_PER_MS * 3 / 4);
		uint64_t redis_end = clock_now_ns() + redis_ns;
		int rc = redis_link_submit(cl->link, w);
		if (rc != 0) {
			client_failed(w, rc);
			return;
		}
		w->place = AT_REDIS;
		set_due(w, redis_end < w->end_ns ? redis_end : w->end_ns);
		return;
	}
	case CACHE_IS_CONNECTING:
		w->place = AT_WAITING;
		list_push_back(&cl->waiting, &w->node);
		set_due(w, w->end_ns - cl->cache->cfg.op_timeout_ms * (NS_PER_MS / 4));
		return;
	case CACHE_IS_DOWN:
	case CACHE_IS_MEMORY: client_failed(w, SL_ECLOSED); return;
	}
}

void client_release_waiting(struct cache_client *cl)
{
	struct list held;
	list_init(&held);
	list_append(&held, &cl->waiting);
	while (!list_empty(&held)) {
		struct cache_work *w = list_entry(held.next, struct cache_work, node);
		list_remove(&w->node);
		route(w);
	}
}

void client_take_back(struct cache_client *cl, struct cache_work *w) { mailbox_send(&cl->inbox, &w->mail); }

static void take_in(struct cache_client *cl)
{
	struct mail *mail = mailbox_take_all(&cl->inbox);
	while (mail != NULL) {
		struct cache_work *w = list_entry(mail, struct cache_work, mail);
		mail = mail->next;
		w->place = AT_NONE;
		if (w->op != NULL)
			client_answered(w, &w->res);
		else
			free_work(w);
	}
}

/* The deadline of w's stage has passed. */
static void overdue(struct cache_work *w)
{
	struct cache_op *op = w->op;
	switch (w->place) {
	case AT_REDIS:
		redis_link_forget(w->client->link, w, true);
		client_failed(w, SL_ETIMEOUT);
		return;
	case AT_WAITING:
		list_remove(&w->node);
		client_failed(w, SL_ETIMEOUT);
		return;
	case AT_STORE:
		metric_add(&cache_m_timeouts, 1);
		part(op, w);
		call_done(op, &(struct cache_result){.code = SL_ETIMEOUT, .degraded = w->degraded});
		return;
	case AT_NONE: BUG("an operation's work is nowhere");
	}
}

static void on_due(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct cache_client *cl = arg;
	take_in(cl); /* an answer in the inbox isn't late */
	uint64_t now = clock_now_ns();
	cl->armed_ns = 0;
	while (cl->due.top != NULL) {
		struct cache_work *w = heap_entry(cl->due.top, struct cache_work, due);
		if (w->due_ns > now)
			break;
		heap_remove(&cl->due, &w->due);
		overdue(w);
	}
	arm(cl);
}

static void on_inbox(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	take_in(arg);
}

/* ---- operations ---- */

/* A work like q in one allocation with a copy of all that q points at: args, keys, argument bytes, bytes. */
static struct cache_work *copy_work(struct cache_client *cl, const struct cache_work *q)
{
	bool is_put = q->type == WORK_PUT || q->type == WORK_PUT_ABSENT;
	size_t size =
	    sizeof(struct cache_work) + q->n_args * sizeof *q->args + q->n_keys * sizeof *q->keys + q->n + is_put;
	for (size_t i = 0; i < q->n_args; i++)
		size += q->args[i].p == NULL ? 0 : q->args[i].n;
	struct cache_work *w = sl_alloc(size);
	if (w == NULL)
		return NULL;
	struct cache_value *args = (struct cache_value *)(void *)(w + 1);
	struct cache_key *keys = (struct cache_key *)(void *)(args + q->n_args);
	uint8_t *to = (uint8_t *)(keys + q->n_keys);
	if (q->n_keys > 0)
		memcpy(keys, q->keys, q->n_keys * sizeof *keys);
	for (size_t i = 0; i < q->n_args; i++) {
		args[i] = q->args[i];
		if (q->args[i].p == NULL)
			continue;
		args[i].p = memcpy(to, q->args[i].p, q->args[i].n);
		to += q->args[i].n;
	}
	*w = *q;
	w->client = cl;
	w->share = 1;
	w->keys = keys;
	w->args = args;
	w->bytes = to;
	w->n = q->n + is_put;
	if (is_put)
		*to++ = q->version;
	if (q->n > 0)
		memcpy(to, q->bytes, q->n);
	list_init(&w->node);
	return w;
}

static void start(struct cache_client *cl, struct cache_op *op, const struct cache_work *q, cache_done *done)
{
	if (cl->n_works >= cl->cache->cfg.max_ops) {
		metric_add(&cache_m_refused, 1);
		client_end_early(cl, op, SL_ELIMIT, done);
		return;
	}
	struct cache_work *w = copy_work(cl, q);
	if (w == NULL) {
		client_end_early(cl, op, SL_ENOMEM, done);
		return;
	}
	cl->n_works++;
	begin(cl, op, done);
	op->work = w;
	w->op = op;
	w->end_ns = clock_now_ns() + cl->cache->cfg.op_timeout_ms * NS_PER_MS;
	route(w);
}

void cache_get(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
	       cache_done *done)
{
	start(cl, op, &(struct cache_work){.type = WORK_GET, .keys = key, .n_keys = 1, .version = version}, done);
}

static void put(struct cache_client *cl, struct cache_op *op, enum work_type type, const struct cache_key *key,
		uint8_t version, const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done)
{
	/* Redis rejects expiry times beyond 2^63 ms from 1970. */
	if (n > cl->cache->cfg.max_value_bytes || ttl_ms > UINT64_C(1) << 50) {
		client_end_early(cl, op, SL_ELIMIT, done);
		return;
	}
	start(cl, op,
	      &(struct cache_work){
		  .type = type, .keys = key, .n_keys = 1, .version = version, .bytes = bytes, .n = n, .ttl_ms = ttl_ms},
	      done);
}

void cache_put(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
	       const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done)
{
	put(cl, op, WORK_PUT, key, version, bytes, n, ttl_ms, done);
}

void cache_put_absent(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint8_t version,
		      const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done)
{
	put(cl, op, WORK_PUT_ABSENT, key, version, bytes, n, ttl_ms, done);
}

void cache_delete(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, cache_done *done)
{
	start(cl, op, &(struct cache_work){.type = WORK_DELETE, .keys = key, .n_keys = 1}, done);
}

void cache_log_append(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint64_t first_seq,
		      uint32_t n_items, const void *bytes, size_t n, uint64_t ttl_ms, cache_done *done)
{
	/* A batch header in Redis has 16 and 8 digits. */
	if (n > cl->cache->cfg.max_value_bytes || n + LOG_HEADER > cl->cache->cfg.max_log_bytes) {
		client_end_early(cl, op, SL_ELIMIT, done);
		return;
	}
	if (n_items == 0 || n_items > 99999999 || first_seq > UINT64_C(1) << 52 || ttl_ms == 0 ||
	    ttl_ms > UINT64_C(1) << 50) {
		client_end_early(cl, op, SL_EINVAL, done);
		return;
	}
	start(cl, op,
	      &(struct cache_work){.type = WORK_LOG_APPEND,
				   .keys = key,
				   .n_keys = 1,
				   .seq = first_seq,
				   .n_seq = n_items,
				   .bytes = bytes,
				   .n = n,
				   .ttl_ms = ttl_ms},
	      done);
}

void cache_log_read(struct cache_client *cl, struct cache_op *op, const struct cache_key *key, uint64_t from_seq,
		    size_t max_bytes, cache_done *done)
{
	size_t most = cl->cache->cfg.max_value_bytes;
	if (from_seq > UINT64_C(1) << 53) {
		client_end_early(cl, op, SL_EINVAL, done);
		return;
	}
	start(cl, op,
	      &(struct cache_work){.type = WORK_LOG_READ,
				   .keys = key,
				   .n_keys = 1,
				   .seq = from_seq,
				   .max_bytes = max_bytes < most ? max_bytes : most},
	      done);
}

void cache_list(struct cache_client *cl, struct cache_op *op, enum cache_kind kind, const char *tenant,
		cache_done *done)
{
	if (!cache_kind_indexed((int)kind)) {
		client_end_early(cl, op, SL_EINVAL, done);
		return;
	}
	struct cache_key index;
	cache_key_index(&index, kind, tenant);
	start(cl, op, &(struct cache_work){.type = WORK_LIST, .keys = &index, .n_keys = 1}, done);
}

static bool is_callable(const struct cache_client *cl, const struct cache_work *q)
{
	if (q->n_keys == 0 || q->n_keys > CACHE_MAX_KEYS || q->n_args > CACHE_MAX_ARGS)
		return false;
	for (size_t i = 1; i < q->n_keys; i++)
		if (q->keys[i].kind != q->keys[0].kind || q->keys[i].n_tenant != q->keys[0].n_tenant ||
		    memcmp(q->keys[i].text, q->keys[0].text, q->keys[0].n_tenant) != 0)
			return false;
	size_t bytes = 0;
	for (size_t i = 0; i < q->n_args; i++)
		if (q->args[i].p != NULL && (q->args[i].n > cl->cache->cfg.max_value_bytes ||
					     (bytes += q->args[i].n) > cl->cache->cfg.max_value_bytes))
			return false;
	for (size_t i = 0; i < cl->cache->n_procs; i++)
		if (cl->cache->procs[i] == q->proc)
			return true;
	BUG("procedure %s isn't registered", q->proc->name);
}

static void eval(struct cache_client *cl, struct cache_op *op, bool local, const struct cache_proc *proc,
		 const struct cache_key *keys, size_t n_keys, const struct cache_value *args, size_t n_args,
		 cache_done *done)
{
	struct cache_work q = {.type = WORK_EVAL, .local = local, .proc = proc, .n_keys = n_keys, .n_args = n_args};
	q.keys = keys;
	q.args = args;
	if (is_callable(cl, &q))
		start(cl, op, &q, done);
	else
		client_end_early(cl, op, SL_EINVAL, done);
}

void cache_eval(struct cache_client *cl, struct cache_op *op, const struct cache_proc *proc,
		const struct cache_key *keys, size_t n_keys, const struct cache_value *args, size_t n_args,
		cache_done *done)
{
	eval(cl, op, false, proc, keys, n_keys, args, n_args, done);
}

void cache_eval_local(struct cache_client *cl, struct cache_op *op, const struct cache_proc *proc,
		      const struct cache_key *keys, size_t n_keys, const struct cache_value *args, size_t n_args,
		      cache_done *done)
{
	eval(cl, op, true, proc, keys, n_keys, args, n_args, done);
}

/* ---- life ---- */

void client_event_free(struct event *e)
{
	if (e != NULL)
		event_free(e);
}

static void free_client(struct cache_client *cl)
{
	if (cl->link != NULL)
		redis_link_destroy(cl->link);
	client_event_free(cl->inbox_event);
	client_event_free(cl->ready_event);
	client_event_free(cl->due_event);
	mailbox_dispose(&cl->inbox);
	sl_free(cl);
}

int cache_client_create(struct cache *c, struct event_base *base, struct cache_client **out)
{
	struct cache_client *cl = sl_zalloc(sizeof *cl);
	if (cl == NULL)
		return SL_ENOMEM;
	if (mailbox_init(&cl->inbox) != 0) {
		sl_free(cl);
		return SL_EIO;
	}
	cl->cache = c;
	cl->base = base;
	list_init(&cl->ready);
	list_init(&cl->waiting);
	heap_init(&cl->due, due_sooner);
	cl->inbox_event = event_new(base, cl->inbox.wake_fd, EV_READ | EV_PERSIST, on_inbox, cl);
	cl->ready_event = event_new(base, -1, 0, on_ready, cl);
	cl->due_event = event_new(base, -1, 0, on_due, cl);
	int rc = 0;
	if (cl->inbox_event == NULL || cl->ready_event == NULL || cl->due_event == NULL ||
	    event_add(cl->inbox_event, NULL) != 0)
		rc = SL_ENOMEM;
	if (rc == 0 && c->cfg.store == CACHE_REDIS)
		rc = redis_link_create(cl, &cl->link);
	if (rc != 0) {
		free_client(cl);
		return rc;
	}
	atomic_fetch_add(&c->n_clients, 1);
	*out = cl;
	return 0;
}

void cache_client_destroy(struct cache_client *cl)
{
	BUG_IF(cl->in_done, "a client of the store is destroyed by its own callback");
	BUG_IF(cl->due.n != 0 || !list_empty(&cl->ready) || !list_empty(&cl->waiting),
	       "a client of the store is destroyed with operations under way");
	/* Works still at the store have no operation and return before this one. The store only computes, so this wait
	 * is short. */
	struct cache_work flush = {.client = cl, .type = WORK_FLUSH, .place = AT_STORE};
	mem_thread_send(cl->cache->memory, &flush);
	for (bool back = false; !back;) {
		struct mail *mail = mailbox_wait(&cl->inbox, UINT64_MAX);
		while (mail != NULL) {
			struct cache_work *w = list_entry(mail, struct cache_work, mail);
			mail = mail->next;
			if (w == &flush)
				back = true;
			else
				free_work(w);
		}
	}
	BUG_IF(cl->n_works != 0, "a client of the store leaves %zu works", cl->n_works);
	atomic_fetch_sub(&cl->cache->n_clients, 1);
	free_client(cl);
}

enum cache_state cache_client_state(const struct cache_client *cl)
{
	return cl->link == NULL ? CACHE_IS_MEMORY : redis_link_state(cl->link);
}

const char *cache_client_state_text(const struct cache_client *cl)
{
	return cl->link == NULL ? "memory" : redis_link_text(cl->link);
}
