/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/sharing/idempotent_proc.h"

static const char lua[] = "local had, want, to = redis.call('GET', KEYS[1]) or '', ARGV[2], ARGV[4]\n"
			  "if string.sub(had, 1, 1) ~= string.sub(want, 1, 1) then had = '' end\n"
			  "if had == want or had == '' and tonumber(ARGV[3]) == 1 then\n"
			  "  if to == '' then\n"
			  "    redis.call('UNLINK', KEYS[1])\n"
			  "  else\n"
			  "    redis.call('SET', KEYS[1], to, 'PX', ARGV[5])\n"
			  "  end\n"
			  "  return {1}\n"
			  "end\n"
			  "if string.byte(had, 2) == 0 and redis.call('PTTL', KEYS[1]) > tonumber(ARGV[6]) then\n"
			  "  redis.call('PEXPIRE', KEYS[1], ARGV[6])\n"
			  "end\n"
			  "return {0, had}\n";

const struct cache_proc idempotent_change = {"idempotent_change", lua};
