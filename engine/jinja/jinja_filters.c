/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of single values: text, numbers, JSON. The parser looks names and arguments up in the
 * table, so what it lacks does not compile. Those of lists are in jinja_list_filters.c.
 *
 * Filters of text take any value and use what printing it gives, as Jinja does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/jinja/jinja.h"

#define UNUSED (void)r, (void)self, (void)args, (void)all

/* ---- text ---- */

static int case_of(struct jrun *r, const struct jvalue *self, enum jcase to, struct jvalue *out)
{
	struct jstr s;
	int rc = jvalue_string(r, self, &s);
	*out = jvalue_string_of((struct jstr){.at = ""});
	out->markup = self->markup && to != JCASE_TITLE_FILTER;
	return rc == 0 ? jstr_case(r, s, to, &out->s) : rc;
}

static int filter_upper(JSELF)
{
	UNUSED;
	return case_of(r, self, JCASE_UPPER, out);
}

static int filter_lower(JSELF)
{
	UNUSED;
	return case_of(r, self, JCASE_LOWER, out);
}

static int filter_title(JSELF)
{
	UNUSED;
	return case_of(r, self, JCASE_TITLE_FILTER, out);
}

static int filter_capitalize(JSELF)
{
	UNUSED;
	return case_of(r, self, JCASE_CAPITAL, out);
}

static int filter_trim(JSELF)
{
	struct jstr s;
	(void)all;
	bool set = !jvalue_is_nothing(&args[0]);
	int rc = set ? jinja_want_string(r, &args[0]) : 0;
	if (rc == 0)
		rc = jvalue_string(r, self, &s);
	if (rc == 0)
		rc = jrun_charge(r, JINJA_SEARCH_COST * s.n * (set ? args[0].s.n + 1 : 1));
	if (rc == 0)
		*out = jvalue_string_of(jstr_strip(s, true, true, set ? &args[0].s : NULL));
	out->markup = self->markup;
	return rc;
}

static int filter_replace(JSELF)
{
	struct jstr s, from = {0}, to = {0};
	int64_t max = -1;
	(void)all;
	int rc = jvalue_string(r, self, &s);
	if (rc == 0)
		rc = jvalue_string(r, &args[0], &from);
	if (rc == 0)
		rc = jvalue_string(r, &args[1], &to);
	if (rc == 0 && !jvalue_is_nothing(&args[2]))
		rc = jinja_want_int(r, &args[2], &max);
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jstr_replace(r, s, from, to, max, &out->s) : rc;
}

static int filter_string(JSELF)
{
	UNUSED;
	*out = jvalue_string_of((struct jstr){.at = ""});
	out->markup = self->markup;
	return jvalue_string(r, self, &out->s);
}

static int filter_safe(JSELF)
{
	UNUSED;
	*out = jvalue_markup_of((struct jstr){.at = ""});
	return jvalue_string(r, self, &out->s);
}

static int filter_format(JSELF)
{
	struct jstr s;
	struct jlist l = {.items = all->at, .n = all->n};
	(void)args;
	int rc = jvalue_string(r, self, &s);
	*out = jvalue_string_of((struct jstr){.at = ""});
	out->markup = self->markup;
	return rc == 0 ? jstr_format(r, s, &l, true, self->markup, &out->s) : rc;
}

static int filter_escape(JSELF)
{
	UNUSED;
	return jinja_escape(r, self, out);
}

static bool is_break(uint32_t c)
{
	return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Python's str.splitlines. */
static int split_lines(struct jrun *r, struct jstr s, bool keep, struct jlist **out)
{
	struct jlist *l = jlist_new(r, 0);
	if (l == NULL)
		return r->err->code;
	int rc = jrun_charge(r, s.n * JINJA_SEARCH_COST);
	size_t from = 0, n;
	for (size_t i = 0; i < s.n && rc == 0; i += n) {
		uint32_t c, next = 0;
		n = jstr_char(s, i, &c);
		if (!is_break(c))
			continue;
		size_t end = i;
		if (c == '\r' && i + 1 < s.n && jstr_char(s, i + 1, &next) == 1 && next == '\n')
			n = 2;
		struct jvalue v = jvalue_string_of(jstr_sub(s, from, (keep ? i + n : end) - from));
		rc = jlist_add(r, l, &v);
		from = i + n;
	}
	if (rc == 0 && from < s.n) {
		struct jvalue v = jvalue_string_of(jstr_sub(s, from, s.n - from));
		rc = jlist_add(r, l, &v);
	}
	*out = l;
	return rc;
}

int jinja_method_splitlines(JSELF)
{
	struct jlist *l;
	(void)all;
	int rc = split_lines(r, self->s, jvalue_true(&args[0]), &l);
	if (rc == 0)
		jinja_mark_parts(self, l);
	*out = rc == 0 ? jvalue_list_of(l) : *self;
	return rc;
}

static int filter_indent(JSELF)
{
	const struct jvalue nl = jvalue_literal((struct proto_str){"\n", 1});
	struct jvalue pad = jvalue_literal((struct proto_str){" ", 1});
	struct jlist *lines, *parts;
	struct jstr s = {0}, ends[2];
	int64_t width = 4;
	(void)all;
	bool first = jvalue_true(&args[1]), blank = jvalue_true(&args[2]);
	int rc = jinja_want_string(r, self);
	if (rc == 0)
		s = self->s;
	if (rc == 0 && args[0].type == JV_STRING)
		pad = args[0];
	else if (rc == 0 && args[0].type != JV_ABSENT)
		rc = jinja_want_int(r, &args[0], &width);
	if (rc == 0 && args[0].type != JV_STRING)
		rc = jstr_repeat(r, pad.s, width, &pad.s);
	/* A newline more: an open line counts, and so does an empty one at the end. */
	ends[0] = s;
	ends[1] = nl.s;
	if (rc == 0)
		rc = jstr_concat(r, ends, 2, &s);
	if (rc == 0)
		rc = split_lines(r, s, false, &lines);
	parts = rc == 0 ? jlist_new(r, 0) : NULL;
	if (parts == NULL)
		return r->err->code;
	for (size_t i = 0; i < lines->n && rc == 0; i++) {
		const struct jvalue *line = &lines->items[i];
		if (i > 0)
			rc = jlist_add(r, parts, &nl);
		bool padded = i == 0 ? first : blank || line->s.n > 0;
		if (rc == 0 && padded)
			rc = jlist_add(r, parts, &pad);
		if (rc == 0)
			rc = jlist_add(r, parts, line);
	}
	*out = jvalue_string_of((struct jstr){.at = ""});
	out->markup = self->markup;
	return rc == 0 ? jstr_join(r, (struct jstr){.at = ""}, parts, true, &out->s) : rc;
}

/* Runs of letters, digits and underscores: the pattern \w+. */
static int filter_wordcount(JSELF)
{
	struct jstr s;
	int64_t n = 0;
	bool inside = false;
	(void)args, (void)all;
	int rc = jvalue_string(r, self, &s);
	for (size_t i = 0; rc == 0 && i < s.n;) {
		uint32_t c;
		i += jstr_char(s, i, &c);
		bool word = c == '_' || jinja_is_alnum(c);
		n += word && !inside;
		inside = word;
	}
	*out = jvalue_int(n, false);
	return rc == 0 ? jrun_charge(r, s.n * JINJA_SEARCH_COST * 2) : rc;
}

/* ---- JSON: as transformers has it, without escaping for HTML ---- */

static int json_separators(struct jrun *r, const struct jvalue *v, struct jjson *how)
{
	if (!jvalue_is_list(v) || v->list->n != 2)
		return jrun_fail(r, SL_EINVAL, "separators must be two strings");
	int rc = jinja_want_string(r, &v->list->items[0]);
	if (rc == 0)
		rc = jinja_want_string(r, &v->list->items[1]);
	if (rc == 0) {
		how->item = v->list->items[0].s;
		how->key = v->list->items[1].s;
	}
	return rc;
}

static int filter_tojson(JSELF)
{
	struct jjson how = {.ascii = jvalue_true(&args[0]),
			    .sort_keys = jvalue_true(&args[3]),
			    .item = {.at = ", ", .n = 2},
			    .key = {.at = ": ", .n = 2}};
	struct jstr indent = {.at = " ", .n = 1};
	int64_t width = 0;
	int rc = 0;
	(void)all;
	if (!jvalue_is_nothing(&args[1])) {
		how.item.n = 1; /* a newline comes behind it */
		how.indent = &indent;
		if (args[1].type == JV_STRING)
			indent = args[1].s;
		else
			rc = jinja_want_int(r, &args[1], &width);
		if (rc == 0 && args[1].type != JV_STRING)
			rc = jstr_repeat(r, indent, width, &indent);
	}
	if (rc == 0 && !jvalue_is_nothing(&args[2]))
		rc = json_separators(r, &args[2], &how);
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jvalue_json(r, self, &how, &out->s) : rc;
}

/* ---- numbers ---- */

static int text_number(struct jrun *r, struct jstr s, char *out, size_t size, bool *good)
{
	size_t n = 0;
	s = jstr_strip(s, true, true, NULL);
	*good = s.n > 0 && s.n < size;
	for (size_t i = 0; i < s.n && *good; i++) {
		bool between = s.at[i] == '_' && i > 0 && i + 1 < s.n && s.at[i - 1] >= '0' && s.at[i - 1] <= '9' &&
			       s.at[i + 1] >= '0' && s.at[i + 1] <= '9';
		*good = s.at[i] != '\0' && (s.at[i] != '_' || between) && s.at[i] != 'x' && s.at[i] != 'X';
		if (s.at[i] != '_')
			out[n++] = s.at[i];
	}
	out[n] = '\0';
	return jrun_charge(r, 0);
}

/* Truncated, if it is an integer of 64 bits. */
static bool to_int(double f, int64_t *out)
{
	if (!(f > -9.2e18 && f < 9.2e18))
		return false;
	*out = (int64_t)f;
	return true;
}

static int filter_int(JSELF)
{
	char text[64], *end;
	int64_t base = 10, i = 0;
	bool good = false;
	(void)all;
	if (self->type == JV_UNDEFINED)
		return jinja_want_string(r, self); /* which says what is undefined */
	int rc = args[1].type != JV_ABSENT ? jinja_want_int(r, &args[1], &base) : 0;
	if (rc == 0 && (base < 2 || base > 36))
		rc = jrun_fail(r, SL_EINVAL, "an integer of base %lld", (long long)base);
	if (rc == 0 && self->type == JV_STRING)
		rc = text_number(r, self->s, text, sizeof(text), &good);
	if (rc != 0)
		return rc;
	if (self->type == JV_STRING && good) {
		const char *at = text;
		/* Python takes the base's own prefix. */
		i = strtoll(at, &end, (int)base);
		good = *end == '\0' && i != INT64_MAX && i != INT64_MIN;
		if (!good && *end != '\0') {
			double f = strtod(at, &end);
			good = *end == '\0' && end != at && to_int(f, &i);
		}
	} else if (jvalue_is_number(self)) {
		good = self->type != JV_FLOAT || to_int(self->f, &i);
		if (self->type != JV_FLOAT)
			i = self->type == JV_BOOL ? self->b : self->i;
	} else {
		good = false;
	}
	*out = good                        ? jvalue_int(i, jvalue_is_number(self) && self->trusted)
	       : args[0].type != JV_ABSENT ? args[0]
					   : jvalue_int(0, true);
	return 0;
}

static int filter_float(JSELF)
{
	char text[64], *end;
	double f = 0;
	bool good = false;
	int rc = 0;
	(void)all;
	if (self->type == JV_UNDEFINED)
		return jinja_want_string(r, self);
	if (self->type == JV_STRING) {
		rc = text_number(r, self->s, text, sizeof(text), &good);
		if (rc == 0 && good) {
			f = strtod(text, &end);
			good = *end == '\0' && end != text;
		}
	} else if (jvalue_is_number(self)) {
		good = true;
		f = self->type == JV_FLOAT ? self->f : self->type == JV_BOOL ? self->b : (double)self->i;
	}
	*out = good                        ? jvalue_float(f, jvalue_is_number(self) && self->trusted)
	       : args[0].type != JV_ABSENT ? args[0]
					   : jvalue_float(0, true);
	return rc;
}

static int want_number(struct jrun *r, const struct jvalue *v)
{
	return jvalue_is_number(v) ? 0 : jrun_fail(r, SL_EINVAL, "a number expected, not %s", jvalue_type_name(v));
}

static int filter_abs(JSELF)
{
	(void)args, (void)all;
	int rc = want_number(r, self);
	if (rc != 0)
		return rc;
	*out = *self;
	if (self->type == JV_FLOAT)
		out->f = fabs(self->f);
	else if (self->type == JV_BOOL)
		*out = jvalue_int(self->b, self->trusted);
	else if (self->i < 0 && __builtin_sub_overflow(0, self->i, &out->i))
		return jrun_fail(r, SL_EINVAL, "a number out of range");
	return 0;
}

/* Python rounds the number that the double is, halves to even: what printf does. */
static int round_common(struct jrun *r, double f, int64_t digits, double *out)
{
	char text[400];
	if (!isfinite(f) || digits > 30) {
		*out = f;
		return 0;
	}
	if (digits >= 0) {
		snprintf(text, sizeof(text), "%.*f", (int)digits, f);
		*out = strtod(text, NULL);
		return 0;
	}
	double unit = pow(10, (double)-digits);
	*out = rint(f / unit) * unit;
	return jrun_charge(r, 0);
}

static int filter_round(JSELF)
{
	int64_t digits = 0;
	double f;
	(void)all;
	int rc = want_number(r, self);
	if (rc == 0 && args[0].type != JV_ABSENT)
		rc = jinja_want_int(r, &args[0], &digits);
	if (rc != 0)
		return rc;
	bool whole = self->type != JV_FLOAT;
	f = whole ? (double)(self->type == JV_BOOL ? self->b : self->i) : self->f;
	if (args[1].type == JV_ABSENT || jvalue_text_is(&args[1], "common")) {
		if (whole && digits >= 0) {
			*out = self->type == JV_BOOL ? jvalue_int(self->b, self->trusted) : *self;
			return 0;
		}
		rc = round_common(r, f, digits, &f);
		*out = whole ? jvalue_int((int64_t)f, self->trusted) : jvalue_float(f, self->trusted);
		return rc;
	}
	bool up = jvalue_text_is(&args[1], "ceil");
	if (!up && !jvalue_text_is(&args[1], "floor"))
		return jrun_fail(r, SL_EINVAL, "round is common, ceil or floor");
	double unit = pow(10, (double)digits);
	f = f * unit;
	*out = jvalue_float((up ? ceil(f) : floor(f)) / unit, self->trusted);
	return 0;
}

/* ---- any value ---- */

static int filter_default(JSELF)
{
	(void)r, (void)all;
	bool absent = self->type == JV_UNDEFINED || (jvalue_true(&args[1]) && !jvalue_true(self));
	*out = !absent ? *self : args[0].type != JV_ABSENT ? args[0] : jvalue_literal((struct proto_str){"", 0});
	return 0;
}

static int filter_attr(JSELF)
{
	(void)all;
	int rc = jinja_want_string(r, &args[0]);
	if (rc != 0)
		return rc;
	if (self->type == JV_DICT) { /* attributes only, and a dictionary's items are none */
		*out = jvalue_undefined((struct proto_str){args[0].s.at, args[0].s.n});
		return 0;
	}
	return jvalue_attr(r, self, (struct proto_str){args[0].s.at, args[0].s.n}, out);
}

static int filter_length(JSELF)
{
	(void)args, (void)all;
	int64_t length;
	int rc = jvalue_length(r, self, &length);
	if (rc == 0)
		*out = jvalue_int(length, false);
	return rc;
}

const struct jfunction jinja_filters[] = {
    {"trim", "chars", 0, filter_trim, 0},
    {"length", "", 0, filter_length, 0},
    {"count", "", 0, filter_length, 0},
    {"upper", "", 0, filter_upper, 0},
    {"lower", "", 0, filter_lower, 0},
    {"title", "", 0, filter_title, 0},
    {"capitalize", "", 0, filter_capitalize, 0},
    {"default", "default_value,boolean", 0, filter_default, 0},
    {"d", "default_value,boolean", 0, filter_default, 0},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, filter_tojson, 0},
    {"string", "", 0, filter_string, 0},
    {"replace", "old,new,count", 2, filter_replace, 0},
    {"format", "*", 0, filter_format, 0},
    {"indent", "width,first,blank", 0, filter_indent, 0},
    {"wordcount", "", 0, filter_wordcount, 0},
    {"safe", "", 0, filter_safe, 0},
    {"escape", "", 0, filter_escape, 0},
    {"e", "", 0, filter_escape, 0},
    {"int", "default,base", 0, filter_int, 0},
    {"float", "default", 0, filter_float, 0},
    {"abs", "", 0, filter_abs, 0},
    {"round", "precision,method", 0, filter_round, 0},
    {"attr", "name", 1, filter_attr, 0},
    {0},
};
