/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as text: Python's str and repr, and JSON as json.dumps writes it. Text of a list or dictionary and JSON are
 * never trusted, even if the template wrote the parts: no template needs control tokens from them. Both are written to
 * the run's output and captured from there, so that one bound covers everything.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/jinja/jinja.h"

/* ---- output ---- */

void jrun_put(struct jrun *r, struct jstr s)
{
	uint8_t *trust;
	if (s.n > r->max_text - r->text->len)
		jrun_fail(r, SL_ELIMIT, "more than %d bytes of text", JINJA_MAX_OUTPUT);
	jrun_charge(r, s.n);
	if (s.n == 0)
		return;
	int rc = buf_reserve(r->trust, s.n, &trust);
	if (rc == 0)
		rc = buf_append(r->text, s.at, s.n);
	if (rc != 0)
		jrun_fail(r, rc, "no room for the text");
	if (s.trust == JTRUST_MASK)
		memcpy(trust, s.mask, s.n);
	else
		memset(trust, s.trust == JTRUST_ALL, s.n);
	buf_commit(r->trust, s.n);
}

static const void *copy(struct jrun *r, const void *from, size_t n) { return memcpy(jrun_alloc(r, n), from, n); }

struct jstr jrun_capture(struct jrun *r, size_t mark)
{
	size_t n = r->text->len - mark, from = r->trust->len - n, n_trusted = 0;
	if (n == 0)
		return (struct jstr){.at = ""};
	jrun_charge(r, n);
	struct jstr out = {.at = copy(r, buf_data(r->text) + mark, n), .n = n};
	const uint8_t *trust = buf_data(r->trust) + from;
	for (size_t i = 0; i < n; i++)
		n_trusted += trust[i] != 0;
	out.trust = n_trusted == 0 ? JTRUST_NONE : n_trusted == n ? JTRUST_ALL : JTRUST_MASK;
	if (out.trust == JTRUST_MASK)
		out.mask = copy(r, trust, n);
	buf_cut(r->text, mark);
	buf_cut(r->trust, from);
	return out;
}

static void put_bytes(struct jrun *r, const char *at, size_t n) { jrun_put(r, (struct jstr){.at = at, .n = n}); }

static void put_word(struct jrun *r, const char *word) { put_bytes(r, word, strlen(word)); }

/* ---- numbers ---- */

/* Python's repr; at least 32 bytes. */
static void print_float(double f, char *out)
{
	char digits[40];
	int precision = 0;
	if (!isfinite(f)) {
		snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	/* The fewest digits that read back as the same number. */
	do
		snprintf(digits, sizeof(digits), "%.*e", precision, f);
	while (strtod(digits, NULL) != f && ++precision < 17);
	int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
	if (exponent < -4 || exponent >= 16)
		snprintf(out, 32, "%.*e", precision, f);
	else if (precision <= exponent)
		snprintf(out, 32, "%.1f", f);
	else
		snprintf(out, 32, "%.*f", precision - exponent, f);
}

/* ---- strings of repr and JSON ---- */

/* s between quotes. from and to: characters with an escape of one letter; else hex(c) escapes those that are special,
 * outside of printable. */
struct quoting {
	const char *from, *to;
	bool (*plain)(uint32_t c);
	void (*hex)(struct jrun *r, uint32_t c);
};

static void put_quoted(struct jrun *r, struct jstr s, char quote, const struct quoting *q)
{
	size_t begin = 0, n;
	uint32_t c;
	jrun_charge(r, s.n * JINJA_SEARCH_COST);
	put_bytes(r, &quote, 1);
	for (size_t i = 0; i < s.n; i += n) {
		n = jstr_char(s, i, &c);
		const char *known = c > 0 && c < 0x7F ? strchr(q->from, (int)c) : NULL;
		bool quoted = c == (uint32_t)(unsigned char)quote;
		if (known == NULL && !quoted && q->plain(c))
			continue;
		put_bytes(r, s.at + begin, i - begin);
		begin = i + n;
		if (known != NULL || quoted)
			put_bytes(r, (char[]){'\\', known != NULL ? q->to[known - q->from] : quote}, 2);
		else
			q->hex(r, c);
	}
	put_bytes(r, s.at + begin, s.n - begin);
	put_bytes(r, &quote, 1);
}

static void repr_char(struct jrun *r, uint32_t c)
{
	char text[16];
	const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
	snprintf(text, sizeof(text), format, (unsigned)c);
	put_word(r, text);
}

static void json_char(struct jrun *r, uint32_t c)
{
	char text[16];
	if (c < 0x10000)
		snprintf(text, sizeof(text), "\\u%04x", (unsigned)c);
	else
		snprintf(text, sizeof(text), "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
			 (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
	put_word(r, text);
}

static bool json_plain(uint32_t c) { return c >= ' '; }

static bool json_plain_ascii(uint32_t c) { return c >= ' ' && c <= 0x7F; }

static void json_text(struct jrun *r, struct jstr s, bool ascii)
{
	const struct quoting q = {"\"\\\n\r\t\b\f", "\"\\nrtbf", ascii ? json_plain_ascii : json_plain, json_char};
	put_quoted(r, s, '"', &q);
}

/* In single quotes, unless it has some and no double ones. */
static void repr_string(struct jrun *r, struct jstr s)
{
	static const struct quoting q = {"\n\r\t\\", "nrt\\", jinja_is_printable, repr_char};
	bool doubled = memchr(s.at, '\'', s.n) != NULL && memchr(s.at, '"', s.n) == NULL;
	put_quoted(r, s, doubled ? '"' : '\'', &q);
}

/* ---- str and repr ---- */

static void repr(struct jrun *r, const struct jvalue *v);

static void repr_list(struct jrun *r, const struct jlist *l, bool tuple)
{
	put_word(r, tuple ? "(" : "[");
	for (size_t i = 0; i < l->n; i++) {
		if (i > 0)
			put_word(r, ", ");
		repr(r, &l->items[i]);
	}
	put_word(r, !tuple ? "]" : l->n == 1 ? ",)" : ")");
}

static void repr_dict(struct jrun *r, const struct jdict *d)
{
	put_word(r, "{");
	for (const struct jpair *p = d->first; p != NULL; p = p->next) {
		if (p != d->first)
			put_word(r, ", ");
		repr(r, &p->key);
		put_word(r, ": ");
		repr(r, &p->value);
	}
	put_word(r, "}");
}

static void put_untrusted(struct jrun *r, const struct jvalue *v)
{
	struct jstr s = jvalue_string(r, v);
	put_bytes(r, s.at, s.n);
}

static void repr(struct jrun *r, const struct jvalue *v)
{
	switch (v->type) {
	case JV_STRING:
		if (v->markup)
			put_word(r, "Markup(");
		repr_string(r, v->s);
		if (v->markup)
			put_word(r, ")");
		break;
	case JV_UNDEFINED: put_word(r, "Undefined"); break;
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		jrun_descend(r);
		if (v->type == JV_DICT)
			repr_dict(r, v->dict);
		else
			repr_list(r, v->list, v->type == JV_TUPLE);
		r->depth--;
		break;
	default: put_untrusted(r, v);
	}
}

struct jstr jvalue_string(struct jrun *r, const struct jvalue *v)
{
	const char *word = NULL;
	char *at;
	size_t mark = r->text->len;
	switch (v->type) {
	case JV_STRING: return v->s;
	case JV_UNDEFINED: word = ""; break;
	case JV_NONE: word = "None"; break;
	case JV_BOOL: word = v->i ? "True" : "False"; break;
	case JV_INT:
	case JV_FLOAT:
		at = jrun_alloc(r, 32);
		if (v->type == JV_INT)
			snprintf(at, 32, "%lld", (long long)v->i);
		else
			print_float(v->f, at);
		word = at;
		break;
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT: repr(r, v); return jrun_capture(r, mark);
	default: jrun_fail(r, SL_EINVAL, "%s can't be printed", jvalue_type_name(v));
	}
	return (struct jstr){.at = word, .n = strlen(word), .trust = v->trusted ? JTRUST_ALL : JTRUST_NONE};
}

/* ---- JSON ---- */

static void json_line(struct jrun *r, const struct jjson *how, int level)
{
	if (how->indent == NULL)
		return;
	put_word(r, "\n");
	for (int i = 0; i < level; i++)
		put_bytes(r, how->indent->at, how->indent->n);
}

/* What precedes each item. */
static void json_between(struct jrun *r, const struct jjson *how, bool first, int level)
{
	if (!first)
		put_bytes(r, how->item.at, how->item.n);
	json_line(r, how, level);
}

static void json_put(struct jrun *r, const struct jvalue *v, const struct jjson *how, int level);

static void json_list(struct jrun *r, const struct jlist *l, const struct jjson *how, int level)
{
	put_word(r, "[");
	for (size_t i = 0; i < l->n; i++) {
		json_between(r, how, i == 0, level + 1);
		json_put(r, &l->items[i], how, level + 1);
	}
	if (l->n > 0)
		json_line(r, how, level);
	put_word(r, "]");
}

static void json_key(struct jrun *r, const struct jvalue *key, const struct jjson *how)
{
	if (key->type == JV_BOOL)
		put_word(r, key->i ? "\"true\"" : "\"false\"");
	else if (key->type == JV_NONE)
		put_word(r, "\"null\"");
	else
		json_text(r, jvalue_string(r, key), how->ascii);
}

static const struct jpair **sorted_pairs(struct jrun *r, const struct jdict *d)
{
	const struct jpair **at = jrun_alloc(r, (d->n + 1) * sizeof(struct jpair *));
	size_t n = 0;
	/* Insertion sort: few keys, mostly in order. */
	for (const struct jpair *p = d->first; p != NULL; p = p->next, n++) {
		size_t i = n;
		for (; i > 0 && jvalue_order(r, &at[i - 1]->key, &p->key) > 0; i--)
			at[i] = at[i - 1];
		at[i] = p;
	}
	return at;
}

static void json_dict(struct jrun *r, const struct jdict *d, const struct jjson *how, int level)
{
	const struct jpair **sorted = how->sort_keys ? sorted_pairs(r, d) : NULL, *p = d->first;
	put_word(r, "{");
	for (size_t i = 0; i < d->n; i++, p = p->next) {
		const struct jpair *at = sorted != NULL ? sorted[i] : p;
		json_between(r, how, i == 0, level + 1);
		json_key(r, &at->key, how);
		put_bytes(r, how->key.at, how->key.n);
		json_put(r, &at->value, how, level + 1);
	}
	if (d->n > 0)
		json_line(r, how, level);
	put_word(r, "}");
}

static void json_put(struct jrun *r, const struct jvalue *v, const struct jjson *how, int level)
{
	switch (v->type) {
	case JV_NONE: put_word(r, "null"); break;
	case JV_BOOL: put_word(r, v->i ? "true" : "false"); break;
	case JV_INT: put_untrusted(r, v); break;
	case JV_FLOAT:
		if (isfinite(v->f))
			put_untrusted(r, v);
		else
			put_word(r, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
		break;
	case JV_STRING: json_text(r, v->s, how->ascii); break;
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		jrun_descend(r);
		if (v->type == JV_DICT)
			json_dict(r, v->dict, how, level);
		else
			json_list(r, v->list, how, level);
		r->depth--;
		break;
	default: jrun_fail(r, SL_EINVAL, "%s as JSON", jvalue_type_name(v));
	}
}

struct jstr jvalue_json(struct jrun *r, const struct jvalue *v, const struct jjson *how)
{
	size_t mark = r->text->len;
	json_put(r, v, how, 0);
	return jrun_capture(r, mark);
}
