/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs procedures in memory: the same Lua as in Redis, with redis.call bound to the store's records.
 *
 * One interpreter, on the store's thread, with Redis' libraries of Lua itself. Its heap is bounded: by the store's
 * memory_bytes / 2, and swept to an eighth of that before a call. Errors unwind by longjmp, so no function here holds
 * memory across a call of Lua: w->out and the journal own what is made.
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "cache/mem_priv.h"

struct mem_lua {
	lua_State *state;
	size_t used, most, base; /* bytes: now, at most, without any call */
	/* The call. */
	struct mem_store *store;
	struct cache_work *work;
	uint64_t now_us;
	struct cache_key key; /* the command's */
	int code;             /* of a failure other than the script's own */
};

static void *allocate(void *ctx, void *p, size_t had, size_t n)
{
	struct mem_lua *m = ctx;
	if (n > had && n - had > m->most - m->used)
		return NULL;
	void *q = NULL;
	if (n == 0)
		sl_free(p);
	else
		q = sl_realloc_n(p, 1, n);
	if (q == NULL && n > 0 && n <= had)
		q = p; /* Lua relies on shrinking */
	if (q != NULL || n == 0)
		m->used += n - had;
	return q;
}

/* ---- commands: arguments from 3 on, after the command's name and the key ---- */

static int fail(struct mem_lua *m, int code)
{
	m->code = code;
	return luaL_error(m->state, "%s", sl_code_name(code));
}

static void need(struct mem_lua *m, int rc)
{
	if (rc != 0)
		fail(m, rc);
}

static void push_digits(lua_State *L, int64_t i)
{
	char digits[24], *at = digits + sizeof digits;
	uint64_t left = i < 0 ? -(uint64_t)i : (uint64_t)i;
	do
		*--at = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (i < 0)
		*--at = '-';
	lua_pushlstring(L, at, (size_t)(digits + sizeof digits - at));
}

/* Argument i: bytes, or the digits of a whole number. */
static const char *text(lua_State *L, int i, size_t *n)
{
	if (lua_type(L, i) == LUA_TNUMBER) {
		lua_Number x = lua_tonumber(L, i);
		if (fabs(x) > 0x1p53 || x != floor(x))
			luaL_error(L, "argument %d is not a whole number", i);
		push_digits(L, (int64_t)x);
		lua_replace(L, i);
	}
	return luaL_checklstring(L, i, n);
}

static struct mem_record *made(struct mem_lua *m, struct mem_record *r, enum mem_type type)
{
	if (r == NULL)
		r = mem_add(m->store, &m->key, type);
	if (r == NULL)
		fail(m, SL_ENOMEM);
	return r;
}

static struct mem_field *find(struct mem_lua *m, const struct mem_record *r, int i)
{
	size_t n;
	const char *name = text(m->state, i, &n);
	return mem_field_find(m->store, r, name, n);
}

static void push(lua_State *L, const struct mem_field *f)
{
	if (f != NULL)
		lua_pushlstring(L, (const char *)f->bytes + f->n_name, f->n);
	else
		lua_pushboolean(L, false);
}

static lua_Number left_ms(const struct mem_lua *m, const struct mem_record *r)
{
	if (r->has_new_ttl)
		return r->new_ttl_ms == 0 ? -1 : (lua_Number)r->new_ttl_ms;
	uint64_t ms = (r->due_us - m->now_us) / 1000;
	return r->due_us == UINT64_MAX ? -1 : (lua_Number)ms;
}

static bool is_there(const struct mem_record *r) { return r != NULL && r->n_fields > 0; }

static int cmd_get(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	push(L, mem_field_find(m->store, r, "", 0));
	return 1;
}

/* SET key value [PX ms] */
static int cmd_set(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	size_t n;
	const char *value = text(L, 3, &n);
	r = made(m, r, MEM_VALUE);
	mem_live(m->store, r, lua_gettop(L) >= 5 ? (uint64_t)luaL_checknumber(L, 5) : 0);
	need(m, mem_field_set(m->store, r, "", 0, value, n, 0));
	return 0;
}

static int cmd_unlink(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	(void)L;
	if (is_there(r))
		mem_live(m->store, r, 0);
	while (is_there(r))
		need(m, mem_field_remove(m->store, list_entry(r->fields.next, struct mem_field, node)));
	return 0;
}

static int cmd_pttl(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	lua_pushnumber(L, is_there(r) ? left_ms(m, r) : -2);
	return 1;
}

/* PEXPIRE key ms, PERSIST key */
static int cmd_live(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	if (is_there(r))
		mem_live(m->store, r, (uint64_t)luaL_optnumber(L, 3, 0));
	return 0;
}

static int cmd_hmget(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	int n = lua_gettop(L);
	lua_createtable(L, n - 2, 0);
	for (int i = 3; i <= n; i++) {
		push(L, find(m, r, i));
		lua_rawseti(L, -2, i - 2);
	}
	return 1;
}

static int cmd_hgetall(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	(void)m;
	lua_newtable(L);
	if (r == NULL)
		return 1;
	int n = 0;
	list_each(it, &r->fields) {
		const struct mem_field *f = list_entry(it, struct mem_field, node);
		lua_pushlstring(L, (const char *)f->bytes, f->n_name);
		lua_rawseti(L, -2, ++n);
		push(L, f);
		lua_rawseti(L, -2, ++n);
	}
	return 1;
}

static int cmd_hset(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	r = made(m, r, MEM_HASH);
	for (int i = 3, n = lua_gettop(L); i < n; i += 2) {
		size_t n_name, n_value;
		const char *name = text(L, i, &n_name), *value = text(L, i + 1, &n_value);
		need(m, mem_field_set(m->store, r, name, n_name, value, n_value, 0));
	}
	return 0;
}

/* HDEL, ZREM */
static int cmd_remove(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	for (int i = 3, n = lua_gettop(L); i <= n; i++) {
		struct mem_field *f = find(m, r, i);
		if (f != NULL)
			need(m, mem_field_remove(m->store, f));
	}
	return 0;
}

static int cmd_zadd(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	size_t n;
	const char *member = text(L, 4, &n);
	r = made(m, r, MEM_ZSET);
	need(m, mem_field_set(m->store, r, member, n, NULL, 0, luaL_checknumber(L, 3)));
	return 0;
}

static int cmd_zcard(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	(void)m;
	lua_pushnumber(L, r == NULL ? 0 : (lua_Number)r->n_fields);
	return 1;
}

struct below {
	lua_State *state;
	double most;
	int n;
};

static bool push_member(void *ctx, struct heap_node *node)
{
	struct below *b = ctx;
	const struct mem_field *f = heap_entry(node, const struct mem_field, by_score);
	if (f->score > b->most)
		return false;
	lua_pushlstring(b->state, (const char *)f->bytes, f->n_name);
	lua_rawseti(b->state, -2, ++b->n);
	return true;
}

/* ZRANGEBYSCORE key -inf max, in no order. */
static int cmd_zrangebyscore(struct mem_lua *m, lua_State *L, struct mem_record *r)
{
	(void)m;
	struct below b = {.state = L, .most = luaL_checknumber(L, 4)};
	lua_newtable(L);
	if (r != NULL)
		heap_walk(&r->scores, SIZE_MAX, push_member, &b);
	return 1;
}

enum { ANY = -1 };

static const struct {
	const char *name;
	int type;
	int (*run)(struct mem_lua *m, lua_State *L, struct mem_record *r); /* r: NULL when absent */
} commands[] = {
    {"HMGET", MEM_HASH, cmd_hmget}, {"HSET", MEM_HASH, cmd_hset},
    {"GET", MEM_VALUE, cmd_get},    {"SET", MEM_VALUE, cmd_set},
    {"HDEL", MEM_HASH, cmd_remove}, {"HGETALL", MEM_HASH, cmd_hgetall},
    {"ZADD", MEM_ZSET, cmd_zadd},   {"ZREM", MEM_ZSET, cmd_remove},
    {"ZCARD", MEM_ZSET, cmd_zcard}, {"ZRANGEBYSCORE", MEM_ZSET, cmd_zrangebyscore},
    {"PTTL", ANY, cmd_pttl},        {"PEXPIRE", ANY, cmd_live},
    {"PERSIST", ANY, cmd_live},     {"UNLINK", ANY, cmd_unlink},
};

/* The record of one of KEYS, or of its companion set. */
static struct mem_record *find_record(struct mem_lua *m, int type)
{
	size_t n;
	const char *name = luaL_checklstring(m->state, 2, &n);
	for (size_t i = 0; i < m->work->n_keys; i++) {
		const struct cache_key *k = &m->work->keys[i];
		bool beside = n == k->len + 2u && memcmp(name + k->len, ":x", 2) == 0 && !cache_kind_indexed(k->kind);
		if ((n != k->len && !beside) || memcmp(name, k->text, k->len) != 0)
			continue;
		m->key = *k;
		memcpy(m->key.text, name, n);
		m->key.text[n] = '\0';
		m->key.len = (uint8_t)n;
		struct mem_record *r = mem_find(m->store, &m->key);
		if (r != NULL && (r->type == MEM_LOG || (type != ANY && r->type != (enum mem_type)type)))
			fail(m, SL_EPROTO);
		return r;
	}
	luaL_error(m->state, "%s is not a key of this call", name);
	return NULL;
}

static int redis_call(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);
	struct mem_lua *m = lua_touserdata(L, lua_upvalueindex(1));
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(m, L, find_record(m, commands[i].type));
	return luaL_error(L, "no command %s", name);
}

/* ---- calls ---- */

static int set_up(lua_State *L)
{
	static const struct luaL_Reg libraries[] = {
	    {"", luaopen_base}, {"table", luaopen_table}, {"string", luaopen_string}, {"math", luaopen_math}};
	static const char *const files[] = {"dofile", "loadfile", "print"};
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
		lua_pushcfunction(L, libraries[i].func);
		lua_pushstring(L, libraries[i].name);
		lua_call(L, 1, 0);
	}
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		lua_pushnil(L);
		lua_setglobal(L, files[i]);
	}
	void *m = lua_touserdata(L, 1);
	lua_newtable(L);
	lua_pushlightuserdata(L, m);
	lua_pushcclosure(L, redis_call, 1);
	lua_setfield(L, -2, "call");
	lua_setglobal(L, "redis");
	return 0;
}

int mem_lua_create(uint64_t most_bytes, struct mem_lua **out)
{
	struct mem_lua *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return SL_ENOMEM;
	m->most = (size_t)most_bytes;
	m->state = lua_newstate(allocate, m);
	if (m->state == NULL || lua_cpcall(m->state, set_up, m) != 0) {
		mem_lua_destroy(m);
		return SL_ENOMEM;
	}
	lua_gc(m->state, LUA_GCSETPAUSE, 400);
	m->base = m->used;
	*out = m;
	return 0;
}

void mem_lua_destroy(struct mem_lua *m)
{
	if (m == NULL)
		return;
	if (m->state != NULL)
		lua_close(m->state);
	BUG_IF(m->used != 0, "the interpreter leaves %zu bytes", m->used);
	sl_free(m);
}

static void push_arguments(struct mem_lua *m, lua_State *L)
{
	const struct cache_work *w = m->work;
	lua_createtable(L, (int)w->n_keys, 0);
	for (size_t i = 0; i < w->n_keys; i++) {
		lua_pushlstring(L, w->keys[i].text, w->keys[i].len);
		lua_rawseti(L, -2, (int)i + 1);
	}
	lua_setglobal(L, "KEYS");
	lua_createtable(L, (int)w->n_args + 1, 1);
	lua_pushnumber(L, (lua_Number)m->now_us);
	lua_rawseti(L, -2, 1);
	for (size_t i = 0; i < w->n_args; i++) {
		if (w->args[i].p != NULL)
			lua_pushlstring(L, w->args[i].p, w->args[i].n);
		else
			lua_pushnumber(L, (lua_Number)w->args[i].i);
		lua_rawseti(L, -2, (int)i + 2);
	}
	lua_pushnumber(L, w->share);
	lua_setfield(L, -2, "share");
	lua_setglobal(L, "ARGV");
}

/* The procedure's text, compiled once. */
static void push_chunk(struct mem_lua *m, lua_State *L)
{
	const struct cache_proc *proc = m->work->proc;
	lua_pushlightuserdata(L, (void *)(uintptr_t)proc);
	lua_rawget(L, LUA_REGISTRYINDEX);
	if (!lua_isnil(L, -1))
		return;
	lua_pop(L, 1);
	int rc = luaL_loadbuffer(L, proc->lua, strlen(proc->lua), proc->name);
	need(m, rc == LUA_ERRMEM ? SL_ENOMEM : rc != 0 ? SL_EPROTO : 0);
	lua_pushlightuserdata(L, (void *)(uintptr_t)proc);
	lua_pushvalue(L, -2);
	lua_rawset(L, LUA_REGISTRYINDEX);
}

/* From the array on top. The bytes of strings follow the array of values, each with a terminator. */
static void take_answer(struct mem_lua *m, lua_State *L)
{
	struct cache_work *w = m->work;
	size_t n = lua_type(L, -1) == LUA_TTABLE ? lua_objlen(L, -1) : 0, bytes = 0, len;
	need(m, n > CACHE_MAX_VALUES ? SL_ELIMIT : 0);
	for (size_t i = 1; i <= n; i++) {
		lua_rawgeti(L, -1, (int)i);
		int type = lua_type(L, -1);
		need(m, type == LUA_TNUMBER || type == LUA_TSTRING ? 0 : SL_EPROTO);
		bytes += type == LUA_TSTRING ? lua_objlen(L, -1) + 1 : 0;
		lua_pop(L, 1);
	}
	struct cache_value *values = sl_alloc((n + 1) * sizeof *values + bytes);
	if (values == NULL) {
		fail(m, SL_ENOMEM); /* does not return */
		return;
	}
	w->out = values;
	char *to = (char *)(values + n);
	for (size_t i = 0; i < n; i++) {
		lua_rawgeti(L, -1, (int)i + 1);
		values[i] = (struct cache_value){0};
		if (lua_type(L, -1) == LUA_TNUMBER) {
			values[i].i = (int64_t)lua_tonumber(L, -1);
		} else {
			const char *from = lua_tolstring(L, -1, &len);
			values[i] = (struct cache_value){.p = memcpy(to, from, len + 1), .n = len};
			to += len + 1;
		}
		lua_pop(L, 1);
	}
	w->res.values = values;
	w->res.n_values = n;
}

static int call(lua_State *L)
{
	struct mem_lua *m = lua_touserdata(L, 1);
	if (m->used > m->base + m->most / 8)
		lua_gc(L, LUA_GCCOLLECT, 0);
	push_arguments(m, L);
	push_chunk(m, L);
	lua_call(L, 0, 1);
	take_answer(m, L);
	return 0;
}

int mem_lua_eval(struct mem_lua *m, struct mem_store *s, struct cache_work *w, uint64_t now_us)
{
	m->store = s;
	m->work = w;
	m->now_us = now_us;
	m->code = SL_EPROTO;
	int failed = lua_cpcall(m->state, call, m);
	lua_settop(m->state, 0);
	return failed == 0 ? 0 : failed == LUA_ERRMEM ? SL_ENOMEM : m->code;
}
