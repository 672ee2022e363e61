/* SPDX-License-Identifier: Apache-2.0
 *
 * Output of an HTTP/2 connection. The library makes control frames and heads. DATA frames are written here, straight
 * from a stream's source into the connection's output, and the library is updated afterwards, for many frames at once.
 * A frame through the library costs two lookups of the stream, two passes through its queue and a copy: a third of an
 * event's whole cost (tests/bench/results). RFC 9113 6.1 and 6.9 require only nine bytes and two subtractions.
 *
 *   written    bytes in the output, counted here (`unbooked`) against the windows of the stream and of the connection, so
 *              they never exceed what the peer allows
 *   booked     written bytes that the library has counted against its own windows. It reads so many bytes of a "source"
 *              (NGHTTP2_DATA_FLAG_NO_COPY) and assumes that it sends them; h2_out_send_data sends nothing. The last
 *              booking of a stream carries END_STREAM, after which the library closes the stream as usual
 *
 * Written bytes are booked before anything depends on them: before the library reads input (so its windows are exact
 * when it judges a WINDOW_UPDATE, SETTINGS or RST_STREAM), before we reset the stream, at the end of a stream, and
 * after at most BOOK_BYTES of a stream.
 *
 * Invariants: for each stream unbooked ≤ the library's window of the stream, and the sum over all streams ≤ the
 * connection's window. While a window is 0, nothing is written, not even an end, and only input shrinks a window. So a
 * booking never waits. A stream's source is pulled only after its head is out, which is when the library first reads
 * its "source".
 *
 * Streams alternate, one frame each, in the order in which they became ready.
 */
#include "gateway/transport/h2_priv.h"

#include <string.h>

#include "base/err.h"

enum {
	DATA_MOST = 16384,    /* payload of a frame; every peer must accept it (RFC 9113 4.2) */
	BOOK_BYTES = 8192,    /* below DATA_MOST, so that one booking covers it */
	EARLY_MOST = 8 << 20, /* never reached by the frames that the library queues */
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
	/* Unbooked bytes stay counted; a stream has some here only if the connection ends. */
	list_remove(&s->due);
	list_remove(&s->owed);
}

/* ---- booking ---- */

/* Makes the library call h2_out_source. */
static void request_booking(struct h2 *h, const struct http_stream *s)
{
	/* Fails, without harm, if the library is about to call it anyway. */
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
	return 0; /* the bytes are written already */
}

/* Is the last GOAWAY out, or will the next drain write it? No content follows it, and nothing is read. (While a stream
 * is open the library wants to read until then.) */
static bool is_over(const struct h2 *h) { return h->ended || !nghttp2_session_want_read(h->session); }

/* Appends the frames that the library has to send, and books what it asks for. */
static int drain(struct h2 *h, struct sl_buf *out, size_t room)
{
	while (out->len < room) {
		const uint8_t *data;
		/* After the last GOAWAY the library would go on with the open streams. */
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
		request_booking(h, list_entry(it, struct http_stream, owed));
	int rc = drain(h, &h->early, SIZE_MAX);
	/* Otherwise the library's windows would be wrong from here on. */
	return rc == 0 && !list_empty(&h->owed) && !is_over(h) ? SL_EPROTO : rc;
}

/* ---- windows ---- */

/* How many bytes of the stream may be written now. */
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
	/* All stuck streams may try again, after those that are due. */
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
	/* The library would send the reset before it books, and lose the count of the written bytes. */
	request_booking(h, s);
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

/* Writes one DATA frame if the stream has bytes. *book: call drain for a booking or a reset. 0 or SL_ENOMEM. */
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
		request_booking(h, s);
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
		/* Without a bound, so that a stream that has ended here ends in the library too. */
		if (rc == 0 && book)
			rc = drain(h, out, SIZE_MAX);
	}
	return rc;
}

size_t h2_out_waiting(const struct h2 *h) { return h->early.len; }
