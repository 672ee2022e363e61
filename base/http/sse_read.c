/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http/sse_read.h"

#include <string.h>

void sse_read_init(struct sse_read *r, size_t most, void (*on_event)(void *ctx, const char *data, size_t n), void *ctx)
{
	*r = (struct sse_read){.on_event = on_event, .ctx = ctx};
	buf_init(&r->line, most);
	buf_init(&r->data, most);
}

void sse_read_dispose(struct sse_read *r)
{
	buf_dispose(&r->line);
	buf_dispose(&r->data);
}

/* The data in a line that has some; NULL: another field. */
static const char *data_of(const char *line, size_t n, size_t *n_data)
{
	if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':'))
		return NULL;
	size_t at = n > 4 ? 5 : 4;
	if (at < n && line[at] == ' ')
		at++;
	*n_data = n - at;
	return line + at;
}

/* An event of one line, followed by the blank line at once: most are. Its data needs no copy. */
static bool take_whole(struct sse_read *r, const char *line, size_t n, const char *behind, const char *end)
{
	size_t n_data;
	const char *data = !r->has_data && behind < end && *behind == '\n' ? data_of(line, n, &n_data) : NULL;
	if (data == NULL || n_data > r->data.max)
		return false;
	r->on_event(r->ctx, data, n_data);
	return true;
}

static int take_line(struct sse_read *r, const char *line, size_t n)
{
	if (n == 0) {
		if (r->has_data)
			r->on_event(r->ctx, r->data.len > 0 ? (const char *)buf_data(&r->data) : "", r->data.len);
		r->has_data = false;
		buf_clear(&r->data, SIZE_MAX);
		return 0;
	}
	size_t n_data;
	const char *data = data_of(line, n, &n_data);
	if (data == NULL)
		return 0;
	int rc = r->has_data ? buf_append(&r->data, "\n", 1) : 0;
	r->has_data = true;
	return rc == 0 ? buf_append(&r->data, data, n_data) : rc;
}

/* The first CR or LF; NULL: none. */
static const char *line_end(const char *at, size_t n)
{
	const char *lf = memchr(at, '\n', n);
	const char *cr = memchr(at, '\r', lf != NULL ? (size_t)(lf - at) : n);
	return cr != NULL ? cr : lf;
}

int sse_read_feed(struct sse_read *r, const void *bytes, size_t n)
{
	const char *at = bytes, *end = at + n;
	int rc = 0;
	while (rc == 0 && at < end) {
		if (r->after_cr && *at == '\n')
			at++;
		r->after_cr = false;
		const char *stop = line_end(at, (size_t)(end - at));
		if (stop == NULL)
			return buf_append(&r->line, at, (size_t)(end - at));
		if (r->line.len > 0) {
			rc = buf_append(&r->line, at, (size_t)(stop - at));
			if (rc == 0)
				rc = take_line(r, (const char *)buf_data(&r->line), r->line.len);
			buf_clear(&r->line, SIZE_MAX);
		} else if (*stop == '\n' && take_whole(r, at, (size_t)(stop - at), stop + 1, end)) {
			stop++;
		} else {
			rc = take_line(r, at, (size_t)(stop - at));
		}
		r->after_cr = *stop == '\r';
		at = stop + 1;
	}
	return rc;
}
