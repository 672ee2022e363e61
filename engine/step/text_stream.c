/* SPDX-License-Identifier: Apache-2.0
 *
 * Two stages, each of which handles one byte at a time, so the cut of the input into tokens cannot matter:
 *
 *   bytes → whole characters   an unfinished character is kept in part; an invalid byte becomes U+FFFD
 *   characters → released text each stop has its own Knuth-Morris-Pratt automaton; matched[i] bytes of stop i end the
 *                              text, so the longest of them is exactly what must be held back
 *
 * Invariant between calls: held.len == max(matched[]). A stop begins only in held text, because from its first byte on
 * the text was a beginning of it. Work is linear in bytes times stops; only out allocates after init.
 */
#include "engine/step/text_stream.h"

#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};

/* border[k]: the length of the longest proper prefix of stop[0..k] that is also its suffix. */
static void find_borders(const char *stop, size_t n, uint16_t *border)
{
	uint16_t k = 0;
	border[0] = 0;
	for (size_t i = 1; i < n; i++) {
		while (k > 0 && stop[i] != stop[k])
			k = border[k - 1];
		if (stop[i] == stop[k])
			k++;
		border[i] = k;
	}
}

int text_stream_init(struct text_stream *s, const struct proto_str *stops, int n_stops)
{
	*s = (struct text_stream){0};
	if (n_stops < 0 || n_stops > PROTO_MAX_STOPS)
		return SL_EINVAL;
	size_t total = 0;
	for (int i = 0; i < n_stops; i++) {
		/* Whole characters only: a stop must not cut the text inside one. */
		if (stops[i].n == 0 || stops[i].n > PROTO_MAX_STOP_BYTES || !utf8_valid(stops[i].at, stops[i].n))
			return SL_EINVAL;
		total += stops[i].n;
	}
	buf_init(&s->held, PROTO_MAX_STOP_BYTES + sizeof(s->part));
	if (n_stops == 0)
		return 0;
	uint8_t *room;
	s->stop_mem = sl_alloc(total);
	s->borders = sl_zalloc_n(total, sizeof(*s->borders));
	if (s->stop_mem == NULL || s->borders == NULL || buf_reserve(&s->held, s->held.max, &room) != 0) {
		text_stream_dispose(s);
		return SL_ENOMEM;
	}
	size_t at = 0;
	for (int i = 0; i < n_stops; i++) {
		memcpy(s->stop_mem + at, stops[i].at, stops[i].n);
		s->stops[i] = (struct proto_str){s->stop_mem + at, stops[i].n};
		find_borders(s->stops[i].at, s->stops[i].n, s->borders + at);
		at += stops[i].n;
	}
	s->n_stops = n_stops;
	return 0;
}

void text_stream_dispose(struct text_stream *s)
{
	buf_dispose(&s->held);
	sl_free(s->stop_mem);
	sl_free(s->borders);
	*s = (struct text_stream){0};
}

/* Advances every automaton by a byte. *hold: the longest beginning of a stop at the end of the
 * text. Returns the length of the longest stop that the byte completes, or 0. */
static size_t match_byte(struct text_stream *s, char c, size_t *hold)
{
	size_t longest = 0, done = 0;
	for (int i = 0; i < s->n_stops; i++) {
		const struct proto_str stop = s->stops[i];
		const uint16_t *border = s->borders + (stop.at - s->stop_mem);
		uint16_t k = s->matched[i];
		while (k > 0 && stop.at[k] != c)
			k = border[k - 1];
		if (stop.at[k] == c)
			k++;
		/* A completed stop ends everything or is passed over, so matched never stays at its
		 * length. */
		if (k == stop.n && s->passing)
			k = border[k - 1];
		else if (k == stop.n && k > done) {
			done = k;
			s->by = (uint8_t)i;
		}
		if (k > longest)
			longest = k;
		s->matched[i] = k;
	}
	*hold = longest;
	return done;
}

void text_stream_may_stop(struct text_stream *s, bool may) { s->passing = !may; }

static int release(struct text_stream *s, size_t keep, struct sl_buf *out)
{
	size_t n = s->held.len - keep;
	if (n == 0)
		return 0;
	int rc = buf_append(out, buf_data(&s->held), n);
	if (rc == 0)
		buf_consume(&s->held, n);
	return rc;
}

/* A whole character of valid UTF-8. */
static int add_char(struct text_stream *s, const uint8_t *c, size_t n, struct sl_buf *out)
{
	if (s->n_stops == 0)
		return buf_append(out, c, n);
	size_t hold = 0;
	for (size_t i = 0; i < n; i++) {
		int rc = buf_append(&s->held, c + i, 1);
		if (rc != 0)
			return rc;
		size_t done = match_byte(s, (char)c[i], &hold);
		if (done > 0) {
			s->stopped = true;
			rc = release(s, s->keeps ? 0 : done, out);
			buf_clear(&s->held, s->held.max);
			return rc;
		}
	}
	return release(s, hold, out);
}

int text_stream_push(struct text_stream *s, const char *bytes, size_t n, struct sl_buf *out, bool *stopped)
{
	for (size_t i = 0; i < n && !s->stopped; i++) {
		s->part[s->n_part++] = (uint8_t)bytes[i];
		/* After an invalid first byte the remaining bytes are decoded again. */
		while (s->n_part > 0 && !s->stopped) {
			uint32_t cp;
			int len = utf8_decode(s->part, s->n_part, &cp);
			if (len == 0)
				break;
			int rc = len > 0 ? add_char(s, s->part, (size_t)len, out)
					 : add_char(s, replacement, sizeof(replacement), out);
			if (rc != 0)
				return rc;
			int used = len > 0 ? len : 1;
			s->n_part = (uint8_t)(s->n_part - used);
			memmove(s->part, s->part + used, s->n_part);
		}
	}
	*stopped = s->stopped;
	return 0;
}

int text_stream_finish(struct text_stream *s, struct sl_buf *out)
{
	if (s->stopped)
		return 0;
	if (s->n_part > 0 && !s->whole) {
		s->n_part = 0;
		int rc = add_char(s, replacement, sizeof(replacement), out);
		if (rc != 0 || s->stopped)
			return rc;
	}
	return release(s, 0, out);
}
