/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/prefix_view.h"

#include <string.h>

#include "base/alloc.h"

enum { FIRST_SLOTS = 256 };

void prefix_view_clear(struct prefix_view *v)
{
	if (v->slots != NULL)
		memset(v->slots, 0, v->n_slots * sizeof *v->slots);
	if (v->sent != NULL)
		memset(v->sent, 0, PREFIX_VIEW_SENT * sizeof *v->sent);
	v->n = 0;
}

void prefix_view_dispose(struct prefix_view *v)
{
	sl_free(v->slots);
	sl_free(v->sent);
	*v = (struct prefix_view){.n = 0};
}

static size_t home_of(const struct prefix_view *v, uint64_t digest) { return (size_t)(digest >> 1) & (v->n_slots - 1); }

/* Its slot, or the empty one where it would be. */
static size_t slot_of(const struct prefix_view *v, uint64_t digest)
{
	size_t i = home_of(v, digest);
	while (v->slots[i] != 0 && v->slots[i] != digest)
		i = (i + 1) & (v->n_slots - 1);
	return i;
}

/* Keeps half of the slots empty. False: no memory. */
static bool make_room(struct prefix_view *v)
{
	if (2 * (v->n + 1) <= v->n_slots)
		return true;
	struct prefix_view more = {.n_slots = v->n_slots > 0 ? 2 * v->n_slots : FIRST_SLOTS, .sent = v->sent};
	more.slots = sl_zalloc_n(more.n_slots, sizeof *more.slots);
	if (more.slots == NULL)
		return false;
	for (size_t i = 0; i < v->n_slots; i++)
		if (v->slots[i] != 0)
			more.slots[slot_of(&more, v->slots[i])] = v->slots[i];
	more.n = v->n;
	sl_free(v->slots);
	*v = more;
	return true;
}

static void add(struct prefix_view *v, uint64_t digest)
{
	if (digest == 0 || v->n == PROTO_PREFIXES_KEPT || !make_room(v))
		return;
	size_t i = slot_of(v, digest);
	v->n += v->slots[i] == 0;
	v->slots[i] = digest;
}

static size_t place_of(uint64_t digest) { return (size_t)(digest >> 1) % PREFIX_VIEW_SENT; }

/* It has been computed and has gone: that it was sent there counts no longer. Moves up what probing would no longer
 * find. */
static void drop(struct prefix_view *v, uint64_t digest)
{
	if (v->n == 0 || digest == 0)
		return;
	if (v->sent != NULL && v->sent[place_of(digest)].digest == digest)
		v->sent[place_of(digest)].digest = 0;
	size_t mask = v->n_slots - 1, hole = slot_of(v, digest);
	if (v->slots[hole] == 0)
		return;
	for (size_t i = (hole + 1) & mask; v->slots[i] != 0; i = (i + 1) & mask) {
		size_t home = home_of(v, v->slots[i]);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			v->slots[hole] = v->slots[i];
			hole = i;
		}
	}
	v->slots[hole] = 0;
	v->n--;
}

static void forget_published(struct prefix_view *v)
{
	if (v->slots != NULL)
		memset(v->slots, 0, v->n_slots * sizeof *v->slots);
	v->n = 0;
}

void prefix_view_take(struct prefix_view *v, const struct proto_prefixes *m)
{
	if (m->anew)
		forget_published(v);
	for (uint16_t i = 0; i < m->n; i++) {
		uint64_t change = proto_prefix_at(m, i), digest = change & ~(uint64_t)1;
		if ((change & 1) != 0)
			add(v, digest);
		else
			drop(v, digest);
	}
}

static double share_of(const struct prefix_digests *d, uint32_t i)
{
	return (double)prefix_digest_border(i) / (double)d->n_bytes;
}

/* Engines may share prefixes between tenants; which salt one takes shows in what it publishes. */
static bool has(const struct prefix_view *v, uint64_t digest, const struct prefix_whose *whose)
{
	const uint64_t tenants[] = {whose->tenant, 0};
	for (int i = 0; i < 2; i++) {
		uint64_t salted = prefix_digest_salted(digest, whose->model, tenants[i], whose->cache_salt);
		if (v->slots[slot_of(v, salted)] == salted)
			return true;
	}
	return false;
}

double prefix_view_cached(const struct prefix_view *v, const struct prefix_digests *d, const struct prefix_whose *whose)
{
	for (uint32_t i = d->n; v->n > 0 && i-- > 0;)
		if (has(v, d->of[i], whose))
			return share_of(d, i);
	return 0;
}

static uint64_t sent_digest(const struct prefix_digests *d, uint32_t i, const struct prefix_whose *whose)
{
	return prefix_digest_salted(d->of[i], whose->model, whose->tenant, whose->cache_salt);
}

void prefix_view_send(struct prefix_view *v, const struct prefix_digests *d, const struct prefix_whose *whose,
		      uint64_t now_ns)
{
	if (d->n > 0 && v->sent == NULL && (v->sent = sl_zalloc_n(PREFIX_VIEW_SENT, sizeof *v->sent)) == NULL)
		return;
	for (uint32_t i = 0; i < d->n; i++) {
		uint64_t digest = sent_digest(d, i, whose);
		v->sent[place_of(digest)] = (struct prefix_sent){digest, now_ns};
	}
}

double prefix_view_recent(const struct prefix_view *v, const struct prefix_digests *d, const struct prefix_whose *whose,
			  uint64_t now_ns, uint64_t window_ns)
{
	for (uint32_t i = d->n; v->sent != NULL && i-- > 0;) {
		uint64_t digest = sent_digest(d, i, whose);
		const struct prefix_sent *s = &v->sent[place_of(digest)];
		if (s->digest == digest && now_ns - s->at_ns < window_ns)
			return share_of(d, i) * (1 - (double)(now_ns - s->at_ns) / (double)window_ns);
	}
	return 0;
}
