/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/http1_reply.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

void http1_reply_init(struct http1_reply *r)
{
	r->state = HTTP1_STATUS_LINE;
	r->status = 0;
	r->keep = true;
	r->chunked = r->has_length = false;
	r->left = 0;
	r->n_line = 0;
}

/* A number that is followed by nothing, or by a chunk extension. */
static int parse_number(const char *text, int base, uint64_t *out)
{
	char *end;
	if (!isxdigit((unsigned char)text[0]))
		return SL_EPROTO;
	*out = strtoull(text, &end, base);
	return *out > INT64_MAX || (*end != '\0' && *end != ';' && *end != ' ') ? SL_EPROTO : 0;
}

static int take_status(struct http1_reply *r)
{
	if (strncmp(r->line, "HTTP/1.", 7) != 0 || strlen(r->line) < 12 || r->line[8] != ' ')
		return SL_EPROTO;
	r->keep = r->line[7] == '1';
	r->status = 0;
	for (int i = 9; i < 12; i++) {
		if (!isdigit((unsigned char)r->line[i]))
			return SL_EPROTO;
		r->status = r->status * 10 + (r->line[i] - '0');
	}
	r->state = HTTP1_FIELDS;
	return 0;
}

static int take_field(struct http1_reply *r)
{
	char *colon = strchr(r->line, ':');
	if (colon == NULL)
		return SL_EPROTO;
	*colon = '\0';
	const char *value = colon + 1 + strspn(colon + 1, " \t");
	if (strcasecmp(r->line, "content-length") == 0) {
		r->has_length = true;
		return parse_number(value, 10, &r->left);
	}
	if (strcasecmp(r->line, "transfer-encoding") == 0)
		r->chunked = strcasecmp(value, "chunked") == 0;
	if (strcasecmp(r->line, "connection") == 0 && strcasecmp(value, "close") == 0)
		r->keep = false;
	return 0;
}

static void head_done(struct http1_reply *r, const struct http1_events *ev, void *ctx)
{
	if (r->status < 200) { /* 1xx: the final reply follows */
		http1_reply_init(r);
		return;
	}
	if (r->chunked) {
		r->state = HTTP1_CHUNK_SIZE;
	} else if (r->has_length || r->status == 204 || r->status == 304) {
		r->state = r->left > 0 ? HTTP1_BODY : HTTP1_DONE;
	} else {
		r->state = HTTP1_BODY_TO_END;
		r->keep = false;
	}
	ev->on_head(ctx, r->status);
}

static int take_line(struct http1_reply *r, const struct http1_events *ev, void *ctx)
{
	int rc = 0;
	switch (r->state) {
	case HTTP1_STATUS_LINE: return take_status(r);
	case HTTP1_FIELDS:
		if (r->line[0] != '\0')
			return take_field(r);
		head_done(r, ev, ctx);
		return 0;
	case HTTP1_CHUNK_SIZE:
		rc = parse_number(r->line, 16, &r->left);
		r->state = r->left > 0 ? HTTP1_CHUNK : HTTP1_TRAILER;
		return rc;
	case HTTP1_CHUNK_END: r->state = HTTP1_CHUNK_SIZE; return r->line[0] == '\0' ? 0 : SL_EPROTO;
	case HTTP1_TRAILER:
		if (r->line[0] == '\0')
			r->state = HTTP1_DONE;
		return 0;
	case HTTP1_BODY:
	case HTTP1_BODY_TO_END:
	case HTTP1_CHUNK:
	case HTTP1_DONE: break;
	}
	return SL_EPROTO;
}

/* Appends bytes up to the end of the line; *whole: the end was among them. */
static int collect(struct http1_reply *r, const uint8_t *bytes, size_t n, size_t *used, bool *whole)
{
	const uint8_t *lf = memchr(bytes, '\n', n);
	size_t take = lf != NULL ? (size_t)(lf - bytes) : n;
	*whole = lf != NULL;
	*used = take + (*whole ? 1 : 0);
	if (r->n_line + take >= sizeof r->line)
		return SL_ELIMIT;
	memcpy(r->line + r->n_line, bytes, take);
	r->n_line += take;
	if (*whole) {
		if (r->n_line > 0 && r->line[r->n_line - 1] == '\r')
			r->n_line--;
		r->line[r->n_line] = '\0';
		r->n_line = 0;
	}
	return 0;
}

int http1_reply_feed(struct http1_reply *r, const struct http1_events *ev, void *ctx, const uint8_t *bytes, size_t n,
		     size_t *used)
{
	size_t at = 0;
	int rc = 0;
	while (rc == 0 && at < n && r->state != HTTP1_DONE) {
		if (r->state == HTTP1_BODY || r->state == HTTP1_CHUNK || r->state == HTTP1_BODY_TO_END) {
			bool bounded = r->state != HTTP1_BODY_TO_END;
			size_t take = bounded && r->left < n - at ? (size_t)r->left : n - at;
			ev->on_body(ctx, bytes + at, take);
			at += take;
			r->left -= bounded ? take : 0;
			if (bounded && r->left == 0)
				r->state = r->state == HTTP1_BODY ? HTTP1_DONE : HTTP1_CHUNK_END;
			continue;
		}
		size_t took;
		bool whole;
		rc = collect(r, bytes + at, n - at, &took, &whole);
		at += took;
		if (rc == 0 && whole)
			rc = take_line(r, ev, ctx);
	}
	*used = at;
	return rc;
}

bool http1_reply_eof(struct http1_reply *r)
{
	if (r->state == HTTP1_BODY_TO_END)
		r->state = HTTP1_DONE;
	return r->state == HTTP1_DONE;
}
