/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http/http1_read.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"

enum { LINE_KEEP = 4096, SIZE_DIGITS = 15, LENGTH_DIGITS = 18 };

void http1_read_init(struct http1_read *h, size_t line_most)
{
	*h = (struct http1_read){.state = HTTP1_OVER};
	buf_init(&h->line, line_most);
}

void http1_read_dispose(struct http1_read *h) { buf_dispose(&h->line); }

void http1_read_begin(struct http1_read *h)
{
	buf_clear(&h->line, LINE_KEEP);
	h->state = HTTP1_HEAD;
	h->n_lines = 0;
	h->left = 0;
	h->status = 0;
	h->chunked = h->has_length = h->keeps = false;
}

/* ---- the head ---- */

static bool read_status(struct http1_read *h, const char *line, size_t n)
{
	if (n < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ')
		return false;
	int status = 0;
	for (int i = 9; i < 12; i++) {
		if (line[i] < '0' || line[i] > '9')
			return false;
		status = status * 10 + (line[i] - '0');
	}
	h->status = status;
	h->keeps = line[7] != '0';
	h->chunked = h->has_length = false;
	return status >= 100 && status != 101; /* nothing asks for another protocol */
}

static const char *value_of(const char *line, size_t n, const char *name, size_t *n_value)
{
	size_t k = strlen(name);
	if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0)
		return NULL;
	const char *from = line + k + 1, *to = line + n;
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
		to--;
	*n_value = (size_t)(to - from);
	return from;
}

static bool read_length(struct http1_read *h, const char *v, size_t n)
{
	uint64_t length = 0;
	if (n == 0 || n > LENGTH_DIGITS)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (v[i] < '0' || v[i] > '9')
			return false;
		length = length * 10 + (uint64_t)(v[i] - '0');
	}
	bool same = !h->has_length || length == h->left;
	h->has_length = true;
	h->left = length;
	return same;
}

/* A comma-separated list has this word. */
static bool lists(const char *v, size_t n, const char *word)
{
	size_t k = strlen(word);
	while (n > 0) {
		const char *comma = memchr(v, ',', n);
		size_t item = comma != NULL ? (size_t)(comma - v) : n, used = comma != NULL ? item + 1 : n;
		size_t from = 0;
		while (from < item && (v[from] == ' ' || v[from] == '\t'))
			from++;
		size_t to = item;
		while (to > from && (v[to - 1] == ' ' || v[to - 1] == '\t'))
			to--;
		if (to - from == k && strncasecmp(v + from, word, k) == 0)
			return true;
		v += used;
		n -= used;
	}
	return false;
}

/* A field that frames the body or says whether the connection stays. line: without its end. */
static bool read_field(struct http1_read *h, const char *line, size_t n)
{
	const char *v;
	size_t k;
	if ((v = value_of(line, n, "transfer-encoding", &k)) != NULL) {
		h->chunked = k == 7 && strncasecmp(v, "chunked", 7) == 0;
		return h->chunked; /* no other coding was asked for */
	}
	if ((v = value_of(line, n, "content-length", &k)) != NULL)
		return read_length(h, v, k);
	if ((v = value_of(line, n, "connection", &k)) != NULL)
		h->keeps = !lists(v, k, "close") && (h->keeps || lists(v, k, "keep-alive"));
	bool folded = line[0] == ' ' || line[0] == '\t';
	return folded || memchr(line, ':', n) != NULL;
}

/* The blank line. */
static void end_head(struct http1_read *h)
{
	h->n_lines = 0;
	if (h->status < 200) {
		h->status = 0;
		return;
	}
	if (h->status == 204 || h->status == 304) {
		h->state = HTTP1_OVER;
	} else if (h->chunked) {
		h->keeps = h->keeps && !h->has_length; /* both: another reader may see another end (RFC 9112 6.3) */
		h->state = HTTP1_CHUNK_SIZE;
	} else if (h->has_length) {
		h->state = h->left > 0 ? HTTP1_LENGTH : HTTP1_OVER;
	} else {
		h->keeps = false;
		h->state = HTTP1_UNTIL_CLOSE;
	}
}

/* whole: with its end; n: without it. */
static enum http1_result head_line(struct http1_read *h, const char *line, size_t whole, size_t n)
{
	bool ok = h->status == 0 ? read_status(h, line, n) : n == 0 || read_field(h, line, n);
	if (!ok)
		return HTTP1_READ_NO_HTTP;
	if (!h->on_line(h->ctx, line, whole))
		return HTTP1_READ_STOPPED;
	if (n == 0)
		end_head(h);
	return HTTP1_READ_MORE;
}

/* ---- chunks ---- */

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_size(struct http1_read *h, const char *line, size_t n)
{
	size_t i = 0;
	h->left = 0;
	for (int d; i < n && (d = digit_of(line[i])) >= 0; i++) {
		if (i == SIZE_DIGITS)
			return false;
		h->left = h->left << 4 | (uint64_t)d;
	}
	/* What follows is an extension. */
	return i > 0 && (i == n || line[i] == ';' || line[i] == ' ' || line[i] == '\t');
}

static enum http1_result size_line(struct http1_read *h, const char *line, size_t n)
{
	h->n_lines = 0;
	if (!read_size(h, line, n))
		return HTTP1_READ_BROKEN;
	h->state = h->left > 0 ? HTTP1_CHUNK_DATA : HTTP1_TRAILER;
	return HTTP1_READ_MORE;
}

/* ---- lines ---- */

static enum http1_result take_line(struct http1_read *h, const char *line, size_t whole)
{
	size_t n = whole - 1;
	if (n > 0 && line[n - 1] == '\r')
		n--;
	switch (h->state) {
	case HTTP1_HEAD: return head_line(h, line, whole, n);
	case HTTP1_CHUNK_SIZE: return size_line(h, line, n);
	case HTTP1_CHUNK_END:
		h->n_lines = 0;
		h->state = HTTP1_CHUNK_SIZE;
		return n == 0 ? HTTP1_READ_MORE : HTTP1_READ_BROKEN;
	case HTTP1_TRAILER:
		if (n == 0)
			h->state = HTTP1_OVER;
		return HTTP1_READ_MORE;
	case HTTP1_LENGTH:
	case HTTP1_UNTIL_CLOSE:
	case HTTP1_CHUNK_DATA:
	case HTTP1_OVER: break;
	}
	BUG("a line in state %d of a response", (int)h->state);
}

/* The next line, of which a beginning may have come before. */
static enum http1_result feed_line(struct http1_read *h, const char *bytes, size_t n, size_t *used)
{
	const char *end = memchr(bytes, '\n', n);
	size_t k = end != NULL ? (size_t)(end + 1 - bytes) : n;
	*used = k;
	h->n_lines += k;
	if (h->n_lines > h->line.max)
		return HTTP1_READ_LONG;
	if (end != NULL && h->line.len == 0)
		return take_line(h, bytes, k);
	if (buf_append(&h->line, bytes, k) != 0)
		return HTTP1_READ_LONG;
	if (end == NULL)
		return HTTP1_READ_MORE;
	enum http1_result r = take_line(h, (const char *)buf_data(&h->line), h->line.len);
	buf_clear(&h->line, LINE_KEEP);
	return r;
}

/* ---- the body ---- */

static enum http1_result feed_body(struct http1_read *h, const char *bytes, size_t n, size_t *used)
{
	bool bounded = h->state != HTTP1_UNTIL_CLOSE;
	size_t k = bounded && h->left < n ? (size_t)h->left : n;
	*used = k;
	if (!h->on_body(h->ctx, bytes, k))
		return HTTP1_READ_STOPPED;
	h->left -= bounded ? k : 0;
	if (bounded && h->left == 0)
		h->state = h->state == HTTP1_LENGTH ? HTTP1_OVER : HTTP1_CHUNK_END;
	return HTTP1_READ_MORE;
}

static bool in_body(const struct http1_read *h)
{
	return h->state == HTTP1_LENGTH || h->state == HTTP1_UNTIL_CLOSE || h->state == HTTP1_CHUNK_DATA;
}

enum http1_result http1_read_feed(struct http1_read *h, const char *bytes, size_t n, size_t *used)
{
	enum http1_result r = HTTP1_READ_MORE;
	*used = 0;
	while (r == HTTP1_READ_MORE && *used < n && h->state != HTTP1_OVER) {
		size_t k;
		r = in_body(h) ? feed_body(h, bytes + *used, n - *used, &k)
			       : feed_line(h, bytes + *used, n - *used, &k);
		*used += k;
	}
	return r == HTTP1_READ_MORE && h->state == HTTP1_OVER ? HTTP1_READ_DONE : r;
}

bool http1_read_closed(struct http1_read *h)
{
	if (h->state == HTTP1_UNTIL_CLOSE)
		h->state = HTTP1_OVER;
	return h->state == HTTP1_OVER;
}

bool http1_read_keeps(const struct http1_read *h) { return h->state == HTTP1_OVER && h->keeps; }
