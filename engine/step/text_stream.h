/* SPDX-License-Identifier: Apache-2.0
 *
 * From a sequence's tokens to the text that may be sent: never half a UTF-8 character (an invalid
 * byte becomes U+FFFD), never a stop string nor a beginning of one that may still become it.
 * Whatever way the same tokens arrive, the same text leaves.
 */
#ifndef ENGINE_TEXT_STREAM_H
#define ENGINE_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"

struct text_stream {
	struct sl_buf held;                      /* whole characters not yet released: the beginning of a stop */
	struct proto_str stops[PROTO_MAX_STOPS]; /* point into stop_mem */
	int n_stops;
	char *stop_mem;
	uint16_t *borders;                 /* per byte of stop_mem: the longest border of the stop up to there */
	uint16_t matched[PROTO_MAX_STOPS]; /* bytes of each stop that end the text so far */
	uint8_t part[4];                   /* an unfinished character */
	uint8_t n_part;
	bool stopped;
	bool passing; /* stops are passed over */
};

/* Copies the stops (each 1 to PROTO_MAX_STOP_BYTES bytes of valid UTF-8, else SL_EINVAL). 0 or
 * SL_ENOMEM. On failure s holds nothing. */
int text_stream_init(struct text_stream *s, const struct proto_str *stops, int n_stops);
void text_stream_dispose(struct text_stream *s);
/* Adds a token's bytes and appends what is now safe to out. *stopped: a stop string was completed
 * by these bytes or before; what precedes it has been released, the rest is dropped. The stop that
 * is completed first counts, the longest of those that end together. 0, SL_ENOMEM, SL_ELIMIT (out
 * is full). */
int text_stream_push(struct text_stream *s, const char *bytes, size_t n, struct sl_buf *out, bool *stopped);
/* Whether stops that are completed from now on count (they do at first); where they don't, they are
 * text like any other. One that began before and is completed when they count, counts. */
void text_stream_may_stop(struct text_stream *s, bool may);
/* The end: releases what was held back, an unfinished character as one U+FFFD. */
int text_stream_finish(struct text_stream *s, struct sl_buf *out);

#endif
