/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a sequence's tokens into text that may be sent: whole UTF-8 characters only (an invalid byte becomes U+FFFD),
 * no stop string, and no beginning of one that may still complete. The text does not depend on how it is cut into
 * tokens.
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
	bool passing; /* stops do not count */
	bool keeps;   /* the end includes the stop; otherwise the text ends before it */
	bool whole;   /* drops an unfinished character at the end: the text stays a prefix of what it would become */
	uint8_t by;   /* if stopped: the index of the stop */
};

/* Copies the stops (each 1 to PROTO_MAX_STOP_BYTES bytes of valid UTF-8, else SL_EINVAL). 0 or
 * SL_ENOMEM. On failure s holds nothing. */
int text_stream_init(struct text_stream *s, const struct proto_str *stops, int n_stops);
void text_stream_dispose(struct text_stream *s);
/* Adds a token's bytes and appends what may be released to out. *stopped: a stop string is complete; the text before it
 * is released (with it, if s keeps stops), the rest dropped. The first stop to complete counts, the longest of those
 * that end together. 0, SL_ENOMEM, SL_ELIMIT (out is full). */
int text_stream_push(struct text_stream *s, const char *bytes, size_t n, struct sl_buf *out, bool *stopped);
/* Whether stops that complete from now on count (default: true). Otherwise they are plain text. A stop that began
 * before may still complete. */
void text_stream_may_stop(struct text_stream *s, bool may);
/* Ends the text: releases held text, and an unfinished character as one U+FFFD unless s is whole. */
int text_stream_finish(struct text_stream *s, struct sl_buf *out);

#endif
