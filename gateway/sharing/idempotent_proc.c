/* SPDX-License-Identifier: Apache-2.0
 *
 * The Lua and the counterpart mean the same; change both. (Memory's clock never goes back, so the counterpart shortens
 * no lives.)
 */
#include "gateway/sharing/idempotent_proc.h"

#include <string.h>

#include "cache/mem_proc.h"

static const char lua[] = "local had, want, to = redis.call('GET', KEYS[1]) or '', ARGV[2], ARGV[4]\n"
			  "if string.sub(had, 1, 1) ~= string.sub(want, 1, 1) then had = '' end\n"
			  "if had == want or had == '' and ARGV[3] == '1' then\n"
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

static bool same(const void *a, size_t n, const struct cache_value *b)
{
	return n == b->n && (n == 0 || memcmp(a, b->p, n) == 0);
}

static int in_memory(struct mem_proc *t)
{
	const struct cache_value *want = &t->args[0], *to = &t->args[2];
	size_t n;
	const uint8_t *had = mem_proc_find(t, 0, &n);
	if (had == NULL || want->n == 0 || had[0] != *(const uint8_t *)want->p) {
		had = (const uint8_t *)"";
		n = 0;
	}
	if (!same(had, n, want) && !(n == 0 && t->args[1].i == 1)) {
		int rc = mem_proc_answer(t, 0);
		return rc == 0 ? mem_proc_answer_bytes(t, had, n) : rc;
	}
	int rc = mem_proc_answer(t, 1);
	if (rc != 0 || to->n == 0) {
		mem_proc_remove(t, 0);
		return rc;
	}
	void *now = mem_proc_edit(t, 0, to->n, (uint64_t)t->args[3].i);
	if (now == NULL)
		return SL_ENOMEM;
	memcpy(now, to->p, to->n);
	return 0;
}

const struct cache_proc idempotent_change = {"idempotent_change", lua, in_memory};
