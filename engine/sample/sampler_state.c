/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of an answer's tokens, for the penalties, in an open hash table that is at most half full. A vocabulary has
 * 10^5 tokens and a text some hundreds of different ones, so memory and the work of a draw follow the text's size.
 * Owned by one sequence, one thread.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/sample/sampler.h"

enum { FIRST_SLOTS = 64 };

static uint32_t slot_of(const struct sampler_state *s, int32_t id)
{
	uint32_t i = (uint32_t)id * 0x9E3779B9u >> 7 & (s->n_slots - 1);
	while (s->slots[i].id >= 0 && s->slots[i].id != id)
		i = (i + 1) & (s->n_slots - 1);
	return i;
}

static int grow(struct sampler_state *s)
{
	struct sampler_state bigger = {.n_slots = s->n_slots ? s->n_slots * 2 : FIRST_SLOTS, .n = s->n};
	bigger.slots = sl_zalloc_n(bigger.n_slots, sizeof *bigger.slots);
	if (bigger.slots == NULL)
		return SL_ENOMEM;
	for (uint32_t i = 0; i < bigger.n_slots; i++)
		bigger.slots[i] = (struct sampler_count){.id = -1};
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].id >= 0)
			bigger.slots[slot_of(&bigger, s->slots[i].id)] = s->slots[i];
	}
	sl_free(s->slots);
	*s = bigger;
	return 0;
}

static struct sampler_count *count_of(struct sampler_state *s, int32_t id)
{
	BUG_IF(id < 0, "a token with the id %d", id);
	if ((s->n + 1) * 2 > s->n_slots && grow(s) != 0)
		return NULL;
	struct sampler_count *c = &s->slots[slot_of(s, id)];
	if (c->id < 0) {
		*c = (struct sampler_count){.id = id};
		s->n++;
	}
	return c;
}

bool sampler_needs_state(const struct sampler_params *p)
{
	return p->presence_penalty != 0 || p->frequency_penalty != 0 || sampler_needs_prompt(p);
}

bool sampler_needs_prompt(const struct sampler_params *p) { return p->repetition_penalty != 1; }

int sampler_state_add_prompt(struct sampler_state *s, const int32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sampler_count *c = count_of(s, ids[i]);
		if (c == NULL)
			return SL_ENOMEM;
		c->made |= SAMPLER_IN_PROMPT;
	}
	return 0;
}

int sampler_state_add(struct sampler_state *s, int32_t id)
{
	struct sampler_count *c = count_of(s, id);
	if (c == NULL)
		return SL_ENOMEM;
	if ((c->made & ~SAMPLER_IN_PROMPT) < ~SAMPLER_IN_PROMPT)
		c->made++;
	return 0;
}

int sampler_state_copy(struct sampler_state *to, const struct sampler_state *from)
{
	*to = (struct sampler_state){0};
	if (from->n_slots == 0)
		return 0;
	struct sampler_count *slots = sl_zalloc_n(from->n_slots, sizeof *slots);
	if (slots == NULL)
		return SL_ENOMEM;
	memcpy(slots, from->slots, from->n_slots * sizeof *slots);
	*to = *from;
	to->slots = slots;
	return 0;
}

void sampler_state_dispose(struct sampler_state *s)
{
	sl_free(s->slots);
	*s = (struct sampler_state){0};
}
