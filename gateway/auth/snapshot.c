/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/snapshot.h"

#include "base/alloc.h"

int gw_snapshot_create(const struct gw_config *cfg, void *owner, void (*release)(void *owner), struct gw_snapshot **out)
{
	struct gw_snapshot *s = sl_zalloc(sizeof *s);
	if (s == NULL) {
		if (release != NULL)
			release(owner);
		return SL_ENOMEM;
	}
	s->cfg = *cfg;
	s->owner = owner;
	s->release = release;
	atomic_init(&s->refs, 1);
	*out = s;
	return 0;
}

struct gw_snapshot *gw_snapshot_ref(struct gw_snapshot *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void gw_snapshot_unref(struct gw_snapshot *s)
{
	/* The freeing thread must see what every other holder did before its release. */
	if (s == NULL || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (s->shared != NULL)
		s->release_shared(s->shared);
	if (s->cascade != NULL)
		s->release_cascade(s->cascade);
	if (s->sinks != NULL)
		s->release_sinks(s->sinks);
	if (s->variants != NULL)
		s->release_variants(s->variants);
	if (s->release != NULL)
		s->release(s->owner);
	sl_free(s);
}
