/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/variant/variant_proc.h"

/* sums[2]: the variant's answers, TRIAL_ANSWERS + TRIAL_VARIANT. Kept for a year without use, a batch's number for a
 * week: longer than a gateway asks again without an answer. */
static const char lua[] =
    "local function text(x) return string.format('%.0f', x) end\n"
    "local h = redis.call('HMGET', KEYS[1], 'gen', 'rolled', 'hand', 'weight', 'sums')\n"
    "local gen, rolled, hand = tonumber(h[1] or -1), tonumber(h[2] or 0), tonumber(h[3] or 0)\n"
    "local weight, sums, mine = tonumber(h[4] or -1), {}, tonumber(ARGV[2])\n"
    "for v in string.gmatch(h[5] or '', '%-?%d+') do sums[#sums + 1] = tonumber(v) end\n"
    "local n = 0\n"
    "while ARGV[n + 7] do n = n + 1 end\n"
    "if mine > gen then\n"
    "  gen, rolled, hand, weight, sums = mine, 0, 0, tonumber(ARGV[5]), {}\n"
    "end\n"
    "local before = sums[2] or 0\n"
    "if mine == gen then\n"
    "  if rolled == 0 and hand == 0 then rolled, hand = tonumber(ARGV[3]), tonumber(ARGV[4]) end\n"
    "  local old, all = tonumber(redis.call('GET', KEYS[2]) or -1) >= tonumber(ARGV[6]), {}\n"
    "  for i = 1, n do\n"
    "    sums[i] = (sums[i] or 0) + (old and 0 or tonumber(ARGV[i + 6]))\n"
    "    all[i] = text(sums[i])\n"
    "  end\n"
    "  if not old then redis.call('SET', KEYS[2], ARGV[6], 'PX', 604800000) end\n"
    "  redis.call('HSET', KEYS[1], 'gen', text(gen), 'rolled', text(rolled), 'hand', text(hand), 'weight', "
    "text(weight), 'sums', table.concat(all, ' '))\n"
    "  redis.call('PEXPIRE', KEYS[1], 31622400000)\n"
    "end\n"
    "local out = {gen, rolled, hand, weight, before}\n"
    "for i = 1, n do out[#out + 1] = sums[i] or 0 end\n"
    "return out\n";

const struct cache_proc variant_merge = {"variant_merge", lua};
