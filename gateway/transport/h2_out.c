/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes out on an HTTP/2 connection. Control frames and heads are the library's; DATA frames are written here,
 * straight from a stream's source into the connection's output, and the library is updated afterwards, for many at
 * once: a frame through it costs two lookups of the stream, two passes through its queue and a copy, a third of what an
 * event costs in all (tests/bench/results), where nine bytes and two subtractions are what RFC 9113 6.1 and 6.9 ask
 * for.
 *
 *   written    counted against the stream's window and the connection's here (`unbooked`), so never over what the peer gave
 *   booked     the library reads so many bytes of a "source" (NGHTTP2_DATA_FLAG_NO_COPY), thinks that it sends them, and
 *              counts them against its own windows; h2_out_send_data sends nothing. With the last booking of a stream it
 *              learns of END_STREAM and closes the stream as it would have done by itself
 *
 * What has been written is booked before anything else can depend on it: before the library reads a byte from the peer
 * (so its windows are exact whenever a WINDOW_UPDATE, SETTINGS or RST_STREAM is judged), before a reset of ours, at the
 * end of a stream, and at the latest after BOOK_BYTES of a stream. So it knows of everything but what was written since
 * the peer was last heard.
 *
 * Invariants: of each stream unbooked ≤ the library's window of it, and the sum of all ≤ the connection's: nothing, not even
 * an end, is written while one of them is used up, and only input moves them down. So a booking never waits. A stream
 * is asked for content only when its head is out: that is when the library first asks its "source".
 *
 * Streams take turns, a frame each, in the order in which they had something.
 */
#include "gateway/transport/h2_priv.h"

#include <string.h>

#include "base/err.h"

enum {
	DATA_MOST = 16384,    /* of a frame; every peer takes that much (RFC 9113 4.2) */
	BOOK_BYTES = 8192,    /* below DATA_MOST, so one booking takes it all */
	EARLY_MOST = 8 << 20, /* never reached: what the library held when it was last asked */
};

void h2_out_init(struct h2 *h)
{
	list_init(&h->due);
	list_init(&h->stuck);
	list_init(&h->owed);
	buf_init(&h->early, EARLY_MOST);
}

void h2_out_dispose(struct h2 *h) { buf_dispose(&h->early); }

void h2_out_open(struct http_stream *s)
{
	list_init(&s->due);
	list_init(&s->owed);
}

void h2_out_closed(struct http_stream *s)
{
	/* What was not booked of it (only where the connection ends) stays counted. */
	list_remove(&s->due);
	list_remove(&s->owed);
}

/* ---- booking ---- */

/* The library will ask h2_out_source. */
static void ask_to_book(struct h2 *h, const struct http_stream *s)
{
	/* Refused where it is going to ask by itself. */
	(void)nghttp2_session_resume_data(h->session, s->id);
}

ssize_t h2_out_source(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
		      nghttp2_data_source *source, void *user)
{
	(void)session, (void)id, (void)buf;
	struct h2 *h = user;
	struct http_stream *s = source->ptr;
	if (!s->head_sent) {
		s->head_sent = true;
		s->epoch = h->epoch - 1;
		list_push_back(&h->due, &s->due);
		return NGHTTP2_ERR_DEFERRED;
	}
	if (s->unbooked == 0 && !s->end_due)
		return NGHTTP2_ERR_DEFERRED;
	uint32_t n = s->unbooked < room ? s->unbooked : (uint32_t)room;
	s->unbooked -= n;
	h->unbooked -= n;
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (s->unbooked == 0) {
		list_remove(&s->owed);
		if (s->end_due)
			*flags |= NGHTTP2_DATA_FLAG_EOF;
	}
	return (ssize_t)n;
}

int h2_out_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
		     nghttp2_data_source *source, void *user)
{
	(void)session, (void)frame, (void)head, (void)n, (void)source, (void)user;
	return 0; /* it has gone out */
}

/* The last GOAWAY is out, or will be by the next drain: no content goes out behind it, nothing is read. (With a stream
 * open the library wants to read until then.) */
static bool is_over(const struct h2 *h) { return h->ended || !nghttp2_session_want_read(h->session); }

/* What the library has to send, and what it is to book. */
static int drain(struct h2 *h, struct sl_buf *out, size_t room)
{
	while (out->len < room) {
		const uint8_t *data;
		/* After the last GOAWAY the library would continue with the open streams. */
		if (h->ended && !nghttp2_session_want_write(h->session))
			break;
		ssize_t n = nghttp2_session_mem_send(h->session, &data);
		if (n < 0)
			return n == NGHTTP2_ERR_NOMEM ? SL_ENOMEM : SL_EPROTO;
		if (n == 0)
			break;
		int rc = buf_append(out, data, (size_t)n);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int h2_out_book(struct h2 *h)
{
	if (list_empty(&h->owed) || is_over(h))
		return 0;
	list_each(it, &h->owed)
		ask_to_book(h, list_entry(it, struct http_stream, owed));
	int rc = drain(h, &h->early, SIZE_MAX);
	/* A window of the library's would be wrong from here on. */
	return rc == 0 && !list_empty(&h->owed) && !is_over(h) ? SL_EPROTO : rc;
}

/* ---- windows ---- */

/* How much of the stream may go out now. */
static int32_t window_of(struct h2 *h, struct http_stream *s)
{
	if (s->epoch != h->epoch) {
		s->epoch = h->epoch;
		s->window = nghttp2_session_get_stream_remote_window_size(h->session, s->id) - (int32_t)s->unbooked;
	}
	int32_t all = nghttp2_session_get_remote_window_size(h->session) - (int32_t)h->unbooked;
	return s->window < all ? s->window : all;
}

void h2_out_window(struct h2 *h, struct http_stream *s)
{
	if (s != NULL) {
		s->epoch = h->epoch - 1;
		if (s->head_sent && !s->end_due)
			h2_out_ready(h, s);
		return;
	}
	h->epoch++;
	/* All stuck streams may try, after those that are due. */
	list_move_all(&h->stuck, &h->due);
}

/* ---- content ---- */

void h2_out_ready(struct h2 *h, struct http_stream *s)
{
	list_remove(&s->due);
	list_push_back(&h->due, &s->due);
}

static void submit_reset(struct h2 *h, const struct http_stream *s)
{
	nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id,
				  s->timed_out ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
}

void h2_out_reset(struct h2 *h, struct http_stream *s)
{
	if (s->unbooked == 0 && !s->end_due) {
		submit_reset(h, s);
		return;
	}
	/* The library sends a reset before it asks for anything, and would forget what the stream has sent. */
	ask_to_book(h, s);
	h2_out_ready(h, s);
}

static void put_frame_head(uint8_t at[H2_FRAME_HEAD], size_t n, bool end, int32_t id)
{
	const uint8_t head[H2_FRAME_HEAD] = {(uint8_t)(n >> 16),
					     (uint8_t)(n >> 8),
					     (uint8_t)n,
					     NGHTTP2_DATA,
					     end ? NGHTTP2_FLAG_END_STREAM : 0,
					     (uint8_t)(id >> 24),
					     (uint8_t)(id >> 16),
					     (uint8_t)(id >> 8),
					     (uint8_t)id};
	memcpy(at, head, sizeof head);
}

/* One DATA frame, if the stream has something. *book: the library is to be asked. 0 or SL_ENOMEM. */
static int write_data(struct h2 *h, struct http_stream *s, struct sl_buf *out, bool *book)
{
	if (s->reset_wanted || s->timed_out) {
		submit_reset(h, s);
		*book = true;
		return 0;
	}
	int32_t window = window_of(h, s);
	if (window <= 0) {
		list_push_back(&h->stuck, &s->due);
		return 0;
	}
	size_t most = window < DATA_MOST ? (size_t)window : DATA_MOST;
	uint8_t *at;
	bool end;
	int rc = buf_reserve(out, H2_FRAME_HEAD + most, &at);
	if (rc != 0)
		return rc;
	ssize_t n = stream_pull(s, at + H2_FRAME_HEAD, most, &end);
	if (n < 0) {
		s->reset_wanted = true;
		h2_out_reset(h, s);
		*book = true;
		return 0;
	}
	if (n == 0 && !end)
		return 0;
	put_frame_head(at, (size_t)n, end, s->id);
	buf_commit(out, H2_FRAME_HEAD + (size_t)n);
	h2_guard_data_sent(&h->guard);
	s->window -= (int32_t)n;
	s->unbooked += (uint32_t)n;
	h->unbooked += (uint32_t)n;
	if (list_empty(&s->owed))
		list_push_back(&h->owed, &s->owed);
	s->end_due = end;
	if (end || s->unbooked >= BOOK_BYTES) {
		ask_to_book(h, s);
		*book = true;
	}
	if (end)
		return 0;
	if (s->dry)
		s->waiting = true;
	else
		h2_out_ready(h, s);
	return 0;
}

int h2_out_fill(struct h2 *h, struct sl_buf *out, size_t room)
{
	int rc = 0;
	if (h->early.len > 0) {
		rc = buf_append(out, buf_data(&h->early), h->early.len);
		buf_clear(&h->early, 0);
	}
	if (rc == 0)
		rc = drain(h, out, room);
	while (rc == 0 && out->len < room && !list_empty(&h->due) && !is_over(h)) {
		bool book = false;
		while (rc == 0 && out->len < room && !list_empty(&h->due)) {
			struct http_stream *s = list_entry(h->due.next, struct http_stream, due);
			list_remove(&s->due);
			rc = write_data(h, s, out, &book);
		}
		/* All of it: a stream that has ended here has ended there, too. */
		if (rc == 0 && book)
			rc = drain(h, out, SIZE_MAX);
	}
	return rc;
}

size_t h2_out_waiting(const struct h2 *h) { return h->early.len; }
