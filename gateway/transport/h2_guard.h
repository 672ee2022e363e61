/* SPDX-License-Identifier: Apache-2.0
 *
 * What one HTTP/2 peer may cost: counts of the frames that make work or garbage and carry nothing,
 * and the order of stream ids. Pure: no library, no connection, the time is an argument.
 */
#ifndef GATEWAY_H2_GUARD_H
#define GATEWAY_H2_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/config/gw_config.h"

enum {
	H2_RING = 128,
	H2_FRAME_HEAD = 9,
	H2_HEAD_OVER = 2, /* a head that many times over its limit ends the connection */
};

/* Tokens come back at per_s up to burst. */
struct h2_bucket {
	double level;
	int64_t per_s, burst;
	uint64_t at_ns;
};

struct h2_guard {
	struct h2_bucket resets;      /* made by us, because of the peer */
	struct h2_bucket peer_resets; /* RST_STREAM received */
	struct h2_bucket refused;     /* requests that the transport answers with an error */
	struct h2_bucket control;     /* PING, SETTINGS, PRIORITY, empty DATA, unknown types, … */
	/* WINDOW_UPDATE frames that the peer may send because of what it got. */
	uint32_t updates_due;
	/* Recent ids of HEADERS frames, and the highest. */
	int32_t ring[H2_RING];
	unsigned ring_at;
	int32_t newest;
	/* Where the input is in its frames. */
	uint8_t head[H2_FRAME_HEAD];
	size_t n_head, skip;
	/* Bytes of the newest head block on the wire, and the most that one may have. */
	size_t block, block_max;
};

/* skip: bytes before the first frame (the preface). */
void h2_guard_init(struct h2_guard *g, const struct gw_limits *lim, size_t skip, uint64_t now_ns);
/* False: the bucket is empty, the peer is to be sent away. */
bool h2_bucket_take(struct h2_bucket *b, uint64_t now_ns);
/* A HEADERS frame with that id. False: it is below the newest and none of the recent ones. */
bool h2_guard_stream_id(struct h2_guard *g, int32_t id);
/* A DATA frame went out: the peer may open the stream's window and the connection's. */
void h2_guard_data_sent(struct h2_guard *g);
/* A WINDOW_UPDATE came. False: nothing that was sent explains it. */
bool h2_guard_update_due(struct h2_guard *g);
/* Follows the frames through the input; how many of unknown type begin in these bytes. *head_over:
 * a head's frames have more bytes than the head may have. */
size_t h2_guard_frames(struct h2_guard *g, const uint8_t *data, size_t n, bool *head_over);

#endif
