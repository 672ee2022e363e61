/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/keep_alive.h"

#include <stddef.h>

static uint64_t after(uint64_t from_ns, uint64_t ns) { return ns < UINT64_MAX - from_ns ? from_ns + ns : UINT64_MAX; }

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t end_of(const struct keep_alive_of *t) { return t->used_ns == 0 ? 0 : after(t->used_ns, t->keep_ns); }

void keep_alive_init(struct keep_alive *k, uint64_t configured_ns)
{
	*k = (struct keep_alive){.configured_ns = configured_ns};
}

/* The tenant's entry; a new one replaces the one that ends first. */
static struct keep_alive_of *entry_of(struct keep_alive *k, uint64_t tenant)
{
	struct keep_alive_of *first = &k->of[0];
	for (size_t i = 0; i < KEEP_ALIVE_TENANTS; i++) {
		if (k->of[i].used_ns != 0 && k->of[i].tenant == tenant)
			return &k->of[i];
		if (end_of(&k->of[i]) < end_of(first))
			first = &k->of[i];
	}
	uint64_t most = after(first->used_ns, k->configured_ns);
	k->others_end_ns = later(k->others_end_ns, earlier(end_of(first), most));
	*first = (struct keep_alive_of){.tenant = tenant, .keep_ns = k->configured_ns};
	return first;
}

void keep_alive_use(struct keep_alive *k, uint64_t tenant, uint64_t now_ns) { entry_of(k, tenant)->used_ns = now_ns; }

void keep_alive_ask(struct keep_alive *k, uint64_t tenant, uint64_t keep_ns, uint64_t now_ns)
{
	struct keep_alive_of *t = entry_of(k, tenant);
	t->keep_ns = keep_ns;
	t->used_ns = now_ns;
}

void keep_alive_clear(struct keep_alive *k) { keep_alive_init(k, k->configured_ns); }

uint64_t keep_alive_end(const struct keep_alive *k)
{
	uint64_t end = k->others_end_ns;
	for (size_t i = 0; i < KEEP_ALIVE_TENANTS; i++)
		end = later(end, end_of(&k->of[i]));
	return end;
}
