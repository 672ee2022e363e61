/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits as Lua, for both stores. GCRA: ITU-T I.371 annex A, virtual scheduling; the arrival time is exact, as
 * whole microseconds and a numerator over the rate's limit, so that no rounding adds up.
 *
 * All items are checked before any is charged. When memory replaces a failing Redis, each limit is divided by the
 * number of gateways, but is at least one.
 *
 * Every number is an integer below 2^53, where Lua's doubles are exact: floor(a / b) and a % b are exact, and
 * cache/limits.c refuses what would leave that range.
 *
 * Numbers given to a command Redis itself writes with 17 digits; Lua's own `..` would write 14.
 *
 * A rate's key holds "microseconds fraction written", the theoretical arrival time and the time it was written. A
 * lease's or budget's key is a hash: u used, w the window that u is of, e that window's end, r reserved in all, o and t
 * the key's own clock (cache/limits.h), and by id what each holds; KEY:x is a sorted set of the ids by the end of their
 * hold. An id has 16 bytes, so it is never one of those fields.
 */
#include "cache/limits_priv.h"
#include "cache/lua_now.h"

/* span: how long units last, in whole microseconds and limit-ths of one. */
#define COMMON                                                                                                         \
	LUA_NOW "local id = ARGV[2]\n"                                                                                 \
		"local function span(units, limit, period)\n"                                                          \
		"  local part = units * (period % limit)\n"                                                            \
		"  return units * math.floor(period / limit) + math.floor(part / limit), part % limit\n"               \
		"end\n"                                                                                                \
		"local function set_rate(key, w, f)\n"                                                                 \
		"  redis.call('SET', key, text(w) .. ' ' .. text(f) .. ' ' .. text(now), 'PX',\n"                      \
		"    math.floor((w - now) / 1000) + 10000)\n"                                                          \
		"end\n" /* The arrival time of a rate, at least now. Written in the future: the clock went back. */    \
		"local function arrival(key, limit, burst, period)\n"                                                  \
		"  local w, f, at = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) ?(%d*)$')\n"              \
		"  w, f, at = tonumber(w), tonumber(f), tonumber(at)\n"                                                \
		"  if w and f >= limit then w, f = w + 1, 0 end\n" /* the limit was another */                         \
		"  if not w or w < now then return now, 0 end\n"                                                       \
		"  if at and at <= now then return w, f end\n"                                                         \
		"  if at then\n"                                                                                       \
		"    w = now + w - at\n"                                                                               \
		"  else\n" /* an earlier version's, which wrote no time */                                             \
		"    local bw, bf = span(burst, limit, period)\n"                                                      \
		"    if w - now <= bw then return w, f end\n"                                                          \
		"    w, f = now + bw, bf\n"                                                                            \
		"  end\n"                                                                                              \
		"  set_rate(key, w, f)\n"                                                                              \
		"  return w, f\n"                                                                                      \
		"end\n"                                                                                                \
		"local function left_of_rate(w, f, limit, burst, period)\n"                                            \
		"  local dw, df = span(burst, limit, period)\n"                                                        \
		"  dw, df = now + dw - w, df - f\n"                                                                    \
		"  if df < 0 then dw, df = dw - 1, df + limit end\n"                                                   \
		"  if dw < 0 then return 0 end\n"                                                                      \
		"  local function fits(k)\n"                                                                           \
		"    local sw, sf = span(k, limit, period)\n"                                                          \
		"    return sw < dw or sw == dw and sf <= df\n"                                                        \
		"  end\n"                                                                                              \
		"  local k = math.min(burst, math.floor(dw * limit / period))\n" /* about */                           \
		"  while k < burst and fits(k + 1) do k = k + 1 end\n"                                                 \
		"  while k > 0 and not fits(k) do k = k - 1 end\n"                                                     \
		"  return k\n"                                                                                         \
		"end\n"                                                                                                \
		"local function live(key, ms)\n" /* A second of the grace is given up for not setting it each time. */ \
		"  if redis.call('PTTL', key) < ms - 1000 then redis.call('PEXPIRE', key, ms) end\n"                   \
		"end\n" /* A lease or budget by its own clock, without the holds that have ended. */                   \
		"local function pool(key, limit, period)\n"                                                            \
		"  local got = redis.call('HMGET', key, 'u', 'w', 'e', 'o', 't')\n"                                    \
		"  local used, w, ends = tonumber(got[1] or 0), tonumber(got[2] or 0), tonumber(got[3] or 0)\n"        \
		"  local ahead, last = tonumber(got[4] or 0), tonumber(got[5] or 0)\n"                                 \
		"  local at, window, back = now + ahead, period > 0 and math.floor(now / period) or 0, false\n"        \
		"  if at < last then at, ahead, back = last, last - now, true end\n"                                   \
		"  local gone = redis.call('ZRANGEBYSCORE', key .. ':x', '-inf', at)\n"                                \
		"  for _, hold in ipairs(gone) do\n"                                                                   \
		"    local n = redis.call('HMGET', key, 'r', hold)\n"                                                  \
		"    if n[2] then redis.call('HSET', key, 'r', (n[1] or 0) - n[2]) end\n"                              \
		"    redis.call('HDEL', key, hold)\n"                                                                  \
		"    redis.call('ZREM', key .. ':x', hold)\n"                                                          \
		"  end\n"                                                                                              \
		"  local held = redis.call('HMGET', key, 'r', id)\n"                                                   \
		"  if ahead > 0 and window == w and redis.call('ZCARD', key .. ':x') == 0 then\n"                      \
		"    at, ahead = now, 0\n"                                                                             \
		"  end\n" /* An earlier window than the stored one counts as that one, until that one's end. */        \
		"  if window < w and ends == 0 then ends, back = at + period, true end\n"                              \
		"  if window > w or window < w and at >= ends then used, w = 0, window end\n"                          \
		"  if window == w then ends = (window + 1) * period + ahead end\n"                                     \
		"  if back then\n"                                                                                     \
		"    redis.call('HSET', key, 'u', used, 'w', w, 'e', ends, 'o', ahead, 't', at)\n"                     \
		"  end\n"                                                                                              \
		"  local p = {key = key, used = used, reserved = tonumber(held[1] or 0),\n"                            \
		"    own = tonumber(held[2] or 0), known = held[2] and true or false,\n"                               \
		"    window = w, ends = ends, at = at, ahead = ahead}\n"                                               \
		"  p.left = math.max(0, limit - p.used - p.reserved)\n"                                                \
		"  return p\n"                                                                                         \
		"end\n" /* Writes p, whose id holds `own` until then, or nothing any more. */                          \
		"local function set_pool(p, type, period, keep, hold)\n"                                               \
		"  redis.call('HSET', p.key, 'u', p.used, 'w', p.window, 'e', p.ends, 'r', p.reserved,\n"              \
		"    'o', p.ahead, 't', p.at)\n"                                                                       \
		"  if keep then\n"                                                                                     \
		"    redis.call('HSET', p.key, id, p.own)\n"                                                           \
		"    redis.call('ZADD', p.key .. ':x', p.at + hold, id)\n"                                             \
		"  else\n"                                                                                             \
		"    redis.call('HDEL', p.key, id)\n"                                                                  \
		"    redis.call('ZREM', p.key .. ':x', id)\n"                                                          \
		"  end\n"                                                                                              \
		"  if type == 3 and period == 0 then\n"                                                                \
		"    redis.call('PERSIST', p.key)\n"                                                                   \
		"    redis.call('PERSIST', p.key .. ':x')\n"                                                           \
		"    return\n"                                                                                         \
		"  end\n"                                                                                              \
		"  local ms = math.floor(hold / 1000) + 10000\n"                                                       \
		"  if type == 3 then\n"                                                                                \
		"    ms = math.max(ms, math.floor((p.ends - p.at) / 1000) + 604800000)\n"                              \
		"  end\n"                                                                                              \
		"  live(p.key, ms)\n"                                                                                  \
		"  live(p.key .. ':x', ms)\n"                                                                          \
		"end\n"                                                                                                \
		"local share = ARGV.share or 1\n"                                                                      \
		"local function part_of(limit)\n"                                                                      \
		"  return limit > 0 and math.max(1, math.floor(limit / share)) or limit\n"                             \
		"end\n"                                                                                                \
		"local function item(i, at)\n"                                                                         \
		"  local a = at + (i - 1) * 5\n"                                                                       \
		"  return tonumber(ARGV[a]), part_of(tonumber(ARGV[a + 1])), part_of(tonumber(ARGV[a + 2])),\n"        \
		"    tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])\n"                                                   \
		"end\n"

/* ARGV: now, id, want, least, hold_us, then for each key type, limit, burst, period_us, cost. */
static const char admit[] =
    COMMON "local want, least, hold = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])\n"
	   "local all, grant, state = 1, want, {}\n"
	   "for i, key in ipairs(KEYS) do\n"
	   "  local type, limit, burst, period, cost = item(i, 6)\n"
	   "  local s = {ok = 1, retry = 0}\n"
	   "  if type == 1 then\n"
	   "    s.w, s.f = arrival(key, limit, burst, period)\n"
	   "    s.nw, s.nf = s.w, s.f\n"
	   "    if cost > burst then\n"
	   "      s.ok, s.retry = 0, -1\n"
	   "    else\n"
	   "      local cw, cf = span(cost, limit, period)\n"
	   "      local bw, bf = span(burst, limit, period)\n"
	   "      s.nw, s.nf = s.w + cw, s.f + cf\n"
	   "      if s.nf >= limit then s.nw, s.nf = s.nw + 1, s.nf - limit end\n"
	   "      local late = s.nw - bw - now\n"
	   "      if s.nf > bf then late = late + 1 end\n"
	   "      if late > 0 then s.ok, s.retry = 0, late end\n"
	   "    end\n"
	   "  else\n"
	   "    s.p = pool(key, limit, period)\n"
	   "    local room = s.p.known or redis.call('ZCARD', key .. ':x') < 65536\n"
	   "    if type == 2 then\n"
	   "      if not room or s.p.reserved - s.p.own + cost > limit then s.ok, s.retry = 0, -1 end\n"
	   "    else\n"
	   "      local left = room and s.p.left or 0\n"
	   "      grant = math.min(grant, left)\n"
	   "      if left < least then\n"
	   "        s.ok = 0\n"
	   "        s.retry = period > 0 and s.p.ends - s.p.at or -1\n"
	   "        if limit - s.p.used - s.p.own >= least then s.retry = 0 end\n"
	   "      end\n"
	   "    end\n"
	   "  end\n"
	   "  if s.ok == 0 then all = 0 end\n"
	   "  state[i] = s\n"
	   "end\n"
	   "if all == 0 then grant = 0 end\n"
	   "local out = {all, grant}\n"
	   "for i, key in ipairs(KEYS) do\n"
	   "  local type, limit, burst, period, cost = item(i, 6)\n"
	   "  local s, left, reset = state[i], 0, 0\n"
	   "  if type == 1 then\n"
	   "    if all == 1 then\n"
	   "      s.w, s.f = s.nw, s.nf\n"
	   "      if cost > 0 then set_rate(key, s.w, s.f) end\n"
	   "    end\n"
	   "    left = left_of_rate(s.w, s.f, limit, burst, period)\n"
	   "    reset = s.w - now + (s.f > 0 and 1 or 0)\n"
	   "  else\n"
	   "    local p = s.p\n"
	   "    if all == 1 then\n"
	   "      local own = type == 2 and cost or p.own + grant\n"
	   "      p.reserved = p.reserved + own - p.own\n"
	   "      p.own = own\n"
	   "      if p.known or own > 0 then set_pool(p, type, period, true, hold) end\n"
	   "    end\n"
	   "    left = math.max(0, limit - p.used - p.reserved)\n"
	   "    if type == 3 and period > 0 then reset = p.ends - p.at end\n"
	   "  end\n"
	   "  out[#out + 1] = s.ok\n"
	   "  out[#out + 1] = left\n"
	   "  out[#out + 1] = s.retry\n"
	   "  out[#out + 1] = reset\n"
	   "end\n"
	   "return out\n";

/* ARGV: now, id, used, keep_us, then as above. */
static const char settle[] = COMMON "local used, keep, out = tonumber(ARGV[3]), tonumber(ARGV[4]), {}\n"
				    "for i, key in ipairs(KEYS) do\n"
				    "  local type, limit, burst, period, cost = item(i, 5)\n"
				    "  local known, charged, left = 1, 0, 0\n"
				    "  if type == 1 then\n"
				    "    local w, f = arrival(key, limit, burst, period)\n"
				    "    local cw, cf = span(math.abs(cost), limit, period)\n"
				    "    if cost < 0 then\n" /* a debt */
				    "      w, f = w + cw, f + cf\n"
				    "      if f >= limit then w, f = w + 1, f - limit end\n"
				    "      if w > now + 1125899906842624 then w, f = now + 1125899906842624, 0 end\n"
				    "    else\n"
				    "      w, f = w - cw, f - cf\n"
				    "      if f < 0 then w, f = w - 1, f + limit end\n"
				    "      if w < now then w, f = now, 0 end\n"
				    "    end\n"
				    "    if cost ~= 0 then set_rate(key, w, f) end\n"
				    "    left = left_of_rate(w, f, limit, burst, period)\n"
				    "  else\n"
				    "    local p = pool(key, limit, period)\n"
				    "    known = p.known and 1 or 0\n"
				    "    if p.known then\n"
				    "      local own = p.own\n"
				    "      if type == 3 then\n"
				    "        charged = math.min(used, own + p.left)\n"
				    "        p.used = p.used + charged\n"
				    "        own = math.max(0, own - charged)\n"
				    "      end\n"
				    "      if keep == 0 then own = 0 end\n"
				    "      p.reserved = p.reserved + own - p.own\n"
				    "      p.own = own\n"
				    "      set_pool(p, type, period, keep > 0, keep)\n"
				    "    end\n"
				    "    left = math.max(0, limit - p.used - p.reserved)\n"
				    "  end\n"
				    "  out[#out + 1] = known\n"
				    "  out[#out + 1] = charged\n"
				    "  out[#out + 1] = left\n"
				    "end\n"
				    "return out\n";

const struct cache_proc cache_proc_admit = {"admit", admit};
const struct cache_proc cache_proc_settle = {"settle", settle};
