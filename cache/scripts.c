/* SPDX-License-Identifier: Apache-2.0
 *
 * A tenant's keys of a kind are listed in a sorted set "{tenant}:kind:index": digest by the end of life in milliseconds
 * of Redis' clock. Expired members are dropped by score whenever the set is used, so it needs no other cleaning. The
 * set expires with its last member.
 *
 * A log is a list of batches, each with a header of LOG_HEADER (40) digits: first number (16), number of items (8),
 * bytes of the log before it (16). The last header and length give the next number and the size, the first one what was
 * trimmed.
 *
 * Numbers are formatted by %.0f: Lua's tostring writes 1e+15.
 */
#include "cache/scripts.h"

/* list(index, digest, ttl_ms, most, stem): enter a key, drop the dead and what is too many. */
#define LIST_FUNCTION                                                                   \
	"local function list(index, digest, ttl, most, stem)\n"                         \
	"  local t = redis.call('TIME')\n"                                              \
	"  local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"                         \
	"  redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('%.0f', now))\n" \
	"  if ttl > 0 then\n"                                                           \
	"    redis.call('ZADD', index, string.format('%.0f', now + ttl), digest)\n"     \
	"  else\n"                                                                      \
	"    redis.call('ZADD', index, '+inf', digest)\n"                               \
	"  end\n"                                                                       \
	"  local over = redis.call('ZCARD', index) - most\n"                            \
	"  if over > 0 then\n"                                                          \
	"    local gone = redis.call('ZPOPMIN', index, over)\n"                         \
	"    for i = 1, #gone, 2 do redis.call('UNLINK', stem .. gone[i]) end\n"        \
	"  end\n"                                                                       \
	"  local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')[2]\n"         \
	"  if last == 'inf' then\n"                                                     \
	"    redis.call('PERSIST', index)\n"                                            \
	"  elseif last then\n"                                                          \
	"    redis.call('PEXPIREAT', index, last)\n"                                    \
	"  end\n"                                                                       \
	"end\n"

/* KEYS: key, index or none. ARGV: value, ttl_ms, absent only, digest, most, stem. */
static const char put[] =
    LIST_FUNCTION "local ttl = tonumber(ARGV[2])\n"
		  "if ARGV[3] == '1' then\n"
		  "  local had = redis.call('GET', KEYS[1])\n"
		  "  if had and string.sub(had, 1, 1) == string.sub(ARGV[1], 1, 1) then return had end\n"
		  "end\n"
		  "if ttl > 0 then\n"
		  "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
		  "else\n"
		  "  redis.call('SET', KEYS[1], ARGV[1])\n"
		  "end\n"
		  "if KEYS[2] then list(KEYS[2], ARGV[4], ttl, tonumber(ARGV[5]), ARGV[6]) end\n"
		  "return false\n";

/* KEYS: key, index. ARGV: digest. */
static const char delete_one[] = "redis.call('ZREM', KEYS[2], ARGV[1])\n"
				 "return redis.call('UNLINK', KEYS[1])\n";

/* KEYS: key, index or none. ARGV: bytes, ttl_ms, first, n, max_bytes, digest, most, stem.
 * Answers how it went (0 or 1: not the next number), first and next number. */
static const char append[] =
    LIST_FUNCTION "local first, n, size = tonumber(ARGV[3]), tonumber(ARGV[4]), 0\n"
		  "local last = redis.call('LINDEX', KEYS[1], -1)\n"
		  "if last then\n"
		  "  local next = tonumber(string.sub(last, 1, 16)) + tonumber(string.sub(last, 17, 24))\n"
		  "  local begins = tonumber(string.sub(redis.call('LINDEX', KEYS[1], 0), 1, 16))\n"
		  "  if first + n <= next then return {0, begins, next} end\n"
		  "  if first ~= next then return {1, begins, next} end\n"
		  "  size = tonumber(string.sub(last, 25, 40)) + #last\n"
		  "end\n"
		  "redis.call('RPUSH', KEYS[1], string.format('%016.0f%08.0f%016.0f', first, n, size) .. ARGV[1])\n"
		  "size = size + 40 + #ARGV[1]\n"
		  "local head = redis.call('LINDEX', KEYS[1], 0)\n"
		  "local left = redis.call('LLEN', KEYS[1])\n"
		  "while left > 1 and size - tonumber(string.sub(head, 25, 40)) > tonumber(ARGV[5]) do\n"
		  "  redis.call('LPOP', KEYS[1])\n"
		  "  head = redis.call('LINDEX', KEYS[1], 0)\n"
		  "  left = left - 1\n"
		  "end\n"
		  "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
		  "if KEYS[2] then list(KEYS[2], ARGV[6], tonumber(ARGV[2]), tonumber(ARGV[7]), ARGV[8]) end\n"
		  "return {0, tonumber(string.sub(head, 1, 16)), first + n}\n";

/* KEYS: key. ARGV: from, max_bytes, most batches. Answers 0 (or 1: out of range; 2: no log), first and
 * next number, batches with their headers. */
static const char read_log[] = "local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
			       "local n = redis.call('LLEN', KEYS[1])\n"
			       "if n == 0 then return {2, 0, 0} end\n"
			       "local function begins(i)\n"
			       "  return tonumber(string.sub(redis.call('LINDEX', KEYS[1], i), 1, 16))\n"
			       "end\n"
			       "local last = redis.call('LINDEX', KEYS[1], -1)\n"
			       "local next = tonumber(string.sub(last, 1, 16)) + tonumber(string.sub(last, 17, 24))\n"
			       "local out = {0, begins(0), next}\n"
			       "if from == next then return out end\n"
			       "if from < out[2] or from > next then out[1] = 1 return out end\n"
			       "local low, high = 0, n - 1\n" /* the last batch that begins at or before from */
			       "while low < high do\n"
			       "  local mid = math.ceil((low + high) / 2)\n"
			       "  if begins(mid) <= from then low = mid else high = mid - 1 end\n"
			       "end\n"
			       "local size, got = 0, 0\n"
			       "while low < n do\n"
			       "  local some = redis.call('LRANGE', KEYS[1], low, low + 15)\n"
			       "  for _, batch in ipairs(some) do\n"
			       "    size = size + #batch - 40\n"
			       "    if got > 0 and (size > most or got == tonumber(ARGV[3])) then return out end\n"
			       "    got = got + 1\n"
			       "    out[#out + 1] = batch\n"
			       "  end\n"
			       "  low = low + 16\n"
			       "end\n"
			       "return out\n";

/* KEYS: index. ARGV: stem. Evicted and expired keys are dropped from the list. */
static const char list_keys[] = "local out = {}\n"
				"for _, digest in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do\n"
				"  if redis.call('EXISTS', ARGV[1] .. digest) == 1 then\n"
				"    out[#out + 1] = digest\n"
				"  else\n"
				"    redis.call('ZREM', KEYS[1], digest)\n"
				"  end\n"
				"end\n"
				"return out\n";

const char *const cache_scripts[N_SCRIPTS] = {
    [SCRIPT_PUT] = put,       [SCRIPT_DELETE] = delete_one, [SCRIPT_APPEND] = append,
    [SCRIPT_READ] = read_log, [SCRIPT_LIST] = list_keys,
};
