/* SPDX-License-Identifier: Apache-2.0
 *
 * How scripts begin whose first argument is the time in microseconds; 0: the server's own. text(x): a whole number in
 * full, since Lua's tostring writes 1e+15.
 */
#ifndef CACHE_LUA_NOW_H
#define CACHE_LUA_NOW_H

#define LUA_NOW                            \
	"local now = tonumber(ARGV[1])\n"  \
	"if now == 0 then\n"               \
	"  local t = redis.call('TIME')\n" \
	"  now = t[1] * 1000000 + t[2]\n"  \
	"end\n"                            \
	"local function text(x) return string.format('%.0f', x) end\n"

#endif
