/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which frames that came together are delivered: by lanes, those of one lane as they
 * came. A lane is a number, of a client's connection or 0 of none; the first lane is that of the first frame.
 * A step's frames come in the engine's order, in which connections take turns; delivered so, every stream of
 * every connection is touched before the first connection can be written, and again when it is.
 *
 * Bounded, allocates nothing. Not for threads to share.
 */
#ifndef GATEWAY_FRAME_ORDER_H
#define GATEWAY_FRAME_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { FRAME_ORDER_MAX = 1024, FRAME_ORDER_NONE = FRAME_ORDER_MAX };

struct frame_order {
	uint32_t n_frames, n_lanes;
	struct ordered_frame {
		/* The caller's: where the frame is, and what its delivery touches, a hint (NULL: none). */
		const void *ctx;
		uint32_t at;
		uint32_t next; /* of its lane: an index, or FRAME_ORDER_NONE */
	} frames[FRAME_ORDER_MAX];
	struct ordered_lane {
		uint32_t lane;
		uint16_t first, last, place; /* indexes of frames; where it is in the table */
	} lanes[FRAME_ORDER_MAX];
	uint16_t table[2 * FRAME_ORDER_MAX]; /* index of a lane and 1; 0: empty */
};

/* Cleared memory is an empty one, too. */
void frame_order_clear(struct frame_order *o);
/* False: it is full, and nothing was added. ctx: never dereferenced. */
bool frame_order_add(struct frame_order *o, uint32_t lane, uint32_t at, const void *ctx);

#endif
