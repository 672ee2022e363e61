/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/frame_order.h"

void frame_order_clear(struct frame_order *o)
{
	for (uint32_t i = 0; i < o->n_lanes; i++)
		o->table[o->lanes[i].place] = 0;
	o->n_frames = o->n_lanes = 0;
}

/* The lane's place in the table, or that where it would be. There are twice as many as lanes. */
static uint32_t place_of(const struct frame_order *o, uint32_t lane)
{
	enum { MASK = 2 * FRAME_ORDER_MAX - 1 };
	uint32_t i = lane * 0x9E3779B9u >> 16 & MASK;
	while (o->table[i] != 0 && o->lanes[o->table[i] - 1].lane != lane)
		i = (i + 1) & MASK;
	return i;
}

bool frame_order_add(struct frame_order *o, uint32_t lane, uint32_t at, const void *ctx)
{
	uint32_t n = o->n_frames;
	if (n == FRAME_ORDER_MAX)
		return false;
	o->frames[n] = (struct ordered_frame){.ctx = ctx, .at = at, .next = FRAME_ORDER_NONE};
	uint32_t place = place_of(o, lane);
	if (o->table[place] == 0) {
		o->lanes[o->n_lanes] =
		    (struct ordered_lane){.lane = lane, .first = (uint16_t)n, .place = (uint16_t)place};
		o->table[place] = (uint16_t)++o->n_lanes;
	} else {
		o->frames[o->lanes[o->table[place] - 1].last].next = n;
	}
	o->lanes[o->table[place] - 1].last = (uint16_t)n;
	o->n_frames = n + 1;
	return true;
}
