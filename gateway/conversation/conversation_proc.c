/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations in the store: what happens to one happens at once, to it and to its tenant's directory.
 *
 * Who wants to add a turn holds the conversation for as long as that is being made, under a token and
 * for a lease that is renewed. So two turns never go on at the same time, none is lost, and a gateway
 * that died keeps nobody out for longer than its lease. Every change is checked against the token, or
 * against the revision that was read: a holder that slept longer than its lease changes nothing.
 *
 * The responses made in a conversation stand in it by name from before they are stored, so that deleting
 * it finds all of them.
 *
 * The Lua (conversation_lua.h) and the counterparts below mean the same; change both. In memory a conversation
 * is a struct kept with the names and the document behind it, a directory an array of struct entry.
 * Twins fail before they change anything: an entry whose conversation found no room is left empty, which
 * is one that has ended.
 */
#include "gateway/conversation/conversation_proc.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/mem_proc.h"
#include "gateway/conversation/conversation_lua.h"
#include "gateway/sharing/idempotent_proc.h"

struct kept {
	uint64_t rev, until_us;
	uint32_t n_made, n_doc;
	char token[CONVERSATION_TOKEN_BYTES]; /* "": not held */
	char bytes[];                         /* made, doc */
};

struct entry {
	char id[CONVERSATION_ID_BYTES];
	uint64_t created_s, bytes, ends_us;
};

enum { LISTED_BYTES = CONVERSATION_ID_BYTES + 64 };

/* ---- what counterparts share ---- */

static struct kept *find(struct mem_proc *t)
{
	size_t n;
	struct kept *k = mem_proc_find(t, 0, &n);
	if (k == NULL || n < sizeof *k || n - sizeof *k != (size_t)k->n_made + k->n_doc)
		return NULL;
	if (k->until_us > t->now_us + CONVERSATION_LEASE_US)
		k->until_us = t->now_us + CONVERSATION_LEASE_US;
	return k;
}

static const struct cache_value *arg(const struct mem_proc *t, size_t i)
{
	BUG_IF(i >= t->n_args, "a conversation's procedure has no argument %zu", i);
	return &t->args[i];
}

static bool is_empty(const struct cache_value *v) { return v->p == NULL || v->n == 0; }

static bool is_token(const struct kept *k, const struct cache_value *v)
{
	return k->token[0] != '\0' && strlen(k->token) == v->n && memcmp(k->token, v->p, v->n) == 0;
}

/* Held, and not under this token. */
static bool others(const struct mem_proc *t, const struct kept *k, const struct cache_value *mine)
{
	return k->token[0] != '\0' && !is_token(k, mine) && k->until_us > t->now_us;
}

static int answer(struct mem_proc *t, enum conversation_outcome what) { return mem_proc_answer(t, what); }

static int answer_held(struct mem_proc *t, uint64_t left_us)
{
	int rc = answer(t, CONVERSATION_HELD);
	return rc == 0 ? mem_proc_answer(t, (int64_t)left_us) : rc;
}

static int answer_rev(struct mem_proc *t, uint64_t rev)
{
	int rc = answer(t, CONVERSATION_OK);
	return rc == 0 ? mem_proc_answer(t, (int64_t)rev) : rc;
}

static uint64_t ttl_left_ms(const struct mem_proc *t)
{
	(void)t;
	return 1; /* it lives as long as it would have */
}

/* ---- the directory, number i of the keys ---- */

static struct entry *directory(struct mem_proc *t, size_t i, size_t *n)
{
	struct entry *e = mem_proc_find(t, i, n);
	*n /= sizeof *e;
	return e;
}

static bool is_entry(const struct entry *e, const struct cache_value *id)
{
	return strlen(e->id) == id->n && memcmp(e->id, id->p, id->n) == 0;
}

/* Without those that have ended; how many are left. The rest of the array is empty. */
static size_t prune(const struct mem_proc *t, struct entry *e, size_t n)
{
	size_t kept = 0;
	for (size_t i = 0; i < n; i++)
		if (e[i].ends_us > t->now_us)
			e[kept++] = e[i];
	if (kept < n)
		memset(e + kept, 0, (n - kept) * sizeof *e);
	return kept;
}

/* ---- the counterparts ---- */

static int read_twin(struct mem_proc *t)
{
	const struct kept *k = find(t);
	if (k == NULL)
		return answer(t, CONVERSATION_GONE);
	int rc = answer_rev(t, k->rev);
	if (rc == 0)
		rc = mem_proc_answer_bytes(t, k->bytes + k->n_made, k->n_doc);
	return rc == 0 ? mem_proc_answer_bytes(t, k->bytes, k->n_made) : rc;
}

static int hold_twin(struct mem_proc *t)
{
	const struct cache_value *mine = arg(t, 0), *lease = arg(t, 1), *name = arg(t, 2), *quiet = arg(t, 3);
	struct kept *k = find(t);
	if (k == NULL)
		return answer(t, CONVERSATION_GONE);
	if (others(t, k, mine))
		return answer_held(t, k->until_us - t->now_us);
	size_t more = is_empty(name) ? 0 : name->n + 1;
	if (more > 0 && k->n_made + more > CONVERSATION_MADE_BYTES)
		return answer(t, CONVERSATION_FULL);
	int rc = answer_rev(t, k->rev);
	if (rc == 0 && quiet->i == 0)
		rc = mem_proc_answer_bytes(t, k->bytes + k->n_made, k->n_doc);
	if (rc != 0 || mine->n >= sizeof k->token)
		return rc != 0 ? rc : SL_EINVAL;
	if (more > 0) {
		k = mem_proc_edit(t, 0, sizeof *k + k->n_made + k->n_doc + more, ttl_left_ms(t));
		if (k == NULL)
			return SL_ENOMEM;
		memmove(k->bytes + k->n_made + more, k->bytes + k->n_made, k->n_doc);
		memcpy(k->bytes + k->n_made, name->p, name->n);
		k->bytes[k->n_made + name->n] = '\n';
		k->n_made += (uint32_t)more;
	}
	memcpy(k->token, mine->p, mine->n);
	k->token[mine->n] = '\0';
	k->until_us = t->now_us + (uint64_t)lease->i;
	return 0;
}

static int free_twin(struct mem_proc *t)
{
	const struct cache_value *name = arg(t, 1);
	struct kept *k = find(t);
	if (k == NULL)
		return answer(t, CONVERSATION_GONE);
	if (!is_token(k, arg(t, 0)))
		return answer_held(t, 0);
	size_t less = is_empty(name) ? 0 : name->n + 1;
	const char *last = k->bytes + k->n_made - less;
	if (less > 0 && less <= k->n_made && memcmp(last, name->p, name->n) == 0 && last[name->n] == '\n') {
		/* Without the memory for a smaller copy the name stays: of a response that never was. */
		struct kept *small = sl_alloc(sizeof *k + k->n_made + k->n_doc - less);
		if (small != NULL) {
			size_t n = sizeof *k + k->n_made + k->n_doc - less;
			memcpy(small, k, sizeof *k + k->n_made - less);
			memcpy(small->bytes + k->n_made - less, k->bytes + k->n_made, k->n_doc);
			small->n_made -= (uint32_t)less;
			struct kept *to = mem_proc_edit(t, 0, n, ttl_left_ms(t));
			if (to != NULL)
				memcpy(to, small, n);
			k = to != NULL ? to : k;
			sl_free(small);
		}
	}
	k->token[0] = '\0';
	return answer(t, CONVERSATION_OK);
}

/* Its entry, made at the end when it is new. NULL: no memory. */
static struct entry *enter(struct mem_proc *t, const struct cache_value *id, size_t n, uint64_t ttl_ms)
{
	struct entry *e = directory(t, 1, &(size_t){0});
	size_t i = 0;
	while (i < n && !is_entry(&e[i], id))
		i++;
	e = mem_proc_edit(t, 1, (i < n ? n : n + 1) * sizeof *e, ttl_ms);
	return e != NULL ? &e[i] : NULL;
}

static int put_twin(struct mem_proc *t)
{
	const struct cache_value *mine = arg(t, 0), *doc = arg(t, 2), *id = arg(t, 5);
	uint64_t rev = (uint64_t)arg(t, 1)->i, ttl_ms = (uint64_t)arg(t, 3)->i;
	struct kept *k = find(t);
	size_t n_entries, n = 0;
	uint64_t bytes = doc->n;
	if (rev != 0 && k == NULL)
		return answer(t, CONVERSATION_GONE);
	if (!is_empty(mine) && (k == NULL || !is_token(k, mine)))
		return answer_held(t, 0);
	if (k != NULL && others(t, k, mine))
		return answer_held(t, k->until_us - t->now_us);
	if (is_empty(mine) && rev != (k != NULL ? k->rev : 0))
		return answer(t, CONVERSATION_CHANGED);
	struct entry *e = directory(t, 1, &n_entries);
	n_entries = prune(t, e, n_entries);
	for (size_t i = 0; i < n_entries; i++) {
		if (is_entry(&e[i], id))
			continue;
		n++;
		bytes += e[i].bytes;
	}
	if (arg(t, 7)->i > 0 && n >= (uint64_t)arg(t, 7)->i)
		return answer(t, CONVERSATION_TOO_MANY);
	if (arg(t, 8)->i > 0 && bytes > (uint64_t)arg(t, 8)->i)
		return answer(t, CONVERSATION_TOO_LARGE);
	if (id->n >= sizeof e->id || doc->n > UINT32_MAX)
		return SL_EINVAL;
	uint64_t now_rev = k != NULL ? k->rev : 0;
	size_t n_made = k != NULL ? k->n_made : 0;
	int rc = answer_rev(t, now_rev + 1);
	if (rc != 0 || enter(t, id, n_entries, ttl_ms) == NULL)
		return rc != 0 ? rc : SL_ENOMEM;
	k = mem_proc_edit(t, 0, sizeof *k + n_made + doc->n, ttl_ms);
	if (k == NULL)
		return SL_ENOMEM;
	k->rev = now_rev + 1;
	k->n_doc = (uint32_t)doc->n;
	memcpy(k->bytes + n_made, doc->p, doc->n);
	if (arg(t, 4)->i != 0)
		k->token[0] = '\0';
	/* Looked for again: the edit of the conversation may have moved the directory. */
	e = enter(t, id, n_entries, ttl_ms);
	if (e == NULL)
		return SL_ENOMEM;
	memcpy(e->id, id->p, id->n);
	e->id[id->n] = '\0';
	e->created_s = (uint64_t)arg(t, 6)->i;
	e->bytes = doc->n;
	e->ends_us = t->now_us + ttl_ms * 1000;
	return 0;
}

static void leave_directory(struct mem_proc *t, const struct cache_value *id)
{
	size_t n;
	struct entry *e = directory(t, 1, &n);
	for (size_t i = 0; i < n; i++)
		if (is_entry(&e[i], id))
			e[i].ends_us = 0;
	if (e != NULL && prune(t, e, n) == 0)
		mem_proc_remove(t, 1);
}

static int delete_twin(struct mem_proc *t)
{
	const struct kept *k = find(t);
	if (k == NULL) {
		leave_directory(t, arg(t, 0));
		return answer(t, CONVERSATION_GONE);
	}
	int rc = answer(t, CONVERSATION_OK);
	if (rc == 0)
		rc = mem_proc_answer_bytes(t, k->bytes, k->n_made);
	if (rc != 0)
		return rc;
	leave_directory(t, arg(t, 0));
	mem_proc_remove(t, 0);
	return 0;
}

static int list_twin(struct mem_proc *t)
{
	size_t n;
	const struct entry *e = directory(t, 0, &n);
	struct sl_buf out;
	buf_init(&out, n * LISTED_BYTES + 1);
	int rc = answer(t, CONVERSATION_OK);
	for (size_t i = 0; i < n && rc == 0; i++)
		if (e[i].ends_us > t->now_us)
			rc = buf_printf(&out, "%s %llu %llu %llu\n", e[i].id, (unsigned long long)e[i].created_s,
					(unsigned long long)e[i].bytes, (unsigned long long)(e[i].ends_us / 1000));
	if (rc == 0)
		rc = mem_proc_answer_bytes(t, out.len > 0 ? buf_data(&out) : (const uint8_t *)"", out.len);
	buf_dispose(&out);
	return rc;
}

const struct cache_proc conversation_read = {"conversation_read", lua_read, read_twin},
			conversation_hold = {"conversation_hold", lua_hold, hold_twin},
			conversation_free = {"conversation_free", lua_free, free_twin},
			conversation_put = {"conversation_put", lua_put, put_twin},
			conversation_delete = {"conversation_delete", lua_delete, delete_twin},
			conversation_list = {"conversation_list", lua_list, list_twin};

const struct cache_proc *const gateway_procs[GATEWAY_PROCS] = {
    &conversation_read,   &conversation_hold, &conversation_free, &conversation_put,
    &conversation_delete, &conversation_list, &idempotent_change,
};
