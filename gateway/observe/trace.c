/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/observe/trace.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hex.h"
#include "gateway/loop/random.h"

enum { MAX_MEMBERS = 32, KEY_BYTES = 256, VALUE_BYTES = 256, PARENT_BYTES = 55 };

/* Lower-case digits only, n bytes' worth. */
static bool read_hex(const char *text, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < 2 * n; i++) {
		char c = text[i];
		uint8_t digit = c >= '0' && c <= '9' ? (uint8_t)(c - '0') : (uint8_t)(c - 'a' + 10);
		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
			return false;
		out[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : out[i / 2] | digit);
	}
	return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != 0)
			return false;
	return true;
}

/* version-trace-parent-flags; a later version may have more behind another dash. */
bool trace_parent_read(const char *text, struct trace *out)
{
	uint8_t version, flags;
	size_t n = strlen(text);
	if (n < PARENT_BYTES || text[2] != '-' || text[35] != '-' || text[52] != '-' || !read_hex(text, &version, 1) ||
	    !read_hex(text + 3, out->id, TRACE_ID_BYTES) || !read_hex(text + 36, out->parent, SPAN_ID_BYTES) ||
	    !read_hex(text + 53, &flags, 1))
		return false;
	if (version == 0xff || (version == 0 && n != PARENT_BYTES) || (n > PARENT_BYTES && text[PARENT_BYTES] != '-') ||
	    is_zero(out->id, TRACE_ID_BYTES) || is_zero(out->parent, SPAN_ID_BYTES))
		return false;
	out->has_parent = true;
	out->sampled = (flags & 1) != 0;
	return true;
}

static bool is_key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c != '\0' && strchr("_-*/@", c) != NULL);
}

/* What is left behind a member; NULL: it is none. Members may be empty. */
static const char *skip_member(const char *p)
{
	size_t key = 0, value = 0;
	p += strspn(p, " \t");
	if (*p == ',' || *p == '\0')
		return p;
	while (is_key_char(p[key]))
		key++;
	if (key == 0 || key > KEY_BYTES || p[0] == '_' || p[0] == '-' || p[0] == '*' || p[0] == '/' || p[0] == '@' ||
	    p[key] != '=')
		return NULL;
	p += key + 1;
	while (p[value] >= ' ' && p[value] <= '~' && p[value] != ',' && p[value] != '=')
		value++;
	if (value == 0 || value > VALUE_BYTES)
		return NULL;
	p += value + strspn(p + value, " \t");
	return *p == ',' || *p == '\0' ? p : NULL;
}

bool trace_state_valid(const char *text)
{
	int n = 0;
	if (strlen(text) > TRACE_STATE_BYTES)
		return false;
	for (const char *p = text; (p = skip_member(p)) != NULL && ++n <= MAX_MEMBERS; p++)
		if (*p == '\0')
			return true;
	return false;
}

static bool random_bytes(uint8_t *out, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i += sizeof v) {
		if (!random_u64(&v))
			return false;
		memcpy(out + i, &v, n - i < sizeof v ? n - i : sizeof v);
	}
	return !is_zero(out, n);
}

struct trace *trace_begin(const char *parent, const char *state, double sample)
{
	struct trace read = {0};
	bool follows = parent != NULL && trace_parent_read(parent, &read);
	if (!follows) {
		read = (struct trace){.sampled = random_share(sample)};
		if (!read.sampled || !random_bytes(read.id, sizeof read.id))
			return NULL;
	}
	struct trace *t = random_bytes(read.span, sizeof read.span) ? sl_alloc(sizeof *t) : NULL;
	if (t == NULL)
		return NULL;
	*t = read;
	hex_put(t->id, sizeof t->id, t->hex);
	if (follows && state != NULL && trace_state_valid(state))
		memcpy(t->state, state, strlen(state) + 1);
	return t;
}

void trace_free(struct trace *t) { sl_free(t); }
