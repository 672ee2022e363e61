/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods of strings: Python's. Places in a text are characters, as there.
 */
#include <string.h>
#include <utf8proc.h>

#include "engine/jinja/jinja.h"

#define UNUSED (void)r, (void)self, (void)args, (void)all

static int strip_method(struct jrun *r, const struct jvalue *self, const struct jvalue *set, bool left, bool right,
			struct jvalue *out)
{
	bool has = !jvalue_is_nothing(set);
	int rc = has ? jinja_want_string(r, set) : 0;
	if (rc == 0)
		rc = jrun_charge(r, JINJA_SEARCH_COST * self->s.n * (has ? set->s.n + 1 : 1));
	if (rc == 0)
		*out = jvalue_string_of(jstr_strip(self->s, left, right, has ? &set->s : NULL));
	out->markup = self->markup;
	return rc;
}

static int method_strip(JSELF)
{
	UNUSED;
	return strip_method(r, self, &args[0], true, true, out);
}

static int method_lstrip(JSELF)
{
	UNUSED;
	return strip_method(r, self, &args[0], true, false, out);
}

static int method_rstrip(JSELF)
{
	UNUSED;
	return strip_method(r, self, &args[0], false, true, out);
}

static int case_method(struct jrun *r, const struct jvalue *self, enum jcase to, struct jvalue *out)
{
	*out = *self;
	return jstr_case(r, self->s, to, &out->s);
}

static int method_upper(JSELF)
{
	UNUSED;
	return case_method(r, self, JCASE_UPPER, out);
}

static int method_lower(JSELF)
{
	UNUSED;
	return case_method(r, self, JCASE_LOWER, out);
}

static int method_title(JSELF)
{
	UNUSED;
	return case_method(r, self, JCASE_TITLE, out);
}

static int method_capitalize(JSELF)
{
	UNUSED;
	return case_method(r, self, JCASE_CAPITAL, out);
}

/* The part of the text that args[1:] choose; *gone when they begin behind its end, where not even
 * an empty text is found. */
static int part_of(struct jrun *r, const struct jvalue *self, const struct jvalue *args, struct jstr *out,
		   size_t *skipped, bool *gone)
{
	const struct jvalue *parts[3] = {jvalue_is_nothing(&args[1]) ? NULL : &args[1],
					 jvalue_is_nothing(&args[2]) ? NULL : &args[2], NULL};
	struct jvalue v;
	int64_t n;
	*out = self->s;
	*skipped = 0;
	*gone = false;
	if (parts[0] == NULL && parts[1] == NULL)
		return 0;
	int rc = jvalue_slice(r, self, parts, &v);
	if (rc == 0)
		rc = jvalue_length(r, self, &n);
	if (rc != 0)
		return rc;
	*out = v.s;
	*skipped = (size_t)(v.s.at - self->s.at);
	int64_t from = parts[0] != NULL && parts[0]->type == JV_INT ? parts[0]->i : 0;
	*gone = from > n;
	return 0;
}

static bool affix_is(struct jstr s, struct jstr affix, bool at_end)
{
	return s.n >= affix.n && (affix.n == 0 || memcmp(at_end ? s.at + s.n - affix.n : s.at, affix.at, affix.n) == 0);
}

static int affix_method(struct jrun *r, const struct jvalue *self, const struct jvalue *args, bool at_end,
			struct jvalue *out)
{
	struct jstr s;
	size_t skipped;
	bool yes = false, gone;
	int rc = part_of(r, self, args, &s, &skipped, &gone);
	if (rc == 0 && args[0].type == JV_TUPLE) {
		for (size_t i = 0; rc == 0 && !yes && i < args[0].list->n; i++) {
			rc = jinja_want_string(r, &args[0].list->items[i]);
			if (rc == 0)
				yes = !gone && affix_is(s, args[0].list->items[i].s, at_end);
		}
	} else if (rc == 0) {
		rc = jinja_want_string(r, &args[0]);
		if (rc == 0)
			yes = !gone && affix_is(s, args[0].s, at_end);
	}
	*out = jvalue_bool(yes);
	return rc;
}

static int method_startswith(JSELF)
{
	UNUSED;
	return affix_method(r, self, args, false, out);
}

static int method_endswith(JSELF)
{
	UNUSED;
	return affix_method(r, self, args, true, out);
}

static int remove_affix(struct jrun *r, const struct jvalue *self, const struct jvalue *affix, bool at_end,
			struct jvalue *out)
{
	int rc = jinja_want_string(r, affix);
	*out = *self;
	if (rc == 0 && affix_is(self->s, affix->s, at_end))
		out->s = jstr_sub(self->s, at_end ? 0 : affix->s.n, self->s.n - affix->s.n);
	return rc;
}

static int method_removeprefix(JSELF)
{
	UNUSED;
	return remove_affix(r, self, &args[0], false, out);
}

static int method_removesuffix(JSELF)
{
	UNUSED;
	return remove_affix(r, self, &args[0], true, out);
}

static int split_method(struct jrun *r, const struct jvalue *self, const struct jvalue *args, bool right,
			struct jvalue *out)
{
	struct jlist *l;
	int64_t max = -1;
	bool has = !jvalue_is_nothing(&args[0]);
	int rc = has ? jinja_want_string(r, &args[0]) : 0;
	if (rc == 0 && args[1].type != JV_ABSENT)
		rc = jinja_want_int(r, &args[1], &max);
	if (rc == 0)
		rc = jstr_split(r, self->s, has ? &args[0].s : NULL, max, right, &l);
	if (rc != 0)
		return rc;
	jinja_mark_parts(self, l);
	*out = jvalue_list_of(l);
	return 0;
}

static int method_split(JSELF)
{
	UNUSED;
	return split_method(r, self, args, false, out);
}

static int method_rsplit(JSELF)
{
	UNUSED;
	return split_method(r, self, args, true, out);
}

static int partition_method(struct jrun *r, const struct jvalue *self, const struct jvalue *sep, bool right,
			    struct jvalue *out)
{
	struct jlist *l, *three = jlist_new(r, 3);
	const struct jvalue none = jvalue_literal((struct proto_str){"", 0});
	if (three == NULL)
		return r->err->code;
	int rc = jinja_want_string(r, sep);
	if (rc == 0)
		rc = jstr_split(r, self->s, &sep->s, 1, right, &l);
	if (rc != 0)
		return rc;
	bool found = l->n == 2;
	three->items[0] = found || !right ? l->items[0] : none;
	three->items[1] = found ? *sep : none;
	three->items[2] = found ? l->items[1] : right ? l->items[0] : none;
	three->n = 3;
	for (size_t i = 0; i < three->n; i++) /* the separator too is a part of the text */
		three->items[i].markup = self->markup;
	*out = jvalue_tuple_of(three);
	return 0;
}

static int method_partition(JSELF)
{
	UNUSED;
	return partition_method(r, self, &args[0], false, out);
}

static int method_rpartition(JSELF)
{
	UNUSED;
	return partition_method(r, self, &args[0], true, out);
}

static int method_replace(JSELF)
{
	int64_t max = -1;
	(void)all;
	int rc = jinja_want_string(r, &args[0]);
	if (rc == 0)
		rc = jinja_want_string(r, &args[1]);
	if (rc == 0 && args[2].type != JV_ABSENT)
		rc = jinja_want_int(r, &args[2], &max);
	struct jvalue to = args[1];
	if (rc == 0 && self->markup)
		rc = jinja_escape(r, &args[1], &to);
	*out = *self;
	return rc == 0 ? jstr_replace(r, self->s, args[0].s, to.s, max, &out->s) : rc;
}

static int method_join(JSELF)
{
	struct jlist *l;
	(void)all;
	int rc = jvalue_items(r, &args[0], &l);
	*out = *self;
	if (rc == 0 && self->markup)
		return jinja_join_markup(r, self, l, out);
	return rc == 0 ? jstr_join(r, self->s, l, false, &out->s) : rc;
}

/* The characters before the found place; -1 when there is none. */
static int find_method(struct jrun *r, const struct jvalue *self, const struct jvalue *args, bool last, int64_t *out)
{
	struct jstr s;
	size_t skipped;
	bool gone;
	int rc = jinja_want_string(r, &args[0]);
	if (rc == 0)
		rc = part_of(r, self, args, &s, &skipped, &gone);
	if (rc == 0)
		rc = jrun_charge(r, self->s.n * JINJA_SEARCH_COST);
	if (rc != 0)
		return rc;
	const char *hit = NULL, *at = s.at, *next;
	*out = -1;
	if (gone)
		return 0;
	if (args[0].s.n == 0) {
		hit = last ? s.at + s.n : s.at;
	} else {
		while ((next = memmem(at, (size_t)(s.at + s.n - at), args[0].s.at, args[0].s.n)) != NULL) {
			hit = next;
			at = next + 1;
			rc = jrun_charge(r, args[0].s.n);
			if (!last || rc != 0)
				break;
		}
	}
	if (hit != NULL)
		*out = (int64_t)jstr_chars(jstr_sub(self->s, 0, skipped + (size_t)(hit - s.at)));
	return rc;
}

static int method_find(JSELF)
{
	int64_t at = -1;
	(void)all;
	int rc = find_method(r, self, args, false, &at);
	*out = jvalue_int(at, false);
	return rc;
}

static int method_rfind(JSELF)
{
	int64_t at = -1;
	(void)all;
	int rc = find_method(r, self, args, true, &at);
	*out = jvalue_int(at, false);
	return rc;
}

static int method_string_index(JSELF)
{
	int64_t at = -1;
	(void)all;
	int rc = find_method(r, self, args, false, &at);
	if (rc == 0 && at < 0)
		return jrun_fail(r, SL_EINVAL, "a text that is not in the other");
	*out = jvalue_int(at, false);
	return rc;
}

static int method_string_count(JSELF)
{
	struct jlist *l;
	int rc = jinja_want_string(r, &args[0]);
	(void)all;
	if (rc == 0 && args[0].s.n == 0) {
		*out = jvalue_int((int64_t)jstr_chars(self->s) + 1, false);
		return 0;
	}
	if (rc == 0)
		rc = jstr_split(r, self->s, &args[0].s, -1, false, &l);
	if (rc == 0)
		*out = jvalue_int((int64_t)l->n - 1, false);
	return rc;
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

/* Whether there are characters, and all are of these kinds. */
static int all_are(struct jrun *r, const struct jvalue *self, int kinds, struct jvalue *out)
{
	bool yes = self->s.n > 0;
	for (size_t i = 0; i < self->s.n && yes;) {
		uint32_t c;
		i += jstr_char(self->s, i, &c);
		yes = (category(c) & kinds) != 0;
	}
	*out = jvalue_bool(yes);
	return jrun_charge(r, self->s.n * JINJA_SEARCH_COST * 2);
}

static int method_isdigit(JSELF)
{
	UNUSED;
	return all_are(r, self, CAT_DIGIT, out);
}

static int method_isalpha(JSELF)
{
	UNUSED;
	return all_are(r, self, CAT_ALPHA, out);
}

static int method_isalnum(JSELF)
{
	UNUSED;
	return all_are(r, self, CAT_ALPHA | CAT_DIGIT, out);
}

static int method_isspace(JSELF)
{
	UNUSED;
	return all_are(r, self, CAT_SPACE, out);
}

static int pad_method(struct jrun *r, const struct jvalue *self, const struct jvalue *args, bool left, bool right,
		      struct jvalue *out)
{
	struct jstr fill = {.at = " ", .n = 1, .trust = JTRUST_ALL}, parts[3];
	int64_t width = 0, n = (int64_t)jstr_chars(self->s);
	int rc = jinja_want_int(r, &args[0], &width);
	if (rc == 0 && args[1].type != JV_ABSENT) {
		struct jvalue with = args[1];
		rc = jinja_want_string(r, &args[1]);
		if (rc == 0 && self->markup)
			rc = jinja_escape(r, &args[1], &with);
		if (rc == 0 && jstr_chars(with.s) != 1)
			rc = jrun_fail(r, SL_EINVAL, "text is filled with one character");
		fill = with.s;
	}
	int64_t pad = width > n ? width - n : 0, before = 0;
	if (left && right)
		before = pad / 2 + (pad & width & 1);
	else if (left)
		before = pad;
	parts[1] = self->s;
	if (rc == 0)
		rc = jstr_repeat(r, fill, before, &parts[0]);
	if (rc == 0)
		rc = jstr_repeat(r, fill, pad - before, &parts[2]);
	*out = *self;
	return rc == 0 ? jstr_concat(r, parts, 3, &out->s) : rc;
}

static int method_ljust(JSELF)
{
	UNUSED;
	return pad_method(r, self, args, false, true, out);
}

static int method_rjust(JSELF)
{
	UNUSED;
	return pad_method(r, self, args, true, false, out);
}

static int method_center(JSELF)
{
	UNUSED;
	return pad_method(r, self, args, true, true, out);
}

const struct jfunction jinja_string_methods[] = {
    {"strip", "chars", 0, method_strip, JV_STRING},
    {"lstrip", "chars", 0, method_lstrip, JV_STRING},
    {"rstrip", "chars", 0, method_rstrip, JV_STRING},
    {"split", "sep,maxsplit", 0, method_split, JV_STRING},
    {"rsplit", "sep,maxsplit", 0, method_rsplit, JV_STRING},
    {"splitlines", "keepends", 0, jinja_method_splitlines, JV_STRING},
    {"partition", "sep", 1, method_partition, JV_STRING},
    {"rpartition", "sep", 1, method_rpartition, JV_STRING},
    {"startswith", "prefix,start,end", 1, method_startswith, JV_STRING},
    {"endswith", "suffix,start,end", 1, method_endswith, JV_STRING},
    {"removeprefix", "prefix", 1, method_removeprefix, JV_STRING},
    {"removesuffix", "suffix", 1, method_removesuffix, JV_STRING},
    {"replace", "old,new,count", 2, method_replace, JV_STRING},
    {"upper", "", 0, method_upper, JV_STRING},
    {"lower", "", 0, method_lower, JV_STRING},
    {"title", "", 0, method_title, JV_STRING},
    {"capitalize", "", 0, method_capitalize, JV_STRING},
    {"join", "iterable", 1, method_join, JV_STRING},
    {"find", "sub,start,end", 1, method_find, JV_STRING},
    {"rfind", "sub,start,end", 1, method_rfind, JV_STRING},
    {"index", "sub,start,end", 1, method_string_index, JV_STRING},
    {"count", "sub", 1, method_string_count, JV_STRING},
    {"isdigit", "", 0, method_isdigit, JV_STRING},
    {"isalpha", "", 0, method_isalpha, JV_STRING},
    {"isalnum", "", 0, method_isalnum, JV_STRING},
    {"isspace", "", 0, method_isspace, JV_STRING},
    {"islower", "", 0, jinja_method_islower, JV_STRING},
    {"isupper", "", 0, jinja_method_isupper, JV_STRING},
    {"ljust", "width,fillchar", 1, method_ljust, JV_STRING},
    {"rjust", "width,fillchar", 1, method_rjust, JV_STRING},
    {"center", "width,fillchar", 1, method_center, JV_STRING},
    {0},
};
