/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation is a hash: rev, doc, made (one line per response) and, while it is held, token and until
 * (microseconds). The directory is a hash from id to "created_s bytes ends_us".
 */
#include "gateway/conversation/conversation_proc.h"

#include "cache/lua_now.h"

#define LUA_CONVERSATION                                                                   \
	LUA_NOW                                                                            \
	"local h = redis.call('HMGET', KEYS[1], 'rev', 'token', 'until', 'made', 'doc')\n" \
	"local rev, token, over = tonumber(h[1] or 0), h[2] or '', tonumber(h[3] or 0)\n"  \
	"local made, doc = h[4] or '', h[5] or ''\n"                                       \
	"if token ~= '' and over > now + 20000000 then\n" /* CONVERSATION_LEASE_US */      \
	"  over = now + 20000000\n"                                                        \
	"  redis.call('HSET', KEYS[1], 'until', text(over))\n"                             \
	"end\n"                                                                            \
	"local function others(mine) return token ~= '' and token ~= mine and over > now end\n"

static const char lua_read[] = LUA_CONVERSATION "if rev == 0 then return {1} end\n"
						"return {0, rev, doc, made}\n";

static const char lua_hold[] =
    LUA_CONVERSATION "local mine, name = ARGV[2], ARGV[4]\n"
		     "if rev == 0 then return {1} end\n"
		     "if others(mine) then return {2, over - now} end\n"
		     "if name ~= '' then\n"
		     "  if #made + #name + 1 > 262144 then return {3} end\n"
		     "  redis.call('HSET', KEYS[1], 'made', made .. name .. '\\n')\n"
		     "end\n"
		     "redis.call('HSET', KEYS[1], 'token', mine, 'until', text(now + tonumber(ARGV[3])))\n"
		     "if tonumber(ARGV[5]) == 1 then return {0, rev} end\n"
		     "return {0, rev, doc}\n";

static const char lua_free[] =
    LUA_CONVERSATION "local name = ARGV[3]\n"
		     "if rev == 0 then return {1} end\n"
		     "if token ~= ARGV[2] then return {2, 0} end\n"
		     "redis.call('HDEL', KEYS[1], 'token', 'until')\n"
		     "if name ~= '' and string.sub(made, -#name - 1) == name .. '\\n' then\n"
		     "  redis.call('HSET', KEYS[1], 'made', string.sub(made, 1, #made - #name - 1))\n"
		     "end\n"
		     "return {0}\n";

/* ARGV: now, token, revision, document, ttl_ms, free, id, created_s, most, most_bytes. */
static const char lua_put[] =
    LUA_CONVERSATION "local mine, want, ttl, id = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[7]\n"
		     "local most, most_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])\n"
		     "if want ~= 0 and rev == 0 then return {1} end\n"
		     "if mine ~= '' and token ~= mine then return {2, 0} end\n"
		     "if others(mine) then return {2, over - now} end\n"
		     "if mine == '' and want ~= rev then return {4} end\n"
		     "local n, bytes, all = 0, #ARGV[4], redis.call('HGETALL', KEYS[2])\n"
		     "for i = 1, #all, 2 do\n"
		     "  local size, ends = string.match(all[i + 1], '^%d+ (%d+) (%d+)$')\n"
		     "  if not ends or tonumber(ends) <= now then\n"
		     "    redis.call('HDEL', KEYS[2], all[i])\n"
		     "  elseif all[i] ~= id then\n"
		     "    n, bytes = n + 1, bytes + tonumber(size)\n"
		     "  end\n"
		     "end\n"
		     "if most > 0 and n >= most then return {5} end\n"
		     "if most_bytes > 0 and bytes > most_bytes then return {6} end\n"
		     "redis.call('HSET', KEYS[1], 'rev', text(rev + 1), 'doc', ARGV[4])\n"
		     "if tonumber(ARGV[6]) == 1 then redis.call('HDEL', KEYS[1], 'token', 'until') end\n"
		     "redis.call('PEXPIRE', KEYS[1], ttl)\n"
		     "redis.call('HSET', KEYS[2], id, ARGV[8] .. ' ' .. #ARGV[4] .. ' ' .. text(now + ttl * 1000))\n"
		     "if redis.call('PTTL', KEYS[2]) < ttl then redis.call('PEXPIRE', KEYS[2], ttl) end\n"
		     "return {0, rev + 1}\n";

static const char lua_delete[] = LUA_CONVERSATION "redis.call('HDEL', KEYS[2], ARGV[2])\n"
						  "if rev == 0 then return {1} end\n"
						  "redis.call('UNLINK', KEYS[1])\n"
						  "return {0, made}\n";

static const char lua_list[] = LUA_NOW "local out, all = {}, redis.call('HGETALL', KEYS[1])\n"
				       "for i = 1, #all, 2 do\n"
				       "  local created, size, ends = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')\n"
				       "  if ends and tonumber(ends) > now then\n"
				       "    out[#out + 1] = all[i] .. ' ' .. created .. ' ' .. size .. ' ' .. "
				       "text(math.floor(tonumber(ends) / 1000)) .. '\\n'\n"
				       "  end\n"
				       "end\n"
				       "return {0, table.concat(out)}\n";

const struct cache_proc conversation_read = {"conversation_read", lua_read},
			conversation_hold = {"conversation_hold", lua_hold},
			conversation_free = {"conversation_free", lua_free},
			conversation_put = {"conversation_put", lua_put},
			conversation_delete = {"conversation_delete", lua_delete},
			conversation_list = {"conversation_list", lua_list};
