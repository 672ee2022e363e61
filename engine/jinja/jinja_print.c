/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as text: Python's str and repr, and JSON as json.dumps writes it. Text of a whole list or
 * dictionary and JSON are never trusted, whoever wrote the parts: no template needs a control token
 * to come out of one. Both are put on the run's output and taken off again, so that one bound holds
 * for everything.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/jinja/jinja.h"

/* ---- output ---- */

int jrun_put(struct jrun *r, struct jstr s)
{
	uint8_t *trust;
	if (s.n > r->max_text - r->text->len)
		return jrun_fail(r, SL_ELIMIT, "more than %d bytes of text", JINJA_MAX_OUTPUT);
	int rc = jrun_charge(r, s.n);
	if (rc != 0 || s.n == 0)
		return rc;
	rc = buf_reserve(r->trust, s.n, &trust);
	if (rc == 0)
		rc = buf_append(r->text, s.at, s.n);
	if (rc != 0)
		return jrun_fail(r, rc, "no room for the text");
	if (s.trust == JTRUST_MASK)
		memcpy(trust, s.mask, s.n);
	else
		memset(trust, s.trust == JTRUST_ALL, s.n);
	buf_commit(r->trust, s.n);
	return 0;
}

int jrun_capture(struct jrun *r, size_t mark, struct jstr *out)
{
	size_t n = r->text->len - mark, from = r->trust->len - n;
	*out = (struct jstr){.at = "", .trust = JTRUST_NONE};
	if (n == 0)
		return 0;
	int rc = jrun_charge(r, n);
	char *at = rc == 0 ? jrun_alloc(r, n) : NULL;
	if (at == NULL)
		return r->err->code;
	memcpy(at, buf_data(r->text) + mark, n);
	const uint8_t *trust = buf_data(r->trust) + from;
	size_t n_trusted = 0;
	for (size_t i = 0; i < n; i++)
		n_trusted += trust[i] != 0;
	*out = (struct jstr){.at = at, .n = n, .trust = n_trusted == n ? JTRUST_ALL : JTRUST_NONE};
	if (n_trusted != 0 && n_trusted != n) {
		uint8_t *mask = jrun_alloc(r, n);
		if (mask == NULL)
			return r->err->code;
		memcpy(mask, trust, n);
		out->mask = mask;
		out->trust = JTRUST_MASK;
	}
	buf_cut(r->text, mark);
	buf_cut(r->trust, from);
	return 0;
}

static int put_bytes(struct jrun *r, const char *at, size_t n) { return jrun_put(r, (struct jstr){.at = at, .n = n}); }

static int put_word(struct jrun *r, const char *word) { return put_bytes(r, word, strlen(word)); }

/* ---- numbers ---- */

void jinja_print_float(double f, char *out)
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

/* ---- repr ---- */

static int repr_char(struct jrun *r, uint32_t c)
{
	char text[16];
	const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
	snprintf(text, sizeof(text), format, (unsigned)c);
	return put_word(r, text);
}

/* In single quotes, unless it has some and no double ones. */
static int repr_string(struct jrun *r, struct jstr s)
{
	static const char from[] = "\n\r\t\\", to[] = "nrt\\";
	char quote = memchr(s.at, '\'', s.n) != NULL && memchr(s.at, '"', s.n) == NULL ? '"' : '\'';
	int rc = jrun_charge(r, s.n * JINJA_SEARCH_COST);
	if (rc == 0)
		rc = put_bytes(r, &quote, 1);
	size_t begin = 0, i = 0, n;
	uint32_t c;
	for (; i < s.n && rc == 0; i += n) {
		n = jstr_char(s, i, &c);
		const char *known = c < ' ' || c == '\\' ? memchr(from, (int)c, sizeof(from) - 1) : NULL;
		bool quoted = c == (uint32_t)(unsigned char)quote;
		if (known == NULL && !quoted && jinja_is_printable(c))
			continue;
		rc = put_bytes(r, s.at + begin, i - begin);
		begin = i + n;
		char escape[2] = {'\\', known != NULL ? to[known - from] : quote};
		if (rc == 0)
			rc = known != NULL || quoted ? put_bytes(r, escape, 2) : repr_char(r, c);
	}
	if (rc == 0)
		rc = put_bytes(r, s.at + begin, s.n - begin);
	return rc == 0 ? put_bytes(r, &quote, 1) : rc;
}

static int repr(struct jrun *r, const struct jvalue *v);

static int repr_list(struct jrun *r, const struct jlist *l, bool tuple)
{
	int rc = put_word(r, tuple ? "(" : "[");
	for (size_t i = 0; i < l->n && rc == 0; i++) {
		if (i > 0)
			rc = put_word(r, ", ");
		if (rc == 0)
			rc = repr(r, &l->items[i]);
	}
	return rc == 0 ? put_word(r, !tuple ? "]" : l->n == 1 ? ",)" : ")") : rc;
}

static int repr_dict(struct jrun *r, const struct jdict *d)
{
	int rc = put_word(r, "{");
	for (const struct jpair *p = d->first; p != NULL && rc == 0; p = p->next) {
		if (p != d->first)
			rc = put_word(r, ", ");
		if (rc == 0)
			rc = repr(r, &p->key);
		if (rc == 0)
			rc = put_word(r, ": ");
		if (rc == 0)
			rc = repr(r, &p->value);
	}
	return rc == 0 ? put_word(r, "}") : rc;
}

static int repr(struct jrun *r, const struct jvalue *v)
{
	struct jstr s;
	int rc;
	switch (v->type) {
	case JV_STRING:
		rc = v->markup ? put_word(r, "Markup(") : 0;
		if (rc == 0)
			rc = repr_string(r, v->s);
		return rc == 0 && v->markup ? put_word(r, ")") : rc;
	case JV_UNDEFINED: return put_word(r, "Undefined");
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = v->type == JV_DICT ? repr_dict(r, v->dict) : repr_list(r, v->list, v->type == JV_TUPLE);
		r->depth--;
		return rc;
	default: rc = jvalue_string(r, v, &s); return rc == 0 ? put_bytes(r, s.at, s.n) : rc;
	}
}

int jvalue_string(struct jrun *r, const struct jvalue *v, struct jstr *out)
{
	const char *word = NULL;
	char *at;
	size_t mark = r->text->len;
	int rc;
	switch (v->type) {
	case JV_STRING: *out = v->s; return 0;
	case JV_UNDEFINED: word = ""; break;
	case JV_NONE: word = "None"; break;
	case JV_BOOL: word = v->b ? "True" : "False"; break;
	case JV_INT:
	case JV_FLOAT:
		at = jrun_alloc(r, 32);
		if (at == NULL)
			return r->err->code;
		if (v->type == JV_INT)
			snprintf(at, 32, "%lld", (long long)v->i);
		else
			jinja_print_float(v->f, at);
		word = at;
		break;
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT: rc = repr(r, v); return rc == 0 ? jrun_capture(r, mark, out) : rc;
	default: return jrun_fail(r, SL_EINVAL, "%s can't be printed", jvalue_type_name(v));
	}
	*out = (struct jstr){.at = word, .n = strlen(word), .trust = v->trusted ? JTRUST_ALL : JTRUST_NONE};
	return 0;
}

/* ---- JSON ---- */

static int json_char(struct jrun *r, uint32_t c)
{
	char text[16];
	if (c < 0x10000)
		snprintf(text, sizeof(text), "\\u%04x", (unsigned)c);
	else
		snprintf(text, sizeof(text), "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
			 (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
	return put_word(r, text);
}

static int json_text(struct jrun *r, struct jstr s, bool ascii)
{
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	int rc = jrun_charge(r, s.n * JINJA_SEARCH_COST);
	if (rc == 0)
		rc = put_word(r, "\"");
	size_t begin = 0, i = 0, n;
	uint32_t c;
	for (; i < s.n && rc == 0; i += n) {
		n = jstr_char(s, i, &c);
		bool special = c < ' ' || c == '"' || c == '\\';
		const char *known = special ? memchr(from, (int)c, sizeof(from) - 1) : NULL;
		if (known == NULL && c >= 0x20 && (!ascii || c < 0x7F))
			continue;
		if (ascii && c == 0x7F)
			continue;
		rc = put_bytes(r, s.at + begin, i - begin);
		begin = i + n;
		if (rc == 0)
			rc = known != NULL ? put_bytes(r, (char[]){'\\', to[known - from]}, 2) : json_char(r, c);
	}
	if (rc == 0)
		rc = put_bytes(r, s.at + begin, s.n - begin);
	return rc == 0 ? put_word(r, "\"") : rc;
}

static int json_line(struct jrun *r, const struct jjson *how, int level)
{
	int rc = put_word(r, "\n");
	for (int i = 0; i < level && rc == 0; i++)
		rc = put_bytes(r, how->indent->at, how->indent->n);
	return rc;
}

static int json_put(struct jrun *r, const struct jvalue *v, const struct jjson *how, int level);

/* What stands before each item. */
static int json_between(struct jrun *r, const struct jjson *how, bool first, int level)
{
	int rc = first ? 0 : put_bytes(r, how->item.at, how->item.n);
	return rc == 0 && how->indent != NULL ? json_line(r, how, level) : rc;
}

static int json_list(struct jrun *r, const struct jlist *l, const struct jjson *how, int level)
{
	int rc = put_word(r, "[");
	for (size_t i = 0; i < l->n && rc == 0; i++) {
		rc = json_between(r, how, i == 0, level + 1);
		if (rc == 0)
			rc = json_put(r, &l->items[i], how, level + 1);
	}
	if (rc == 0 && l->n > 0 && how->indent != NULL)
		rc = json_line(r, how, level);
	return rc == 0 ? put_word(r, "]") : rc;
}

static int json_key(struct jrun *r, const struct jvalue *key, const struct jjson *how)
{
	struct jstr s;
	int rc = 0;
	if (key->type == JV_STRING)
		return json_text(r, key->s, how->ascii);
	if (key->type == JV_BOOL)
		return put_word(r, key->b ? "\"true\"" : "\"false\"");
	if (key->type == JV_NONE)
		return put_word(r, "\"null\"");
	rc = jvalue_string(r, key, &s);
	return rc == 0 ? json_text(r, s, how->ascii) : rc;
}

static int sorted_pairs(struct jrun *r, const struct jdict *d, const struct jpair ***out)
{
	const struct jpair **at = jrun_alloc(r, (d->n + 1) * sizeof(struct jpair *));
	size_t n = 0;
	int rc = 0;
	if (at == NULL)
		return r->err->code;
	/* By insertion: few keys, and those of one object mostly in order. */
	for (const struct jpair *p = d->first; p != NULL && rc == 0; p = p->next, n++) {
		size_t i = n;
		for (int order; i > 0 && rc == 0; i--) {
			rc = jvalue_order(r, &at[i - 1]->key, &p->key, &order);
			if (order <= 0)
				break;
			at[i] = at[i - 1];
		}
		at[i] = p;
	}
	*out = at;
	return rc;
}

static int json_dict(struct jrun *r, const struct jdict *d, const struct jjson *how, int level)
{
	const struct jpair **sorted = NULL, *p = d->first;
	int rc = how->sort_keys ? sorted_pairs(r, d, &sorted) : 0;
	if (rc == 0)
		rc = put_word(r, "{");
	for (size_t i = 0; i < d->n && rc == 0; i++, p = p->next) {
		const struct jpair *at = sorted != NULL ? sorted[i] : p;
		rc = json_between(r, how, i == 0, level + 1);
		if (rc == 0)
			rc = json_key(r, &at->key, how);
		if (rc == 0)
			rc = put_bytes(r, how->key.at, how->key.n);
		if (rc == 0)
			rc = json_put(r, &at->value, how, level + 1);
	}
	if (rc == 0 && d->n > 0 && how->indent != NULL)
		rc = json_line(r, how, level);
	return rc == 0 ? put_word(r, "}") : rc;
}

static int json_put(struct jrun *r, const struct jvalue *v, const struct jjson *how, int level)
{
	struct jstr s;
	int rc;
	switch (v->type) {
	case JV_NONE: return put_word(r, "null");
	case JV_BOOL: return put_word(r, v->b ? "true" : "false");
	case JV_FLOAT:
		if (!isfinite(v->f))
			return put_word(r, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
		/* fallthrough */
	case JV_INT: rc = jvalue_string(r, v, &s); return rc == 0 ? put_bytes(r, s.at, s.n) : rc;
	case JV_STRING: return json_text(r, v->s, how->ascii);
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = v->type == JV_DICT ? json_dict(r, v->dict, how, level) : json_list(r, v->list, how, level);
		r->depth--;
		return rc;
	default: return jrun_fail(r, SL_EINVAL, "%s as JSON", jvalue_type_name(v));
	}
}

int jvalue_json(struct jrun *r, const struct jvalue *v, const struct jjson *how, struct jstr *out)
{
	size_t mark = r->text->len;
	int rc = json_put(r, v, how, 0);
	return rc == 0 ? jrun_capture(r, mark, out) : rc;
}
