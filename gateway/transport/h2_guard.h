/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits on the cost of one HTTP/2 peer: rates of resets (rapid reset, CVE-2023-44487), of refused requests and of
 * frames without data, and the order of stream ids. h2.c reports the frames and ends the connection. Pure: no library,
 * no connection; the time is an argument.
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
	H2_HEAD_OVER = 2, /* a head of so many times its limit ends the connection */
};

/* A token bucket: refills at per_s, up to burst. */
struct h2_bucket {
	double level;
	int64_t per_s, burst;
	uint64_t at_ns;
};

struct h2_guard {
	struct h2_bucket resets;      /* RST_STREAM sent because of the peer */
	struct h2_bucket peer_resets; /* RST_STREAM received */
	struct h2_bucket refused;     /* requests that the transport answers with an error */
	struct h2_bucket control;     /* PING, SETTINGS, PRIORITY, empty DATA, unknown types, … */
	/* WINDOW_UPDATE frames that the DATA sent entitles the peer to. */
	uint32_t updates_due;
	/* Recent stream ids of HEADERS frames, and the highest. */
	int32_t ring[H2_RING];
	unsigned ring_at;
	int32_t newest;
	/* The input's position: the frame head so far, and payload bytes still to skip. */
	uint8_t head[H2_FRAME_HEAD];
	size_t n_head, skip;
	/* Wire bytes of the newest header block, and the limit. */
	size_t block, block_max;
};

/* skip: the bytes before the first frame (the preface). */
void h2_guard_init(struct h2_guard *g, const struct gw_limits *lim, size_t skip, uint64_t now_ns);
/* False: the bucket is empty; end the connection. */
bool h2_bucket_take(struct h2_bucket *b, uint64_t now_ns);
/* Records the id of a HEADERS frame. False: the id is below the newest and not a recent one. */
bool h2_guard_stream_id(struct h2_guard *g, int32_t id);
/* A DATA frame was sent: the peer may update the windows of the stream and of the connection. */
void h2_guard_data_sent(struct h2_guard *g);
/* A WINDOW_UPDATE was received. False: no DATA sent entitles the peer to it. */
bool h2_guard_update_due(struct h2_guard *g);
/* Follows the frames through the input. Returns how many frames of unknown type begin in these bytes. *head_over: a
 * header block is over its limit. */
size_t h2_guard_frames(struct h2_guard *g, const uint8_t *data, size_t n, bool *head_over);

#endif
