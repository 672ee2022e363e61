/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of single values: text, numbers, JSON. The parser looks names and arguments up in the table, so unknown
 * ones do not compile. Those of lists are in jinja_list_filters.c.
 *
 * Text filters take any value and use its printed text, as Jinja does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/jinja/jinja.h"

/* ---- text ---- */

/* upper, lower, title, capitalize. */
static struct jvalue filter_case(struct jrun *r, const struct jcall *c)
{
	struct jstr s = jstr_case(r, jvalue_string(r, c->self), (enum jcase)c->how);
	return jvalue_string_of(s, c->self->markup && c->how != JCASE_TITLE_FILTER);
}

/* The filter trim and the methods strip, lstrip, rstrip. */
struct jvalue jinja_strip(struct jrun *r, const struct jcall *c)
{
	struct jstr set = {0};
	bool has = !jvalue_is_nothing(&c->args[0]);
	if (has)
		set = jinja_want_string(r, &c->args[0]);
	struct jstr s = jvalue_string(r, c->self);
	jrun_charge(r, JINJA_SEARCH_COST * s.n * (has ? set.n + 1 : 1));
	s = jstr_strip(s, (c->how & JSTRIP_LEFT) != 0, (c->how & JSTRIP_RIGHT) != 0, has ? &set : NULL);
	return jvalue_string_of(s, c->self->markup);
}

static struct jvalue filter_replace(struct jrun *r, const struct jcall *c)
{
	struct jstr s = jvalue_string(r, c->self), from = jvalue_string(r, &c->args[0]);
	struct jstr to = jvalue_string(r, &c->args[1]);
	int64_t max = jvalue_is_nothing(&c->args[2]) ? -1 : jinja_want_int(r, &c->args[2]);
	return jvalue_string_of(jstr_replace(r, s, from, to, max), false);
}

/* string and safe: the latter is markup whatever it was. */
static struct jvalue filter_string(struct jrun *r, const struct jcall *c)
{
	return jvalue_string_of(jvalue_string(r, c->self), c->how || c->self->markup);
}

static struct jvalue filter_format(struct jrun *r, const struct jcall *c)
{
	const struct jlist l = {.items = c->all->at, .n = c->all->n};
	bool markup = c->self->markup;
	return jvalue_string_of(jstr_format(r, jvalue_string(r, c->self), &l, true, markup), markup);
}

static struct jvalue filter_escape(struct jrun *r, const struct jcall *c)
{
	return jvalue_string_of(jinja_escape(r, c->self), true);
}

static bool is_break(uint32_t c)
{
	return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Python's str.splitlines. */
static struct jlist *split_lines(struct jrun *r, struct jstr s, bool keep)
{
	struct jlist *l = jlist_new(r, 0);
	size_t from = 0, n;
	jrun_charge(r, s.n * JINJA_SEARCH_COST);
	for (size_t i = 0; i < s.n; i += n) {
		uint32_t c;
		n = jstr_char(s, i, &c);
		if (!is_break(c))
			continue;
		if (c == '\r' && i + 1 < s.n && s.at[i + 1] == '\n')
			n = 2;
		jlist_add_part(r, l, s, from, keep ? i + n : i);
		from = i + n;
	}
	if (from < s.n)
		jlist_add_part(r, l, s, from, s.n);
	return l;
}

struct jvalue jinja_splitlines(struct jrun *r, const struct jcall *c)
{
	return jinja_marked_list(split_lines(r, c->self->s, jvalue_true(&c->args[0])), c->self->markup);
}

/* n blanks, or the text of v. */
static struct jstr indentation(struct jrun *r, const struct jvalue *v, int64_t n, uint8_t trust)
{
	if (v->type == JV_STRING)
		return v->s;
	return jstr_repeat(r, (struct jstr){.at = " ", .n = 1, .trust = trust}, jinja_want_int_or(r, v, n));
}

static struct jvalue filter_indent(struct jrun *r, const struct jcall *c)
{
	const struct jvalue nl = jvalue_literal(jname("\n"));
	bool first = jvalue_true(&c->args[1]), blank = jvalue_true(&c->args[2]);
	struct jstr s = jinja_want_string(r, c->self);
	struct jvalue pad = jvalue_string_of(indentation(r, &c->args[0], 4, JTRUST_ALL), false);
	/* With one more newline, the last line counts even if it is unfinished or empty. */
	struct jlist *lines = split_lines(r, jstr_concat(r, (struct jstr[]){s, nl.s}, 2), false);
	struct jlist *parts = jlist_new(r, 0);
	for (size_t i = 0; i < lines->n; i++) {
		struct jvalue line = lines->items[i];
		if (i > 0)
			jlist_add(r, parts, nl);
		if (i == 0 ? first : blank || line.s.n > 0)
			jlist_add(r, parts, pad);
		jlist_add(r, parts, line);
	}
	return jvalue_string_of(jstr_join(r, (struct jstr){.at = ""}, parts, true), c->self->markup);
}

/* Runs of letters, digits and underscores: the pattern \w+. */
static struct jvalue filter_wordcount(struct jrun *r, const struct jcall *c)
{
	struct jstr s = jvalue_string(r, c->self);
	int64_t n = 0;
	bool inside = false;
	for (size_t i = 0; i < s.n;) {
		uint32_t ch;
		i += jstr_char(s, i, &ch);
		bool word = ch == '_' || jinja_is_alnum(ch);
		n += word && !inside;
		inside = word;
	}
	jrun_charge(r, s.n * JINJA_SEARCH_COST * 2);
	return jvalue_int(n, false);
}

/* JSON as transformers has it, without escaping for HTML. */
static struct jvalue filter_tojson(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *separators = &c->args[2];
	struct jjson how = {.ascii = jvalue_true(&c->args[0]),
			    .sort_keys = jvalue_true(&c->args[3]),
			    .item = {.at = ", ", .n = 2},
			    .key = {.at = ": ", .n = 2}};
	struct jstr indent;
	if (!jvalue_is_nothing(&c->args[1])) {
		how.item.n = 1; /* a newline follows */
		indent = indentation(r, &c->args[1], 0, JTRUST_NONE);
		how.indent = &indent;
	}
	if (!jvalue_is_nothing(separators)) {
		if (!jvalue_is_list(separators) || separators->list->n != 2)
			jrun_fail(r, SL_EINVAL, "separators must be two strings");
		how.item = jinja_want_string(r, &separators->list->items[0]);
		how.key = jinja_want_string(r, &separators->list->items[1]);
	}
	return jvalue_string_of(jvalue_json(r, c->self, &how), false);
}

/* ---- numbers ---- */

/* A number's text without white space and single underscores, into out[64]; false: not a number. */
static bool text_number(struct jrun *r, const struct jvalue *v, char *out)
{
	struct jstr s = jstr_strip(v->s, true, true, NULL);
	size_t n = 0;
	bool good = s.n > 0 && s.n < 64;
	for (size_t i = 0; i < s.n && good; i++) {
		bool between = s.at[i] == '_' && i > 0 && i + 1 < s.n && s.at[i - 1] >= '0' && s.at[i - 1] <= '9' &&
			       s.at[i + 1] >= '0' && s.at[i + 1] <= '9';
		good = s.at[i] != '\0' && (s.at[i] != '_' || between) && s.at[i] != 'x' && s.at[i] != 'X';
		if (s.at[i] != '_')
			out[n++] = s.at[i];
	}
	out[n] = '\0';
	jrun_charge(r, 0);
	return good;
}

/* Truncated, if it is an integer of 64 bits. */
static bool to_int(double f, int64_t *out)
{
	if (!(f > -9.2e18 && f < 9.2e18))
		return false;
	*out = (int64_t)f;
	return true;
}

static bool text_double(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return *end == '\0' && end != text;
}

static struct jvalue filter_int(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *v = c->self;
	char text[64], *end;
	bool good = jvalue_is_number(v);
	double f;
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	int64_t i = 0, base = jinja_want_int_or(r, &c->args[1], 10);
	if (base < 2 || base > 36)
		jrun_fail(r, SL_EINVAL, "an integer of base %lld", (long long)base);
	if (v->type == JV_STRING && text_number(r, v, text)) {
		i = strtoll(text, &end, (int)base);
		good = *end == '\0' ? i != INT64_MAX && i != INT64_MIN : text_double(text, &f) && to_int(f, &i);
	} else if (v->type == JV_FLOAT) {
		good = to_int(v->f, &i);
	} else if (good) {
		i = v->i;
	}
	if (good)
		return jvalue_int(i, jvalue_is_number(v) && v->trusted);
	return c->args[0].type != JV_ABSENT ? c->args[0] : jvalue_int(0, true);
}

static struct jvalue filter_float(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *v = c->self;
	char text[64];
	double f = 0;
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	if (jvalue_is_number(v))
		return jvalue_float(jvalue_double(v), v->trusted);
	if (v->type == JV_STRING && text_number(r, v, text) && text_double(text, &f))
		return jvalue_float(f, false);
	return c->args[0].type != JV_ABSENT ? c->args[0] : jvalue_float(0, true);
}

static void want_number(struct jrun *r, const struct jvalue *v)
{
	if (!jvalue_is_number(v))
		jrun_fail(r, SL_EINVAL, "a number expected, not %s", jvalue_type_name(v));
}

static struct jvalue filter_abs(struct jrun *r, const struct jcall *c)
{
	struct jvalue v = *c->self;
	want_number(r, &v);
	if (v.type == JV_FLOAT)
		return jvalue_float(fabs(v.f), v.trusted);
	if (v.i < 0 && __builtin_sub_overflow(0, v.i, &v.i))
		jrun_fail(r, SL_EINVAL, "a number out of range");
	return jvalue_int(v.i, v.trusted);
}

/* Like printf, Python rounds the exact value of the double, halves to even. */
static double round_common(struct jrun *r, double f, int64_t digits)
{
	char text[400];
	if (!isfinite(f) || digits > 30)
		return f;
	if (digits >= 0) {
		snprintf(text, sizeof(text), "%.*f", (int)digits, f);
		return strtod(text, NULL);
	}
	double unit = pow(10, (double)-digits);
	jrun_charge(r, 0);
	return rint(f / unit) * unit;
}

static struct jvalue filter_round(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *v = c->self, *method = &c->args[1];
	want_number(r, v);
	int64_t digits = jinja_want_int_or(r, &c->args[0], 0);
	bool whole = v->type != JV_FLOAT, up = jvalue_text_is(method, "ceil");
	double f = jvalue_double(v);
	if (method->type == JV_ABSENT || jvalue_text_is(method, "common")) {
		if (whole && digits >= 0)
			return jvalue_int(v->i, v->trusted);
		f = round_common(r, f, digits);
		return whole ? jvalue_int((int64_t)f, v->trusted) : jvalue_float(f, v->trusted);
	}
	if (!up && !jvalue_text_is(method, "floor"))
		jrun_fail(r, SL_EINVAL, "round is common, ceil or floor");
	double unit = pow(10, (double)digits);
	f = f * unit;
	return jvalue_float((up ? ceil(f) : floor(f)) / unit, v->trusted);
}

/* ---- any value ---- */

static struct jvalue filter_default(struct jrun *r, const struct jcall *c)
{
	(void)r;
	if (c->self->type != JV_UNDEFINED && (!jvalue_true(&c->args[1]) || jvalue_true(c->self)))
		return *c->self;
	return c->args[0].type != JV_ABSENT ? c->args[0] : jvalue_literal(jname(""));
}

static struct jvalue filter_attr(struct jrun *r, const struct jcall *c)
{
	struct proto_str name = jname_of(jinja_want_string(r, &c->args[0]));
	/* Attributes only: a dictionary's items are not attributes. */
	return c->self->type == JV_DICT ? jvalue_undefined(name) : jvalue_attr(r, c->self, name);
}

static struct jvalue filter_length(struct jrun *r, const struct jcall *c)
{
	return jvalue_int(jvalue_length(r, c->self), false);
}

const struct jfunction jinja_filters[] = {
    {"trim", "chars", 0, jinja_strip, JSTRIP_LEFT | JSTRIP_RIGHT, 0},
    {"length", "", 0, filter_length, 0, 0},
    {"count", "", 0, filter_length, 0, 0},
    {"upper", "", 0, filter_case, JCASE_UPPER, 0},
    {"lower", "", 0, filter_case, JCASE_LOWER, 0},
    {"title", "", 0, filter_case, JCASE_TITLE_FILTER, 0},
    {"capitalize", "", 0, filter_case, JCASE_CAPITAL, 0},
    {"default", "default_value,boolean", 0, filter_default, 0, 0},
    {"d", "default_value,boolean", 0, filter_default, 0, 0},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, filter_tojson, 0, 0},
    {"string", "", 0, filter_string, false, 0},
    {"replace", "old,new,count", 2, filter_replace, 0, 0},
    {"format", "*", 0, filter_format, 0, 0},
    {"indent", "width,first,blank", 0, filter_indent, 0, 0},
    {"wordcount", "", 0, filter_wordcount, 0, 0},
    {"safe", "", 0, filter_string, true, 0},
    {"escape", "", 0, filter_escape, 0, 0},
    {"e", "", 0, filter_escape, 0, 0},
    {"int", "default,base", 0, filter_int, 0, 0},
    {"float", "default", 0, filter_float, 0, 0},
    {"abs", "", 0, filter_abs, 0, 0},
    {"round", "precision,method", 0, filter_round, 0, 0},
    {"attr", "name", 1, filter_attr, 0, 0},
    {0},
};
