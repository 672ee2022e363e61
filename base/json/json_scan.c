/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_scan.h"

#include <string.h>

#include "base/utf8.h"

enum { MAX_DEPTH = 64 };

void json_scan_init(struct json_scan *s, const char *text, size_t n)
{
	*s = (struct json_scan){.text = text, .at = text, .end = text + n};
}

static bool fault(struct json_scan *s, const char *what)
{
	if (s->bad == NULL)
		s->bad = what;
	return false;
}

static void blanks(struct json_scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
		s->at++;
}

char json_scan_peek(struct json_scan *s)
{
	blanks(s);
	return s->bad == NULL && s->at < s->end ? *s->at : '\0';
}

static bool take(struct json_scan *s, char c)
{
	if (json_scan_peek(s) != c)
		return false;
	s->at++;
	return true;
}

/* After an opening bracket an element or the end, else a comma or the end. */
static bool more(struct json_scan *s, char closing)
{
	bool first = s->fresh;
	s->fresh = false;
	if (take(s, closing))
		return false;
	if (!first && !take(s, ','))
		return fault(s, closing == '}' ? "a comma or } is missing" : "a comma or ] is missing");
	return s->bad == NULL;
}

bool json_scan_object(struct json_scan *s)
{
	if (!take(s, '{'))
		return fault(s, "not an object");
	s->fresh = true;
	return true;
}

bool json_scan_key(struct json_scan *s, struct proto_str *raw)
{
	if (s->bad != NULL || !more(s, '}') || !json_scan_string(s, raw))
		return false;
	return take(s, ':') || fault(s, "a colon is missing");
}

bool json_scan_array(struct json_scan *s)
{
	if (!take(s, '['))
		return fault(s, "not an array");
	s->fresh = true;
	return true;
}

bool json_scan_item(struct json_scan *s) { return s->bad == NULL && more(s, ']'); }

bool json_scan_string(struct json_scan *s, struct proto_str *raw)
{
	if (!take(s, '"'))
		return fault(s, "not a string");
	const char *begin = s->at;
	for (; s->at < s->end; s->at++) {
		if ((unsigned char)*s->at < ' ')
			return fault(s, "a control character in a string");
		if (*s->at == '"') {
			*raw = (struct proto_str){.at = begin, .n = (size_t)(s->at - begin)};
			s->at++;
			s->fresh = false;
			return true;
		}
		if (*s->at == '\\' && s->at + 1 < s->end)
			s->at++;
	}
	return fault(s, "a string does not end");
}

bool json_scan_uint(struct json_scan *s, uint64_t *out)
{
	char c = json_scan_peek(s);
	uint64_t v = 0;
	if (c < '0' || c > '9')
		return fault(s, "not a whole number");
	for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
		if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*s->at - '0'), &v))
			return fault(s, "a number beyond 2^64");
	if (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E'))
		return fault(s, "not a whole number");
	s->fresh = false;
	*out = v;
	return true;
}

/* Takes a byte that is one of these. */
static bool take_any(struct json_scan *s, const char *these)
{
	bool is = s->at < s->end && *s->at != '\0' && strchr(these, *s->at) != NULL;
	s->at += is;
	return is;
}

static bool digits(struct json_scan *s)
{
	const char *begin = s->at;
	while (take_any(s, "0123456789"))
		;
	return s->at > begin;
}

static bool skip_word(struct json_scan *s)
{
	static const char *const words[] = {"true", "false", "null"};
	s->fresh = false;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(s->end - s->at) >= n && memcmp(s->at, words[i], n) == 0) {
			s->at += n;
			return true;
		}
	}
	take_any(s, "-");
	if (!digits(s))
		return fault(s, "a value is missing");
	if (take_any(s, ".") && !digits(s))
		return fault(s, "a number has no digit after its point");
	if (take_any(s, "eE") && (take_any(s, "+-"), !digits(s)))
		return fault(s, "a number has no exponent");
	return true;
}

bool json_scan_skip(struct json_scan *s)
{
	char closing[MAX_DEPTH];
	int depth = 0;
	struct proto_str raw;
	do {
		char c = json_scan_peek(s);
		bool opened = c == '{' || c == '[';
		if (opened) {
			if (depth == MAX_DEPTH)
				return fault(s, "nested too deep");
			closing[depth++] = c == '{' ? '}' : ']';
			s->at++;
			s->fresh = true;
		} else if (!(c == '"' ? json_scan_string(s, &raw) : skip_word(s))) {
			return false;
		}
		/* Close every level that ends here, until another element follows or no level is open. */
		while (depth > 0) {
			bool another = closing[depth - 1] == '}' ? json_scan_key(s, &raw) : json_scan_item(s);
			if (s->bad != NULL)
				return false;
			if (another)
				break;
			depth--;
		}
	} while (depth > 0);
	return s->bad == NULL;
}

bool json_scan_end(struct json_scan *s)
{
	blanks(s);
	if (s->bad == NULL && s->at < s->end)
		fault(s, "more follows than one value");
	return s->bad == NULL;
}

static int hex4(const char *p, const char *end)
{
	int v = 0;
	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;
		if (d < 0)
			return -1;
		v = v * 16 + d;
	}
	return v;
}

size_t json_unescape(struct proto_str raw, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *p = raw.at, *end = raw.at + raw.n;
	size_t n = 0;
	while (p < end) {
		if (*p != '\\') {
			out[n++] = *p++;
			continue;
		}
		if (++p == end || *p == '\0')
			return SIZE_MAX;
		if (*p != 'u') {
			const char *which = strchr(from, *p++);
			if (which == NULL)
				return SIZE_MAX;
			out[n++] = to[which - from];
			continue;
		}
		int unit = hex4(p + 1, end), low;
		if (unit < 0)
			return SIZE_MAX;
		p += 5;
		uint32_t cp = (uint32_t)unit;
		if (unit >= 0xd800 && unit < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' &&
		    (low = hex4(p + 2, end)) >= 0xdc00 && low < 0xe000) {
			cp = 0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
			p += 6;
		} else if (unit >= 0xd800 && unit < 0xe000) {
			cp = 0xfffd;
		}
		n += (size_t)utf8_encode(cp, (uint8_t *)out +
						 n); /* at most 4 bytes: never more than the escape's 6 or 12 */
	}
	return n;
}
