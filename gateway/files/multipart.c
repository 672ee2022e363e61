/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/files/multipart.h"

#include <string.h>
#include <strings.h>

/* Bytes from at to end. */
struct span {
	const char *at, *end;
};

static bool is_token(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static void skip_blanks(struct span *s)
{
	while (s->at < s->end && is_blank(*s->at))
		s->at++;
}

static bool take(struct span *s, char c)
{
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* ---- parameters: `; name=token` or `; name="quoted"` ---- */

struct parameter {
	struct span name;
	char value[MULTIPART_FILENAME_BYTES];
	bool fits;
};

/* A quoted string; browsers write `"` as %22, others as \". Another backslash is one: it may be of a Windows path. */
static int take_quoted(struct span *s, struct parameter *p)
{
	size_t n = 0;
	while (s->at < s->end && *s->at != '"') {
		if (*s->at == '\\' && s->end - s->at > 1 && (s->at[1] == '"' || s->at[1] == '\\'))
			s->at++;
		if (*s->at == '\0')
			return SL_EINVAL;
		p->fits = p->fits && n + 1 < sizeof p->value;
		if (p->fits)
			p->value[n++] = *s->at;
		s->at++;
	}
	p->value[n] = '\0';
	return take(s, '"') ? 0 : SL_EINVAL;
}

static int take_token(struct span *s, struct parameter *p)
{
	const char *from = s->at;
	while (s->at < s->end && is_token(*s->at))
		s->at++;
	size_t n = (size_t)(s->at - from);
	p->fits = n + 1 < sizeof p->value;
	if (p->fits)
		memcpy(p->value, from, n);
	p->value[p->fits ? n : 0] = '\0';
	return n > 0 ? 0 : SL_EINVAL;
}

/* 1, 0: no more; SL_EINVAL. */
static int take_parameter(struct span *s, struct parameter *p)
{
	skip_blanks(s);
	if (s->at == s->end)
		return 0;
	if (!take(s, ';'))
		return SL_EINVAL;
	skip_blanks(s);
	if (s->at == s->end)
		return 0;
	p->name.at = s->at;
	while (s->at < s->end && is_token(*s->at))
		s->at++;
	p->name.end = s->at;
	p->fits = true;
	if (p->name.at == p->name.end || !take(s, '='))
		return SL_EINVAL;
	int rc = take(s, '"') ? take_quoted(s, p) : take_token(s, p);
	return rc == 0 ? 1 : rc;
}

static bool is_name(struct span s, const char *name)
{
	size_t n = strlen(name);
	return (size_t)(s.end - s.at) == n && strncasecmp(s.at, name, n) == 0;
}

/* ---- the boundary ---- */

/* Its delimiter. bchars of RFC 2046 5.1.1 in quotes, else those that are of a token. */
static int set_boundary(struct multipart *m, const char *value)
{
	size_t n = strlen(value);
	if (n == 0 || n >= MULTIPART_BOUNDARY_BYTES || value[n - 1] == ' ')
		return SL_EINVAL;
	for (size_t i = 0; i < n; i++)
		if (!is_token(value[i]) && strchr("(),/:=? ", value[i]) == NULL)
			return SL_EINVAL;
	memcpy(m->delimiter, "\r\n--", 4);
	memcpy(m->delimiter + 4, value, n);
	m->n_delimiter = n + 4;
	return 0;
}

static int find_boundary(struct multipart *m, const char *content_type)
{
	struct span s = {content_type, content_type + strlen(content_type)};
	struct parameter p;
	bool found = false;
	int rc;
	s.at += strcspn(s.at, "; \t");
	while ((rc = take_parameter(&s, &p)) > 0) {
		if (!is_name(p.name, "boundary"))
			continue;
		if (found || !p.fits || set_boundary(m, p.value) != 0)
			return SL_EINVAL;
		found = true;
	}
	return rc == 0 && found ? 0 : SL_EINVAL;
}

/* ---- delimiters ---- */

/* What follows a delimiter: 1: another part, whose head s->at then is; 0: `--`, the end; SL_EINVAL. */
static int take_delimiter_end(struct span *s)
{
	if (s->end - s->at >= 2 && s->at[0] == '-' && s->at[1] == '-')
		return 0;
	skip_blanks(s);
	return take(s, '\r') && take(s, '\n') ? 1 : SL_EINVAL;
}

int multipart_init(struct multipart *m, const char *content_type, const char *bytes, size_t n, struct sl_err *err)
{
	*m = (struct multipart){.at = bytes, .end = bytes + n};
	if (find_boundary(m, content_type) != 0)
		return sl_errf(err, SL_EINVAL, "its Content-Type has no boundary, or a malformed one");
	if (n >= 2 && memcmp(bytes, "\r\n", 2) == 0)
		m->at += 2;
	size_t first = m->n_delimiter - 2;
	if ((size_t)(m->end - m->at) < first || memcmp(m->at, m->delimiter + 2, first) != 0)
		return sl_errf(err, SL_EINVAL, "it does not begin with its boundary");
	m->at += first;
	return 0;
}

/* ---- the head of a part ---- */

static int copy(char *to, size_t room, const struct parameter *p)
{
	size_t n = strlen(p->value);
	if (!p->fits || n >= room)
		return SL_EINVAL;
	memcpy(to, p->value, n + 1);
	return 0;
}

/* `form-data; name="…"; filename="…"`. filename*, which RFC 7578 forbids, counts as unknown. */
static int read_disposition(struct span s, struct multipart_part *out, struct sl_err *err)
{
	struct parameter p;
	const char *from = s.at;
	bool named = false;
	int rc;
	while (s.at < s.end && is_token(*s.at))
		s.at++;
	if (!is_name((struct span){from, s.at}, "form-data"))
		return sl_errf(err, SL_EINVAL, "a part is not form-data");
	while ((rc = take_parameter(&s, &p)) > 0) {
		if (is_name(p.name, "name")) {
			if (named || copy(out->name, sizeof out->name, &p) != 0)
				return sl_errf(err, SL_EINVAL, "a part has two names, or one of more than %d bytes",
					       MULTIPART_NAME_BYTES - 1);
			named = true;
		} else if (is_name(p.name, "filename")) {
			if (out->has_filename || copy(out->filename, sizeof out->filename, &p) != 0)
				return sl_errf(err, SL_EINVAL,
					       "a part has two file names, or one of more than %d bytes",
					       MULTIPART_FILENAME_BYTES - 1);
			out->has_filename = true;
		}
	}
	if (rc != 0)
		return sl_errf(err, SL_EINVAL, "the Content-Disposition of a part is malformed");
	return named && out->name[0] != '\0' ? 0 : sl_errf(err, SL_EINVAL, "a part has no name");
}

static int read_header(struct span line, struct multipart_part *out, struct sl_err *err)
{
	struct span name = {line.at, line.at}, value;
	while (name.end < line.end && is_token(*name.end))
		name.end++;
	value = (struct span){name.end, line.end};
	if (name.at == name.end || !take(&value, ':'))
		return sl_errf(err, SL_EINVAL, "a header of a part is malformed");
	skip_blanks(&value);
	while (value.end > value.at && is_blank(value.end[-1]))
		value.end--;
	if (is_name(name, "content-disposition")) {
		if (out->name[0] != '\0')
			return sl_errf(err, SL_EINVAL, "a part has two Content-Dispositions");
		return read_disposition(value, out, err);
	}
	if (is_name(name, "content-type")) {
		out->type = value.at;
		out->n_type = (size_t)(value.end - value.at);
	}
	if (is_name(name, "content-transfer-encoding") && !is_name(value, "binary") && !is_name(value, "8bit") &&
	    !is_name(value, "7bit"))
		return sl_errf(err, SL_EINVAL, "a part has a Content-Transfer-Encoding");
	return 0;
}

/* The next line without its break. False: it is too long, or unfinished. */
static bool take_line(struct multipart *m, struct span *out)
{
	size_t left = (size_t)(m->end - m->at), room = left < MULTIPART_LINE_BYTES ? left : MULTIPART_LINE_BYTES;
	const char *end = memmem(m->at, room, "\r\n", 2);
	if (end == NULL)
		return false;
	*out = (struct span){m->at, end};
	m->at = end + 2;
	return true;
}

static int read_head(struct multipart *m, struct multipart_part *out, struct sl_err *err)
{
	struct span line;
	int rc = 0;
	for (unsigned i = 0; rc == 0; i++) {
		if (!take_line(m, &line))
			return sl_errf(err, SL_EINVAL, "a header of a part is unfinished, or has more than %d bytes",
				       MULTIPART_LINE_BYTES - 2);
		if (line.at == line.end)
			break;
		if (i == MULTIPART_MOST_HEADERS)
			return sl_errf(err, SL_EINVAL, "a part has more than %d headers", MULTIPART_MOST_HEADERS);
		rc = read_header(line, out, err);
	}
	if (rc == 0 && out->name[0] == '\0')
		rc = sl_errf(err, SL_EINVAL, "a part has no Content-Disposition");
	return rc;
}

int multipart_next(struct multipart *m, struct multipart_part *out, struct sl_err *err)
{
	struct span s = {m->at, m->end};
	*out = (struct multipart_part){0};
	int rc = take_delimiter_end(&s);
	if (rc < 0)
		return sl_errf(err, SL_EINVAL, "it is cut, or a boundary is no line of its own");
	if (rc == 0)
		return 0;
	if (m->n_parts++ == MULTIPART_MOST_PARTS)
		return sl_errf(err, SL_EINVAL, "it has more than %d parts", MULTIPART_MOST_PARTS);
	m->at = s.at;
	if ((rc = read_head(m, out, err)) != 0)
		return rc;
	/* An empty part's delimiter begins with the line break that ends the head. */
	out->bytes = m->at;
	const char *from = m->at - 2, *end = memmem(from, (size_t)(m->end - from), m->delimiter, m->n_delimiter);
	if (end == NULL)
		return sl_errf(err, SL_EINVAL, "it is cut: no boundary ends its last part");
	out->n = end > out->bytes ? (size_t)(end - out->bytes) : 0;
	m->at = end + m->n_delimiter;
	return 1;
}
