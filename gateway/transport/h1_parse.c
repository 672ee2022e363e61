/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict parser of HTTP/1.1 request heads and chunked bodies.
 *
 * Request smuggling needs two parsers that disagree about where a message ends. So this one repairs nothing: lines end
 * in CR LF, a field name touches its colon, no line is folded, Content-Length is digits, occurs once and never beside
 * Transfer-Encoding, the only transfer coding is exactly "chunked", and chunk sizes are plain hexadecimal digits.
 * Anything else is 400 and ends the connection.
 */
#include "gateway/transport/h1_parse.h"

#include <string.h>

#include "base/err.h"
#include "gateway/transport/authority.h"
#include "gateway/transport/http.h"

enum {
	TARGET_MAX = 8192,
	LENGTH_DIGITS_MAX = 15, /* below 2^53 */
	CHUNK_DIGITS_MAX = 12,  /* hexadecimal */
};

enum h1_scan_result h1_scan_head(struct h1_scan *sc, const uint8_t *data, size_t n)
{
	for (; sc->pos < n; sc->pos++) {
		uint8_t b = data[sc->pos];
		if (sc->cr) {
			if (b != '\n')
				return H1_SCAN_BAD;
			sc->cr = false;
			/* RFC 9112 2.2 permits skipping an empty line before the request line; this parser does not. */
			if (sc->line_len == 0) {
				if (sc->lines == 0)
					return H1_SCAN_BAD;
				sc->pos++;
				return H1_SCAN_DONE;
			}
			sc->lines++;
			sc->line_len = 0;
		} else if (b == '\r') {
			sc->cr = true;
		} else if ((b < 0x20 && b != '\t') || b == 0x7f) {
			return H1_SCAN_BAD;
		} else {
			sc->line_len++;
		}
	}
	return H1_SCAN_MORE;
}

/* ---- characters ---- */

static bool is_digit(uint8_t b) { return b >= '0' && b <= '9'; }

static uint8_t lower(uint8_t b) { return b >= 'A' && b <= 'Z' ? (uint8_t)(b + 32) : b; }

static bool equals(const uint8_t *p, size_t n, const char *text)
{
	if (n != strlen(text))
		return false;
	for (size_t i = 0; i < n; i++)
		if (lower(p[i]) != (uint8_t)text[i])
			return false;
	return true;
}

static struct h1_span span(size_t off, size_t len) { return (struct h1_span){(uint32_t)off, (uint32_t)len}; }

/* ---- the request line ---- */

/* scheme "://" authority path. */
static int parse_absolute(const uint8_t *data, size_t off, size_t len, struct h1_head *out)
{
	const uint8_t *t = data + off;
	size_t scheme = len > 7 && equals(t, 7, "http://") ? 7 : len > 8 && equals(t, 8, "https://") ? 8 : 0;
	if (scheme == 0)
		return 400;
	size_t end = scheme;
	while (end < len && t[end] != '/' && t[end] != '?')
		end++;
	if (!authority_is_valid((const char *)t + scheme, end - scheme))
		return 400;
	out->authority = span(off + scheme, end - scheme);
	out->target = span(off + end, len - end);
	out->target_is_root = end == len || t[end] == '?';
	return 0;
}

static int parse_target(const uint8_t *data, size_t off, size_t len, struct h1_head *out)
{
	if (len == 0)
		return 400;
	if (len > TARGET_MAX)
		return 414;
	for (size_t i = 0; i < len; i++)
		if (data[off + i] <= 0x20 || data[off + i] >= 0x7f || data[off + i] == '#')
			return 400;
	out->target = span(off, len);
	const uint8_t *m = data + out->method.off;
	if (equals(m, out->method.len, "connect"))
		return 501;
	if (data[off] == '/')
		return 0;
	if (len == 1 && data[off] == '*')
		return out->method.len == 7 && memcmp(m, "OPTIONS", 7) == 0 ? 0 : 400;
	return parse_absolute(data, off, len, out);
}

/* Does the line not even resemble a request: "INVALID CONNECTION PREFACE"? */
static bool is_alien(const uint8_t *target, size_t n, const uint8_t *version, size_t n_version)
{
	if (n == 0 || target[0] == '/' || target[0] == '*' || memchr(target, ':', n) != NULL)
		return false;
	return n_version < 5 || memcmp(version, "HTTP/", 5) != 0;
}

/* line: without CR LF. */
static int parse_request_line(const uint8_t *data, size_t len, struct h1_head *out)
{
	size_t i = 0;
	while (i < len && http_is_token((char)data[i]))
		i++;
	if (i == 0 || i > H1_MAX_METHOD || i == len || data[i] != ' ')
		return 400;
	out->method = span(0, i);
	size_t target = i + 1, end = target;
	while (end < len && data[end] != ' ')
		end++;
	if (end == len)
		return 400;
	const uint8_t *v = data + end + 1;
	out->alien = is_alien(data + target, end - target, v, len - end - 1);
	if (len - end - 1 != 8)
		return 400;
	if (memcmp(v, "HTTP/", 5) != 0 || !is_digit(v[5]) || v[6] != '.' || !is_digit(v[7]))
		return 400;
	if (v[5] != '1' || v[7] > '1')
		return 505;
	out->minor = v[7] - '0';
	return parse_target(data, target, end - target, out);
}

/* ---- fields ---- */

struct seen {
	bool host, length, coding;
};

static int parse_length(const uint8_t *v, size_t n, struct h1_head *out)
{
	if (n == 0 || n > LENGTH_DIGITS_MAX)
		return 400;
	int64_t value = 0;
	for (size_t i = 0; i < n; i++) {
		if (!is_digit(v[i]))
			return 400;
		value = value * 10 + (v[i] - '0');
	}
	out->content_length = value;
	return 0;
}

/* Without the blanks around it. */
static struct h1_span trimmed(const uint8_t *data, size_t b, size_t e)
{
	while (b < e && (data[b] == ' ' || data[b] == '\t'))
		b++;
	while (e > b && (data[e - 1] == ' ' || data[e - 1] == '\t'))
		e--;
	return span(b, e - b);
}

/* Is `close` among the comma-separated options? */
static bool lists_close(const uint8_t *v, size_t n)
{
	size_t at = 0;
	while (at <= n) {
		size_t end = at;
		while (end < n && v[end] != ',')
			end++;
		struct h1_span option = trimmed(v, at, end);
		if (equals(v + option.off, option.len, "close"))
			return true;
		at = end + 1;
	}
	return false;
}

static int wrong(struct h1_head *out, const char *why)
{
	out->why = why;
	return 400;
}

static int note_field(const uint8_t *data, const struct h1_field *f, struct seen *seen, struct h1_head *out)
{
	const uint8_t *name = data + f->name.off, *v = data + f->value.off;
	size_t n_name = f->name.len, n = f->value.len;
	if (equals(name, n_name, "host")) {
		if (seen->host)
			return wrong(out, "The header field Host came more than once.");
		if (!authority_is_valid((const char *)v, n))
			return wrong(out, "The header field Host is malformed.");
		seen->host = true;
		if (out->authority.len == 0)
			out->authority = f->value;
	} else if (equals(name, n_name, "content-length")) {
		if (seen->length)
			return wrong(out, "The header field Content-Length came more than once.");
		seen->length = true;
		return parse_length(v, n, out) == 0 ? 0 : wrong(out, "The header field Content-Length is malformed.");
	} else if (equals(name, n_name, "transfer-encoding")) {
		if (seen->coding || !equals(v, n, "chunked"))
			return wrong(out, "The header field Transfer-Encoding is not exactly 'chunked'.");
		seen->coding = true;
		out->chunked = true;
	} else if (equals(name, n_name, "connection")) {
		out->close = out->close || lists_close(v, n);
	} else if (equals(name, n_name, "expect")) {
		if (!equals(v, n, "100-continue"))
			return 417;
		out->expect_continue = true;
	}
	return 0;
}

/* line [off, off + len) without CR LF. */
static int parse_field(const uint8_t *data, size_t off, size_t len, struct h1_field *f)
{
	size_t i = 0;
	while (i < len && http_is_token((char)data[off + i]))
		i++;
	/* A folded line fails here too: it begins with a blank. */
	if (i == 0 || i == len || data[off + i] != ':')
		return 400;
	f->name = span(off, i);
	f->value = trimmed(data, off + i + 1, off + len);
	for (size_t k = f->value.off; k < f->value.off + f->value.len; k++)
		if ((data[k] < 0x20 && data[k] != '\t') || data[k] == 0x7f)
			return 400;
	return 0;
}

/* The index of the CR LF that ends the line at off; n: there is none. */
static size_t line_end(const uint8_t *data, size_t off, size_t n)
{
	const uint8_t *cr = off < n ? memchr(data + off, '\r', n - off) : NULL;
	size_t at = cr != NULL ? (size_t)(cr - data) : n;
	return at + 1 < n && data[at + 1] == '\n' ? at : n;
}

int h1_parse_head(const uint8_t *data, size_t n, size_t max_fields, struct h1_head *out)
{
	struct seen seen = {0};
	out->method = out->target = out->authority = (struct h1_span){0};
	out->target_is_root = out->chunked = out->close = out->expect_continue = out->alien = false;
	out->minor = 0;
	out->content_length = -1;
	out->n_fields = 0;
	out->why = NULL;
	if (n > UINT32_MAX)
		return 431;
	size_t end = line_end(data, 0, n);
	if (end == n)
		return 400;
	int status = parse_request_line(data, end, out);
	if (status != 0)
		return status;
	for (size_t at = end + 2;; at = end + 2) {
		end = line_end(data, at, n);
		if (end == n)
			return 400;
		if (end == at)
			break;
		if (out->n_fields >= max_fields || out->n_fields >= H1_MAX_FIELDS)
			return 431;
		struct h1_field *f = &out->fields[out->n_fields];
		status = parse_field(data, at, end - at, f);
		if (status == 0)
			status = note_field(data, f, &seen, out);
		if (status != 0)
			return status;
		out->n_fields++;
	}
	if (end + 2 != n)
		return 400;
	if (seen.coding && (seen.length || out->minor == 0))
		return wrong(out, seen.length
				      ? "The header fields Content-Length and Transfer-Encoding exclude each other."
				      : "The header field Transfer-Encoding requires HTTP/1.1.");
	if (!seen.host && out->minor == 1)
		return wrong(out, "The header field Host is missing.");
	if (out->minor == 0) {
		out->close = true;
		out->expect_continue = false;
	}
	return 0;
}

struct h1_span h1_find_origin(const uint8_t *data, size_t n)
{
	struct h1_span found = {0};
	for (size_t at = 0; at < n;) {
		size_t end = line_end(data, at, n);
		struct h1_field f;
		if (end == n || end == at)
			break;
		if (parse_field(data, at, end - at, &f) == 0 && equals(data + f.name.off, f.name.len, "origin")) {
			if (found.len > 0)
				return (struct h1_span){0};
			found = f.value;
		}
		at = end + 2;
	}
	return found;
}

/* ---- chunked bodies ---- */

enum {
	CH_SIZE, /* hexadecimal digits */
	CH_EXT,  /* until CR */
	CH_SIZE_LF,
	CH_DATA,
	CH_DATA_CR,
	CH_DATA_LF,
	CH_TRAILER, /* lines until an empty one */
	CH_TRAILER_LF,
	CH_DONE,
};

static int hex(uint8_t b)
{
	if (is_digit(b))
		return b - '0';
	b = lower(b);
	return b >= 'a' && b <= 'f' ? b - 'a' + 10 : -1;
}

static int size_byte(struct h1_chunked *ch, uint8_t b)
{
	int d = hex(b);
	if (d >= 0) {
		if (++ch->digits > CHUNK_DIGITS_MAX)
			return SL_EPROTO;
		ch->left = ch->left * 16 + (uint64_t)d;
		return 0;
	}
	if (ch->digits == 0 || (b != '\r' && b != ';'))
		return SL_EPROTO;
	ch->state = b == ';' ? CH_EXT : CH_SIZE_LF;
	return 0;
}

/* Trailer fields are checked for syntax and dropped: no field in a trailer has a meaning here. */
static int trailer_byte(struct h1_chunked *ch, uint8_t b)
{
	if (b == '\r') {
		if (ch->line > 0 && !ch->colon)
			return SL_EPROTO;
		ch->state = CH_TRAILER_LF;
		return 0;
	}
	if (++ch->extra > H1_CHUNK_EXTRA_MAX)
		return SL_EPROTO;
	if (!ch->colon) {
		if (b == ':' && ch->line > 0)
			ch->colon = true;
		else if (!http_is_token((char)b))
			return SL_EPROTO;
	} else if ((b < 0x20 && b != '\t') || b == 0x7f) {
		return SL_EPROTO;
	}
	ch->line++;
	return 0;
}

/* A byte outside of chunk data. */
static int frame_byte(struct h1_chunked *ch, uint8_t b)
{
	switch (ch->state) {
	case CH_SIZE: return size_byte(ch, b);
	case CH_EXT:
		if (b == '\r') {
			ch->state = CH_SIZE_LF;
			return 0;
		}
		if ((b < 0x20 && b != '\t') || b == 0x7f || ++ch->extra > H1_CHUNK_EXTRA_MAX)
			return SL_EPROTO;
		return 0;
	case CH_SIZE_LF:
		if (b != '\n')
			return SL_EPROTO;
		ch->state = ch->left > 0 ? CH_DATA : CH_TRAILER;
		ch->line = 0;
		ch->colon = false;
		return 0;
	case CH_DATA_CR:
		if (b != '\r')
			return SL_EPROTO;
		ch->state = CH_DATA_LF;
		return 0;
	case CH_DATA_LF:
		if (b != '\n')
			return SL_EPROTO;
		ch->state = CH_SIZE;
		ch->digits = 0;
		return 0;
	case CH_TRAILER: return trailer_byte(ch, b);
	case CH_TRAILER_LF:
		if (b != '\n')
			return SL_EPROTO;
		ch->state = ch->line == 0 ? CH_DONE : CH_TRAILER;
		ch->line = 0;
		ch->colon = false;
		return 0;
	default: BUG("chunked reader in state %d", ch->state);
	}
}

int h1_chunked_feed(struct h1_chunked *ch, const uint8_t *data, size_t n, size_t *used, const uint8_t **body,
		    size_t *n_body, bool *done)
{
	size_t i = 0;
	*body = NULL;
	*n_body = 0;
	while (i < n && ch->state != CH_DONE && ch->state != CH_DATA) {
		int rc = frame_byte(ch, data[i]);
		if (rc != 0)
			return rc;
		i++;
	}
	if (ch->state == CH_DATA && i < n) {
		size_t take = n - i;
		if (take > ch->left)
			take = (size_t)ch->left;
		*body = data + i;
		*n_body = take;
		ch->left -= take;
		i += take;
		if (ch->left == 0)
			ch->state = CH_DATA_CR;
	}
	*used = i;
	*done = ch->state == CH_DONE;
	return 0;
}
