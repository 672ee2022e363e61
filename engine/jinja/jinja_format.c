/* SPDX-License-Identifier: Apache-2.0
 *
 * Python's operator % on text: the specifications of C, with arguments from a list.
 */
#include <stdio.h>

#include "engine/jinja/jinja.h"

struct spec {
	bool left, zero, plus, space, alternate;
	int width, precision; /* precision -1: none */
	char kind;
};

static size_t read_digits(struct jstr f, size_t i, int *out)
{
	enum { MOST = 100000000 }; /* far beyond every bound on text */
	for (*out = 0; i < f.n && f.at[i] >= '0' && f.at[i] <= '9'; i++)
		*out = *out < MOST ? *out * 10 + (f.at[i] - '0') : MOST;
	return i;
}

/* Reads a specification behind the %. */
static size_t read_spec(struct jstr f, size_t i, struct spec *out)
{
	*out = (struct spec){.precision = -1};
	for (; i < f.n && f.at[i] != '\0' && strchr("-0+ #", f.at[i]) != NULL; i++) {
		out->left |= f.at[i] == '-';
		out->zero |= f.at[i] == '0';
		out->plus |= f.at[i] == '+';
		out->space |= f.at[i] == ' ';
		out->alternate |= f.at[i] == '#';
	}
	i = read_digits(f, i, &out->width);
	if (i < f.n && f.at[i] == '.')
		i = read_digits(f, i + 1, &out->precision);
	out->kind = i < f.n ? f.at[i] : '\0';
	return i + 1;
}

static struct jstr format_number(struct jrun *r, const struct spec *spec, const struct jvalue *v)
{
	char format[16], text[512], *at = format;
	bool real = strchr("eEfFgG", spec->kind) != NULL;
	int n;
	if (!jvalue_is_number(v))
		jrun_fail(r, SL_EINVAL, "%%%c of %s", spec->kind, jvalue_type_name(v));
	if (spec->width > 64 || spec->precision > 64)
		jrun_fail(r, SL_ELIMIT, "a number of more than 64 digits");
	*at++ = '%';
	if (spec->plus)
		*at++ = '+';
	if (spec->space)
		*at++ = ' ';
	if (spec->alternate)
		*at++ = '#';
	if (spec->zero && !spec->left)
		*at++ = '0';
	int width = spec->left ? 0 : spec->width;
	if (real) {
		memcpy(at, (char[]){'*', '.', '*', spec->kind, '\0'}, 5);
		int precision = spec->precision < 0 ? 6 : spec->precision;
		n = snprintf(text, sizeof(text), format, width, precision, jvalue_double(v));
	} else {
		char kind = spec->kind == 'i' || spec->kind == 'u' ? 'd' : spec->kind;
		if (v->type == JV_FLOAT && !(v->f > -9e18 && v->f < 9e18))
			jrun_fail(r, SL_EINVAL, "a number out of range");
		int64_t i = v->type == JV_FLOAT ? (int64_t)v->f : v->i;
		if (i < 0 && kind != 'd')
			jrun_fail(r, SL_EINVAL, "%%%c of a negative number", kind);
		memcpy(at, (char[]){'*', 'l', 'l', kind, '\0'}, 5);
		n = snprintf(text, sizeof(text), format, width, (long long)i);
	}
	if (n < 0 || (size_t)n >= sizeof(text))
		jrun_fail(r, SL_ELIMIT, "a number of too many digits");
	char *copy = memcpy(jrun_alloc(r, (size_t)n + 1), text, (size_t)n);
	return (struct jstr){.at = copy, .n = (size_t)n, .trust = v->trusted ? JTRUST_ALL : JTRUST_NONE};
}

static void format_one(struct jrun *r, const struct spec *spec, const struct jvalue *v, bool escape,
		       struct jlist *parts)
{
	struct jstr s, blank = {.at = " ", .n = 1, .trust = JTRUST_ALL};
	if (spec->kind == 's') {
		s = escape ? jinja_escape(r, v) : jvalue_string(r, v);
		if (spec->precision >= 0)
			s = jstr_sub(s, 0, jstr_offset(s, (size_t)spec->precision));
	} else if (spec->kind != '\0' && strchr("diuxXoeEfFgG", spec->kind) != NULL) {
		s = format_number(r, spec, v);
	} else {
		jrun_fail(r, SL_EUNSUPPORTED, "the format %%%c is not supported",
			  spec->kind >= ' ' && spec->kind < 0x7F ? spec->kind : '?');
	}
	struct jvalue text = jvalue_string_of(s, false);
	struct jvalue blanks = jvalue_string_of(jstr_repeat(r, blank, spec->width - (int64_t)jstr_chars(s)), false);
	jlist_add(r, parts, spec->left ? text : blanks);
	jlist_add(r, parts, spec->left ? blanks : text);
}

struct jstr jstr_format(struct jrun *r, struct jstr f, const struct jlist *args, bool exact, bool escape)
{
	struct jlist *parts = jlist_new(r, 0);
	size_t i = 0, used = 0;
	while (i < f.n) {
		const char *hit = memchr(f.at + i, '%', f.n - i);
		size_t at = hit ? (size_t)(hit - f.at) : f.n;
		struct spec spec;
		jlist_add_part(r, parts, f, i, at);
		if (at == f.n)
			break;
		i = read_spec(f, at + 1, &spec);
		if (spec.kind == '%')
			jlist_add_part(r, parts, f, i - 1, i);
		else if (used == args->n)
			jrun_fail(r, SL_EINVAL, "not enough values for the format");
		else
			format_one(r, &spec, &args->items[used++], escape, parts);
	}
	if (exact && used < args->n)
		jrun_fail(r, SL_EINVAL, "too many values for the format");
	return jstr_join(r, (struct jstr){.at = ""}, parts, true);
}
