/* SPDX-License-Identifier: Apache-2.0
 *
 * Tenants and the service they received. Shares only grow, so keys in the heap of active tenants may be stale: the top
 * is corrected on access, and charging a tenant costs no heap operation.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "engine/sched/sched.h"

static bool less_share(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct sched_tenant, active)->active_key <
	       heap_entry(b, const struct sched_tenant, active)->active_key;
}

int sched_tenants_init(struct sched_tenants *t)
{
	*t = (struct sched_tenants){0};
	heap_init(&t->active, less_share);
	list_init(&t->idle);
	return idmap_init(&t->all);
}

static void tenant_free(struct sched_tenants *t, struct sched_tenant *tenant)
{
	list_remove(&tenant->idle);
	idmap_remove(&t->all, &tenant->node);
	sl_free(tenant);
}

void sched_tenants_dispose(struct sched_tenants *t)
{
	BUG_IF(t->active.n != 0, "a tenant still has sequences");
	list_each_safe(it, tmp, &t->idle)
		tenant_free(t, list_entry(it, struct sched_tenant, idle));
	idmap_dispose(&t->all);
}

static uint64_t least_share(struct sched_tenants *t)
{
	while (t->active.top != NULL) {
		struct sched_tenant *top = heap_entry(t->active.top, struct sched_tenant, active);
		if (top->active_key == top->share)
			return top->share;
		heap_remove(&t->active, &top->active);
		top->active_key = top->share;
		heap_insert(&t->active, &top->active);
	}
	return t->floor;
}

uint64_t sched_tenants_least(const struct sched_tenants *t)
{
	/* An old key is not above the true share of its tenant. */
	return t->active.top != NULL ? heap_entry(t->active.top, const struct sched_tenant, active)->active_key
				     : t->floor;
}

struct sched_tenant *sched_tenant_enter(struct sched_tenants *t, uint64_t digest, uint32_t weight)
{
	struct idmap_node *node = idmap_find(&t->all, digest);
	struct sched_tenant *tenant;
	if (node != NULL) {
		tenant = idmap_entry(node, struct sched_tenant, node);
	} else {
		tenant = sl_zalloc(sizeof *tenant);
		if (tenant == NULL)
			return NULL;
		tenant->node.key = digest;
		list_init(&tenant->idle);
		idmap_insert(&t->all, &tenant->node);
	}
	tenant->weight = weight == 0 ? SCHED_WEIGHT : weight < SCHED_MAX_WEIGHT ? weight : SCHED_MAX_WEIGHT;
	if (tenant->n_seqs++ > 0)
		return tenant;
	if (node != NULL) {
		list_remove(&tenant->idle);
		t->n_idle--;
	}
	uint64_t least = least_share(t);
	/* At equal shares the new tenant goes first. */
	if (tenant->share < least)
		tenant->share = least - 1;
	tenant->active_key = tenant->share;
	heap_insert(&t->active, &tenant->active);
	return tenant;
}

void sched_tenant_leave(struct sched_tenants *t, struct sched_tenant *tenant)
{
	BUG_IF(tenant->n_seqs == 0, "a tenant loses a sequence that it did not have");
	if (--tenant->n_seqs > 0)
		return;
	heap_remove(&t->active, &tenant->active);
	t->floor = tenant->share;
	list_push_back(&t->idle, &tenant->idle);
	if (++t->n_idle > SCHED_IDLE_TENANTS) {
		tenant_free(t, list_entry(t->idle.next, struct sched_tenant, idle));
		t->n_idle--;
	}
}
