/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods of strings: Python's. Positions in a text are characters, as there.
 */
#include <utf8proc.h>

#include "engine/jinja/jinja.h"

/* upper, lower, title, capitalize. */
static struct jvalue method_case(struct jrun *r, const struct jcall *c)
{
	return jvalue_string_of(jstr_case(r, c->self->s, (enum jcase)c->how), c->self->markup);
}

/* The substring that a method searches: selected by args[1:]. */
struct range {
	struct jstr s;
	size_t skipped; /* bytes before it */
	bool gone;      /* begins past the end: not even the empty string is found */
};

static struct range range_of(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *parts[3] = {jvalue_is_nothing(&c->args[1]) ? NULL : &c->args[1],
					 jvalue_is_nothing(&c->args[2]) ? NULL : &c->args[2], NULL};
	if (parts[0] == NULL && parts[1] == NULL)
		return (struct range){.s = c->self->s};
	struct jstr s = jvalue_slice(r, c->self, parts).s;
	int64_t from = parts[0] != NULL && parts[0]->type == JV_INT ? parts[0]->i : 0;
	return (struct range){
	    .s = s, .skipped = (size_t)(s.at - c->self->s.at), .gone = from > jvalue_length(r, c->self)};
}

static bool affix_is(struct jstr s, struct jstr affix, bool at_end)
{
	return s.n >= affix.n && (affix.n == 0 || memcmp(at_end ? s.at + s.n - affix.n : s.at, affix.at, affix.n) == 0);
}

/* startswith and endswith; any text of a tuple. */
static struct jvalue method_has_affix(struct jrun *r, const struct jcall *c)
{
	struct range in = range_of(r, c);
	bool many = c->args[0].type == JV_TUPLE, yes = false;
	const struct jvalue *affixes = many ? c->args[0].list->items : &c->args[0];
	for (size_t i = 0, n = many ? c->args[0].list->n : 1; i < n && !yes; i++) {
		struct jstr affix = jinja_want_string(r, &affixes[i]);
		yes = !in.gone && affix_is(in.s, affix, c->how);
	}
	return jvalue_bool(yes);
}

/* removeprefix and removesuffix. */
static struct jvalue method_remove_affix(struct jrun *r, const struct jcall *c)
{
	struct jstr affix = jinja_want_string(r, &c->args[0]), s = c->self->s;
	if (affix_is(s, affix, c->how))
		s = jstr_sub(s, c->how ? 0 : affix.n, s.n - affix.n);
	return jvalue_string_of(s, c->self->markup);
}

struct jvalue jinja_marked_list(struct jlist *l, bool markup)
{
	for (size_t i = 0; i < l->n; i++)
		l->items[i].markup = markup;
	return jvalue_list_of(l);
}

/* split and rsplit. */
static struct jvalue method_split(struct jrun *r, const struct jcall *c)
{
	struct jstr sep = {0};
	bool has = !jvalue_is_nothing(&c->args[0]);
	if (has)
		sep = jinja_want_string(r, &c->args[0]);
	int64_t max = jinja_want_int_or(r, &c->args[1], -1);
	return jinja_marked_list(jstr_split(r, c->self->s, has ? &sep : NULL, max, c->how), c->self->markup);
}

/* partition and rpartition. */
static struct jvalue method_partition(struct jrun *r, const struct jcall *c)
{
	struct jlist *three = jlist_new(r, 3);
	const struct jvalue none = jvalue_literal(jname(""));
	struct jstr sep = jinja_want_string(r, &c->args[0]);
	struct jlist *l = jstr_split(r, c->self->s, &sep, 1, c->how);
	bool found = l->n == 2;
	jlist_put(three, found || !c->how ? l->items[0] : none);
	jlist_put(three, found ? c->args[0] : none);
	jlist_put(three, found ? l->items[1] : c->how ? l->items[0] : none);
	(void)jinja_marked_list(three, c->self->markup); /* the separator belongs to the text too */
	return jvalue_tuple_of(three);
}

static struct jvalue method_replace(struct jrun *r, const struct jcall *c)
{
	struct jstr from = jinja_want_string(r, &c->args[0]), to = jinja_want_string(r, &c->args[1]);
	int64_t max = jinja_want_int_or(r, &c->args[2], -1);
	if (c->self->markup)
		to = jinja_escape(r, &c->args[1]);
	return jvalue_string_of(jstr_replace(r, c->self->s, from, to, max), c->self->markup);
}

static struct jvalue method_join(struct jrun *r, const struct jcall *c)
{
	const struct jlist *l = jvalue_items(r, &c->args[0]);
	if (!c->self->markup)
		return jvalue_string_of(jstr_join(r, c->self->s, l, false), false);
	struct jlist *parts = jlist_new(r, l->n);
	for (size_t i = 0; i < l->n; i++)
		jlist_put(parts, jvalue_string_of(jinja_escape(r, &l->items[i]), true));
	return jvalue_string_of(jstr_join(r, c->self->s, parts, true), true);
}

/* find, rfind and index: the characters before the match. */
enum { FIND, RFIND, INDEX };

static struct jvalue method_find(struct jrun *r, const struct jcall *c)
{
	struct jstr what = jinja_want_string(r, &c->args[0]);
	struct range in = range_of(r, c);
	const char *hit = NULL, *at = in.s.at, *end = at + in.s.n, *next;
	jrun_charge(r, c->self->s.n * JINJA_SEARCH_COST);
	if (what.n == 0 && !in.gone)
		hit = c->how == RFIND ? end : at;
	while (what.n > 0 && !in.gone && (next = memmem(at, (size_t)(end - at), what.at, what.n)) != NULL) {
		hit = next;
		at = next + 1;
		jrun_charge(r, what.n);
		if (c->how != RFIND)
			break;
	}
	if (hit == NULL && c->how == INDEX)
		jrun_fail(r, SL_EINVAL, "a text that is not in the other");
	if (hit == NULL)
		return jvalue_int(-1, false);
	struct jstr before = jstr_sub(c->self->s, 0, in.skipped + (size_t)(hit - in.s.at));
	return jvalue_int((int64_t)jstr_chars(before), false);
}

static struct jvalue method_count(struct jrun *r, const struct jcall *c)
{
	struct jstr what = jinja_want_string(r, &c->args[0]);
	size_t n = what.n == 0 ? jstr_chars(c->self->s) + 1 : jstr_split(r, c->self->s, &what, -1, false)->n - 1;
	return jvalue_int((int64_t)n, false);
}

enum { CAT_ALPHA = 1, CAT_DIGIT = 2, CAT_SPACE = 4 };

static int category(uint32_t c)
{
	if (jinja_is_alpha(c))
		return CAT_ALPHA;
	if (utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND)
		return CAT_DIGIT;
	return jinja_is_space(c) ? CAT_SPACE : 0;
}

/* Whether there are characters, and all are of the kinds in how. */
static struct jvalue method_is(struct jrun *r, const struct jcall *c)
{
	struct jstr s = c->self->s;
	bool yes = s.n > 0;
	for (size_t i = 0; i < s.n && yes;) {
		uint32_t ch;
		i += jstr_char(s, i, &ch);
		yes = (category(ch) & c->how) != 0;
	}
	jrun_charge(r, s.n * JINJA_SEARCH_COST * 2);
	return jvalue_bool(yes);
}

/* ljust, rjust and center: the padded sides. */
enum { PAD_LEFT = 1, PAD_RIGHT = 2 };

static struct jvalue method_pad(struct jrun *r, const struct jcall *c)
{
	struct jstr fill = {.at = " ", .n = 1, .trust = JTRUST_ALL}, parts[3];
	int64_t width = jinja_want_int(r, &c->args[0]), n = (int64_t)jstr_chars(c->self->s);
	if (c->args[1].type != JV_ABSENT) {
		fill = jinja_want_string(r, &c->args[1]);
		if (c->self->markup)
			fill = jinja_escape(r, &c->args[1]);
		if (jstr_chars(fill) != 1)
			jrun_fail(r, SL_EINVAL, "text is filled with one character");
	}
	int64_t pad = width > n ? width - n : 0;
	int64_t before = c->how == PAD_RIGHT ? 0 : c->how == PAD_LEFT ? pad : pad / 2 + (pad & width & 1);
	parts[0] = jstr_repeat(r, fill, before);
	parts[1] = c->self->s;
	parts[2] = jstr_repeat(r, fill, pad - before);
	return jvalue_string_of(jstr_concat(r, parts, 3), c->self->markup);
}

const struct jfunction jinja_string_methods[] = {
    {"strip", "chars", 0, jinja_strip, JSTRIP_LEFT | JSTRIP_RIGHT, JV_STRING},
    {"lstrip", "chars", 0, jinja_strip, JSTRIP_LEFT, JV_STRING},
    {"rstrip", "chars", 0, jinja_strip, JSTRIP_RIGHT, JV_STRING},
    {"split", "sep,maxsplit", 0, method_split, false, JV_STRING},
    {"rsplit", "sep,maxsplit", 0, method_split, true, JV_STRING},
    {"splitlines", "keepends", 0, jinja_splitlines, 0, JV_STRING},
    {"partition", "sep", 1, method_partition, false, JV_STRING},
    {"rpartition", "sep", 1, method_partition, true, JV_STRING},
    {"startswith", "prefix,start,end", 1, method_has_affix, false, JV_STRING},
    {"endswith", "suffix,start,end", 1, method_has_affix, true, JV_STRING},
    {"removeprefix", "prefix", 1, method_remove_affix, false, JV_STRING},
    {"removesuffix", "suffix", 1, method_remove_affix, true, JV_STRING},
    {"replace", "old,new,count", 2, method_replace, 0, JV_STRING},
    {"upper", "", 0, method_case, JCASE_UPPER, JV_STRING},
    {"lower", "", 0, method_case, JCASE_LOWER, JV_STRING},
    {"title", "", 0, method_case, JCASE_TITLE, JV_STRING},
    {"capitalize", "", 0, method_case, JCASE_CAPITAL, JV_STRING},
    {"join", "iterable", 1, method_join, 0, JV_STRING},
    {"find", "sub,start,end", 1, method_find, FIND, JV_STRING},
    {"rfind", "sub,start,end", 1, method_find, RFIND, JV_STRING},
    {"index", "sub,start,end", 1, method_find, INDEX, JV_STRING},
    {"count", "sub", 1, method_count, 0, JV_STRING},
    {"isdigit", "", 0, method_is, CAT_DIGIT, JV_STRING},
    {"isalpha", "", 0, method_is, CAT_ALPHA, JV_STRING},
    {"isalnum", "", 0, method_is, CAT_ALPHA | CAT_DIGIT, JV_STRING},
    {"isspace", "", 0, method_is, CAT_SPACE, JV_STRING},
    {"islower", "", 0, jinja_is_case, JCASE_LOWER, JV_STRING},
    {"isupper", "", 0, jinja_is_case, JCASE_UPPER, JV_STRING},
    {"ljust", "width,fillchar", 1, method_pad, PAD_RIGHT, JV_STRING},
    {"rjust", "width,fillchar", 1, method_pad, PAD_LEFT, JV_STRING},
    {"center", "width,fillchar", 1, method_pad, PAD_LEFT | PAD_RIGHT, JV_STRING},
    {0},
};
