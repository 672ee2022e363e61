/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/files/file_store.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cache/lua_now.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/request_fields.h"

enum { TENANT_BYTES = 24, MAX_RECORD = 64 << 20, MAX_OBJECT = 8192 };

static const char directory_name[] = "files";

/* ---- procedures ---- */

/* ARGV: now, id, record, object, bytes, ttl_ms, most, most_bytes. */
static const char lua_put[] =
    LUA_NOW "local id, bytes, ttl = ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])\n"
	    "local most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])\n"
	    "local n, sum, all = 0, 0, redis.call('HGETALL', KEYS[2])\n"
	    "for i = 1, #all, 2 do\n"
	    "  local size, ends = string.match(all[i + 1], '^(%d+) (%d+) ')\n"
	    "  if not ends or tonumber(ends) <= now then\n"
	    "    redis.call('HDEL', KEYS[2], all[i])\n"
	    "  elseif all[i] ~= id then\n" /* a call may be repeated */
	    "    n, sum = n + 1, sum + tonumber(size)\n"
	    "  end\n"
	    "end\n"
	    "if most > 0 and n >= most then return {2} end\n"
	    "if most_bytes > 0 and sum + bytes > most_bytes then return {3} end\n"
	    "redis.call('SET', KEYS[1], ARGV[3], 'PX', ttl)\n"
	    "redis.call('HSET', KEYS[2], id, text(bytes) .. ' ' .. text(now + ttl * 1000) .. ' ' .. ARGV[4])\n"
	    "if redis.call('PTTL', KEYS[2]) < ttl then redis.call('PEXPIRE', KEYS[2], ttl) end\n"
	    "return {0}\n";

static const char lua_delete[] = "redis.call('HDEL', KEYS[2], ARGV[2])\n"
				 "if redis.call('PTTL', KEYS[1]) == -2 then return {1} end\n"
				 "redis.call('UNLINK', KEYS[1])\n"
				 "return {0}\n";

static const char lua_list[] = LUA_NOW "local out, all = {}, redis.call('HGETALL', KEYS[1])\n"
				       "for i = 1, #all, 2 do\n"
				       "  local ends, object = string.match(all[i + 1], '^%d+ (%d+) (.*)$')\n"
				       "  if ends and tonumber(ends) > now then out[#out + 1] = object .. '\\n' end\n"
				       "end\n"
				       "return {0, table.concat(out)}\n";

const struct cache_proc file_proc_put = {"file_put", lua_put}, file_proc_delete = {"file_delete", lua_delete},
			file_proc_list = {"file_list", lua_list};

/* ---- operations ---- */

static void keys_of(const struct file_ref *f, struct cache_key keys[2])
{
	char tenant[TENANT_BYTES], part[FILE_ID_BYTES + 16];
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)f->tenant);
	int n = snprintf(part, sizeof part, "file:%s", f->id);
	cache_key_make(&keys[0], CACHE_SESSION, tenant, part, (size_t)n);
	cache_key_make(&keys[1], CACHE_SESSION, tenant, directory_name, strlen(directory_name));
}

static struct cache_value bytes_of(const void *p, size_t n) { return (struct cache_value){.p = p, .n = n}; }

static struct cache_value number(uint64_t i) { return (struct cache_value){.i = (int64_t)i}; }

int file_store_put(const struct file_ref *f, const struct gw_files *limits, struct cache_op *op,
		   const struct file_new *n, cache_done *done)
{
	static const uint8_t version = FILE_VERSION;
	struct cache_key keys[2];
	struct sl_buf record, object;
	buf_init(&record, MAX_RECORD);
	buf_init(&object, MAX_OBJECT);
	int rc;
	if ((rc = request_put_json(&object, n->object)) == 0 && (rc = buf_append(&record, &version, 1)) == 0 &&
	    (rc = buf_append(&record, buf_data(&object), object.len)) == 0 &&
	    (rc = buf_append_str(&record, "\n")) == 0 && (rc = buf_append(&record, n->text, n->n)) == 0) {
		const struct cache_value args[] = {
		    bytes_of(f->id, strlen(f->id)),
		    bytes_of(buf_data(&record), record.len),
		    bytes_of(buf_data(&object), object.len),
		    number(n->n),
		    number(n->keep_ms),
		    number((uint64_t)limits->per_tenant),
		    number(limits->tenant_bytes),
		};
		keys_of(f, keys);
		cache_eval(f->cache, op, &file_proc_put, keys, 2, args, sizeof args / sizeof *args, done);
	}
	buf_dispose(&record);
	buf_dispose(&object);
	return rc == 0 ? 0 : SL_ENOMEM;
}

void file_store_get(const struct file_ref *f, struct cache_op *op, cache_done *done)
{
	struct cache_key keys[2];
	keys_of(f, keys);
	cache_get(f->cache, op, &keys[0], FILE_VERSION, done);
}

void file_store_delete(const struct file_ref *f, struct cache_op *op, cache_done *done)
{
	struct cache_key keys[2];
	const struct cache_value id = bytes_of(f->id, strlen(f->id));
	keys_of(f, keys);
	cache_eval(f->cache, op, &file_proc_delete, keys, 2, &id, 1, done);
}

void file_store_list(struct cache_client *cache, struct cache_op *op, uint64_t tenant, cache_done *done)
{
	const struct file_ref f = {cache, tenant, ""};
	struct cache_key keys[2];
	keys_of(&f, keys);
	cache_eval(cache, op, &file_proc_list, &keys[1], 1, NULL, 0, done);
}

/* ---- results ---- */

int file_outcome_of(const struct cache_result *r, const char **text, size_t *n)
{
	*text = "";
	*n = 0;
	if (r->code != 0)
		return r->code;
	if (r->n_values == 0 || r->values[0].p != NULL)
		return SL_EPROTO;
	if (r->n_values > 1 && r->values[1].p != NULL) {
		*text = r->values[1].p;
		*n = r->values[1].n;
	}
	return (int)r->values[0].i;
}

json_t *file_record_read(const uint8_t *bytes, size_t n, const char **text, size_t *n_text)
{
	const uint8_t *line = n > 0 ? memchr(bytes, '\n', n) : NULL;
	if (line == NULL)
		return NULL;
	json_t *object = json_mem_load((const char *)bytes, (size_t)(line - bytes), 0, NULL);
	*text = (const char *)line + 1;
	*n_text = n - (size_t)(line + 1 - bytes);
	if (json_is_string(json_object_get(object, "filename")))
		return object;
	json_decref(object);
	return NULL;
}
