/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader's half. Nothing that it reads from shared memory is trusted: positions are checked against the section,
 * and bytes are copied before they are checked.
 */
#include <string.h>

#include "engine/handover/hand_area.h"

static struct hand_section *section_of(const struct hand_area *a, const struct hand_reader *r)
{
	return &a->head->sections[r->writer];
}

static struct hand_offer *offer_of(const struct hand_area *a, const struct hand_reader *r)
{
	return &section_of(a, r)->offers[r->place];
}

/* Still the offer that was found, of the same start of its writer. */
static bool is_same(const struct hand_area *a, const struct hand_reader *r)
{
	struct hand_offer *o = offer_of(a, r);
	return atomic_load(&section_of(a, r)->epoch) == r->epoch && atomic_load(&o->handle) == r->handle &&
	       (uint32_t)(atomic_load(&o->progress) >> 32) == r->tag;
}

static bool find(const struct hand_area *a, struct hand_reader *r)
{
	struct hand_section *s = section_of(a, r);
	uint64_t epoch = atomic_load(&s->epoch);
	for (uint32_t i = 0; i < HAND_OFFERS; i++) {
		if (atomic_load(&s->offers[i].handle) != r->handle)
			continue;
		r->place = i;
		r->tag = (uint32_t)(atomic_load(&s->offers[i].progress) >> 32);
		r->epoch = epoch;
		r->n_taken = 0;
		return is_same(a, r);
	}
	return false;
}

enum hand_state hand_look(const struct hand_area *a, struct hand_reader *r, uint32_t *n_pages)
{
	*n_pages = r->n_taken;
	if (!hand_area_has_writer(a, r->writer) || r->handle == 0)
		return HAND_FAILED;
	if (r->epoch == 0 && !find(a, r)) {
		r->epoch = 0;
		return HAND_NONE;
	}
	struct hand_offer *o = offer_of(a, r);
	/* The state first: what it ends with has been counted. */
	uint32_t state = atomic_load(&o->state), n = atomic_load(&o->n_pages);
	if (!is_same(a, r) || state < HAND_OPEN || state > HAND_FULL || n < r->n_taken || n - r->n_taken > HAND_WINDOW)
		return HAND_FAILED;
	*n_pages = n;
	return (enum hand_state)state;
}

/* The offer's place may have another offer by now, which nothing is reported to. */
static void report(const struct hand_area *a, struct hand_reader *r, uint32_t n)
{
	uint64_t before = (uint64_t)r->tag << 32 | r->n_taken, after = before + n;
	r->n_taken += n;
	atomic_compare_exchange_strong(&offer_of(a, r)->progress, &before, after);
}

int hand_take(const struct hand_area *a, struct hand_reader *r, const struct disk_page *p, void *k, void *v,
	      size_t half)
{
	uint32_t at = atomic_load(&offer_of(a, r)->at[r->n_taken % HAND_WINDOW]);
	uint32_t first = a->first[r->writer], count = a->count[r->writer];
	uint64_t begin = (uint64_t)at * DISK_BLOCK, end = ((uint64_t)first + count) * DISK_BLOCK;
	_Alignas(struct disk_record) uint8_t block[DISK_BLOCK];
	struct disk_record head;
	const int32_t *tokens;
	if (at < first || at - first >= count)
		return SL_EINVAL;
	memcpy(block, a->blocks + begin, sizeof block);
	if (disk_record_check(a->seed, block, r->epoch, begin, end, &head, &tokens) != 0 ||
	    !disk_record_is(&head, tokens, p, half))
		return SL_EINVAL;
	memcpy(k, a->blocks + begin + DISK_BLOCK, half);
	memcpy(v, a->blocks + begin + DISK_BLOCK + half, half);
	if (!disk_key_equal(head.payload_sum, disk_payload_sum(a->seed, k, v, half)))
		return SL_EINVAL;
	report(a, r, 1);
	return 0;
}

void hand_skip(const struct hand_area *a, struct hand_reader *r, uint32_t n) { report(a, r, n); }
