/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/variant/variant_proc.h"

#include "cache/lua_now.h"

/* sums[2]: the variant's answers, TRIAL_ANSWERS + TRIAL_VARIANT. Kept for a year without use, a batch's number for a
 * week: longer than a gateway asks again without an answer. */
static const char lua[] =
    "local function text(x) return string.format('%.0f', x) end\n"
    "local h = redis.call('HMGET', KEYS[1], 'gen', 'rolled', 'hand', 'weight', 'sums', 'past', 'past_failed')\n"
    "local gen, rolled, hand = tonumber(h[1] or -1), tonumber(h[2] or 0), tonumber(h[3] or 0)\n"
    "local weight, sums, mine = tonumber(h[4] or -1), {}, tonumber(ARGV[2])\n"
    "local past, past_failed = tonumber(h[6] or 0), tonumber(h[7] or 0)\n"
    "for v in string.gmatch(h[5] or '', '%-?%d+') do sums[#sums + 1] = tonumber(v) end\n"
    "local n = 0\n"
    "while ARGV[n + 9] do n = n + 1 end\n"
    "if mine > gen then\n"
    "  gen, rolled, hand, weight, sums = mine, 0, 0, tonumber(ARGV[5]), {}\n"
    "end\n"
    "local before = sums[2] or 0\n"
    "if mine == gen then\n"
    "  if before == 0 then past, past_failed = tonumber(ARGV[7]), tonumber(ARGV[8]) end\n"
    "  if rolled == 0 and hand == 0 then rolled, hand = tonumber(ARGV[3]), tonumber(ARGV[4]) end\n"
    "  local old, all = tonumber(redis.call('GET', KEYS[2]) or -1) >= tonumber(ARGV[6]), {}\n"
    "  for i = 1, n do\n"
    "    sums[i] = (sums[i] or 0) + (old and 0 or tonumber(ARGV[i + 8]))\n"
    "    all[i] = text(sums[i])\n"
    "  end\n"
    "  if not old then redis.call('SET', KEYS[2], ARGV[6], 'PX', 604800000) end\n"
    "  redis.call('HSET', KEYS[1], 'gen', text(gen), 'rolled', text(rolled), 'hand', text(hand), 'weight', "
    "text(weight), 'sums', table.concat(all, ' '), 'past', text(past), 'past_failed', text(past_failed))\n"
    "  redis.call('PEXPIRE', KEYS[1], 31622400000)\n"
    "end\n"
    "local out = {gen, rolled, hand, weight, before, past, past_failed}\n"
    "for i = 1, n do out[#out + 1] = sums[i] or 0 end\n"
    "return out\n";

/* In thousandths, so that what fades away does so in small steps. */
static const char lua_past[] =
    LUA_NOW "local h = redis.call('HMGET', KEYS[1], 'n', 'failed', 'at')\n"
	    "local n, failed, at = tonumber(h[1] or 0), tonumber(h[2] or 0), tonumber(h[3] or now)\n"
	    "local keep = now > at and 0.5 ^ ((now - at) / 172800000000) or 1\n"
	    "n, failed = n * keep, failed * keep\n"
	    "if tonumber(redis.call('GET', KEYS[2]) or -1) < tonumber(ARGV[2]) then\n"
	    "  n, failed = n + tonumber(ARGV[3]) * 1000, failed + tonumber(ARGV[4]) * 1000\n"
	    "  redis.call('SET', KEYS[2], ARGV[2], 'PX', 604800000)\n"
	    "end\n"
	    "local most = tonumber(ARGV[5]) * 1000\n"
	    "if n > most then n, failed = most, failed * most / n end\n"
	    "redis.call('HSET', KEYS[1], 'n', text(n), 'failed', text(failed), 'at', text(now))\n"
	    "redis.call('PEXPIRE', KEYS[1], 2592000000)\n"
	    "return {math.floor(n / 1000), math.floor(failed / 1000 + 0.5)}\n";

const struct cache_proc variant_merge = {"variant_merge", lua};
const struct cache_proc variant_remember = {"variant_remember", lua_past};
