/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters, tests and methods: one table each. The parser looks names and argument counts up here,
 * so what a table lacks does not compile.
 */
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja.h"

#define SELF                                                                                       \
	struct jrun *r, const struct jvalue *self, const struct jvalue *args, int n,               \
	    struct jvalue *out

static int want_string(struct jrun *r, const struct jvalue *v)
{
	if (v->type == JV_STRING)
		return 0;
	if (v->type == JV_UNDEFINED)
		return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined",
				 v->name.n < 64 ? (int)v->name.n : 64, v->name.at);
	return jrun_fail(r, SL_EINVAL, "a string expected, not %s", jvalue_type_name(v));
}

static int want_strings(struct jrun *r, const struct jvalue *self, const struct jvalue *args, int n)
{
	int rc = want_string(r, self);
	for (int i = 0; i < n && rc == 0; i++)
		rc = want_string(r, &args[i]);
	return rc;
}

/* ---- text ---- */

/* Python's str.isspace. */
static bool is_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
	       c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool in_set(const char *at, int len, const struct jstr *set)
{
	return memmem(set->at, set->n, at, (size_t)len) != NULL;
}

/* Strips white space, or the characters of set. */
static struct jstr strip(struct jstr s, bool left, bool right, const struct jstr *set)
{
	uint32_t c;
	while (left && s.n > 0) {
		int len = utf8_decode((const uint8_t *)s.at, s.n, &c);
		if (len <= 0 || !(set ? in_set(s.at, len, set) : is_space(c)))
			break;
		s = jstr_sub(s, (size_t)len, s.n - (size_t)len);
	}
	while (right && s.n > 0) {
		size_t at = s.n - 1;
		while (at > 0 && ((uint8_t)s.at[at] & 0xC0) == 0x80)
			at--;
		int len = utf8_decode((const uint8_t *)s.at + at, s.n - at, &c);
		if (len <= 0 || !(set ? in_set(s.at + at, len, set) : is_space(c)))
			break;
		s = jstr_sub(s, 0, at);
	}
	return s;
}

static int do_strip(struct jrun *r, const struct jvalue *self, const struct jvalue *args, int n,
		    bool left, bool right, struct jvalue *out)
{
	int rc = want_strings(r, self, args, n);
	if (rc == 0)
		rc = jrun_charge(r, n > 0 ? self->s.n * (args[0].s.n + 1) : self->s.n);
	if (rc == 0)
		*out = jvalue_string_of(strip(self->s, left, right, n > 0 ? &args[0].s : NULL));
	return rc;
}

static int method_strip(SELF)
{
	return do_strip(r, self, args, n, true, true, out);
}

static int method_lstrip(SELF)
{
	return do_strip(r, self, args, n, true, false, out);
}

static int method_rstrip(SELF)
{
	return do_strip(r, self, args, n, false, true, out);
}

static int filter_trim(SELF)
{
	struct jvalue text = *self;
	int rc = jvalue_string(r, self, &text.s);
	text.type = JV_STRING;
	return rc == 0 ? do_strip(r, &text, args, n, true, true, out) : rc;
}

/* Letters beyond ASCII change in ways that need tables (and context): refused, not guessed. */
static int change_case(struct jrun *r, const struct jvalue *self, char first, struct jvalue *out)
{
	int rc = want_string(r, self);
	if (rc != 0)
		return rc;
	char *at = jrun_alloc(r, self->s.n + 1);
	if (at == NULL)
		return r->err->code;
	for (size_t i = 0; i < self->s.n; i++) {
		char c = self->s.at[i];
		if ((uint8_t)c >= 0x80)
			return jrun_fail(r, SL_EUNSUPPORTED, "upper or lower case of text beyond ASCII");
		at[i] = c >= first && c < first + 26 ? (char)(c ^ 0x20) : c;
	}
	*out = *self;
	out->s.at = at;
	return jrun_charge(r, self->s.n);
}

static int filter_upper(SELF)
{
	(void)args, (void)n;
	return change_case(r, self, 'a', out);
}

static int filter_lower(SELF)
{
	(void)args, (void)n;
	return change_case(r, self, 'A', out);
}

static int method_startswith(SELF)
{
	int rc = want_strings(r, self, args, n);
	if (rc == 0)
		*out = jvalue_bool(self->s.n >= args[0].s.n &&
				   memcmp(self->s.at, args[0].s.at, args[0].s.n) == 0);
	return rc;
}

static int method_endswith(SELF)
{
	int rc = want_strings(r, self, args, n);
	if (rc == 0)
		*out = jvalue_bool(self->s.n >= args[0].s.n &&
				   memcmp(self->s.at + self->s.n - args[0].s.n, args[0].s.at,
					  args[0].s.n) == 0);
	return rc;
}

/* Pieces of text between the occurrences of sep, with room for one more between each two. */
static int split_text(struct jrun *r, struct jstr text, struct jstr sep, struct jstr **out, size_t *n)
{
	if (sep.n == 0)
		return jrun_fail(r, SL_EINVAL, "an empty separator");
	int rc = jrun_charge(r, text.n);
	size_t count = 1;
	const char *at = text.at, *end = text.at + text.n, *hit;
	while (rc == 0 && (hit = memmem(at, (size_t)(end - at), sep.at, sep.n)) != NULL) {
		count++;
		at = hit + sep.n;
	}
	if (rc != 0)
		return rc;
	struct jstr *parts = jrun_alloc(r, 2 * count * sizeof(*parts));
	if (parts == NULL)
		return r->err->code;
	size_t from = 0;
	for (size_t i = 0; i < count; i++) {
		hit = memmem(text.at + from, text.n - from, sep.at, sep.n);
		size_t to = hit ? (size_t)(hit - text.at) : text.n;
		parts[i] = jstr_sub(text, from, to - from);
		from = to + sep.n;
	}
	*out = parts;
	*n = count;
	return jrun_charge(r, count * sizeof(*parts));
}

static int method_split(SELF)
{
	struct jstr *parts;
	size_t count;
	int rc = want_strings(r, self, args, n);
	if (rc == 0)
		rc = split_text(r, self->s, args[0].s, &parts, &count);
	if (rc != 0)
		return rc;
	struct jvalue *items = jrun_alloc(r, count * sizeof(*items));
	if (items == NULL)
		return r->err->code;
	for (size_t i = 0; i < count; i++)
		items[i] = jvalue_string_of(parts[i]);
	*out = jvalue_list_of(items, count);
	return 0;
}

static int join_parts(struct jrun *r, struct jstr *parts, size_t n, struct jstr sep,
		      struct jvalue *out)
{
	/* parts has room for 2n: put the separators between, from the back. */
	for (size_t i = n; i-- > 0;) {
		parts[2 * i] = parts[i];
		if (i + 1 < n)
			parts[2 * i + 1] = sep;
	}
	out->type = JV_STRING;
	return jstr_concat(r, parts, n == 0 ? 0 : 2 * n - 1, &out->s);
}

static int filter_replace(SELF)
{
	struct jstr *parts;
	size_t count;
	int rc = want_strings(r, self, args, n);
	if (rc == 0)
		rc = split_text(r, self->s, args[0].s, &parts, &count);
	return rc == 0 ? join_parts(r, parts, count, args[1].s, out) : rc;
}

static int filter_join(SELF)
{
	struct jstr sep = {.at = ""};
	if (self->type != JV_LIST)
		return jrun_fail(r, SL_EINVAL, "join of %s", jvalue_type_name(self));
	int rc = n > 0 ? jvalue_string(r, &args[0], &sep) : 0;
	size_t count = self->list.n;
	if (rc == 0)
		rc = jrun_charge(r, count * sizeof(struct jstr));
	if (rc != 0)
		return rc;
	struct jstr *parts = jrun_alloc(r, (2 * count + 1) * sizeof(*parts));
	if (parts == NULL)
		return r->err->code;
	for (size_t i = 0; i < count && rc == 0; i++) {
		struct jvalue item = jlist_at(&self->list, i);
		rc = jvalue_string(r, &item, &parts[i]);
	}
	return rc == 0 ? join_parts(r, parts, count, sep, out) : rc;
}

static int filter_string(SELF)
{
	(void)args, (void)n;
	out->type = JV_STRING;
	return jvalue_string(r, self, &out->s);
}

static int filter_tojson(SELF)
{
	(void)args, (void)n;
	out->type = JV_STRING;
	return jvalue_json(r, self, &out->s);
}

/* ---- any value ---- */

static int filter_length(SELF)
{
	(void)args, (void)n;
	int64_t length;
	int rc = jvalue_length(r, self, &length);
	*out = jvalue_int(length, false);
	return rc;
}

static int filter_default(SELF)
{
	(void)r;
	bool absent = self->type == JV_UNDEFINED ||
		      (n > 1 && jvalue_true(&args[1]) && !jvalue_true(self));
	*out = !absent ? *self : n > 0 ? args[0] : jvalue_literal((struct proto_str){"", 0});
	return 0;
}

static int end_item(struct jrun *r, const struct jvalue *self, int64_t i, struct jvalue *out)
{
	struct jvalue key = jvalue_int(i, true);
	if (self->type != JV_LIST && self->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "first or last of %s", jvalue_type_name(self));
	return jvalue_index(r, self, &key, out);
}

static int filter_first(SELF)
{
	(void)args, (void)n;
	return end_item(r, self, 0, out);
}

static int filter_last(SELF)
{
	(void)args, (void)n;
	return end_item(r, self, -1, out);
}

static int filter_list(SELF)
{
	(void)args, (void)n;
	if (self->type == JV_DICT)
		return jdict_list(r, &self->dict, false, out);
	*out = *self;
	return self->type == JV_LIST ? 0 : jrun_fail(r, SL_EINVAL, "list of %s",
						      jvalue_type_name(self));
}

static int want_dict(struct jrun *r, const struct jvalue *v)
{
	return v->type == JV_DICT ? 0 : jrun_fail(r, SL_EINVAL, "a dictionary expected, not %s",
						   jvalue_type_name(v));
}

static int method_items(SELF)
{
	(void)args, (void)n;
	int rc = want_dict(r, self);
	return rc == 0 ? jdict_list(r, &self->dict, true, out) : rc;
}

static int method_keys(SELF)
{
	(void)args, (void)n;
	int rc = want_dict(r, self);
	return rc == 0 ? jdict_list(r, &self->dict, false, out) : rc;
}

static int method_get(SELF)
{
	int rc = want_dict(r, self);
	if (rc == 0)
		rc = want_string(r, &args[0]);
	if (rc != 0)
		return rc;
	*out = n > 1 ? args[1] : (struct jvalue){.type = JV_NONE};
	(void)jdict_find(&self->dict, args[0].s, out);
	return jrun_charge(r, jdict_count(&self->dict));
}

const struct jfunction jinja_filters[] = {
    {"trim", 0, 1, filter_trim},         {"length", 0, 0, filter_length},
    {"count", 0, 0, filter_length},      {"upper", 0, 0, filter_upper},
    {"lower", 0, 0, filter_lower},       {"default", 0, 2, filter_default},
    {"d", 0, 2, filter_default},         {"tojson", 0, 0, filter_tojson},
    {"join", 0, 1, filter_join},         {"first", 0, 0, filter_first},
    {"last", 0, 0, filter_last},         {"string", 0, 0, filter_string},
    {"list", 0, 0, filter_list},         {"replace", 2, 2, filter_replace},
    {"items", 0, 0, method_items},       {0},
};

const struct jfunction jinja_methods[] = {
    {"strip", 0, 1, method_strip},           {"lstrip", 0, 1, method_lstrip},
    {"rstrip", 0, 1, method_rstrip},         {"split", 1, 1, method_split},
    {"startswith", 1, 1, method_startswith}, {"endswith", 1, 1, method_endswith},
    {"replace", 2, 2, filter_replace},       {"upper", 0, 0, filter_upper},
    {"lower", 0, 0, filter_lower},           {"items", 0, 0, method_items},
    {"keys", 0, 0, method_keys},             {"get", 1, 2, method_get},
    {0},
};

/* ---- tests ---- */

#define TYPE_TEST(name, condition)                                                                 \
	static int test_##name(SELF)                                                               \
	{                                                                                          \
		(void)r, (void)args, (void)n;                                                      \
		*out = jvalue_bool(condition);                                                     \
		return 0;                                                                          \
	}
TYPE_TEST(defined, self->type != JV_UNDEFINED)
TYPE_TEST(undefined, self->type == JV_UNDEFINED)
TYPE_TEST(none, self->type == JV_NONE)
TYPE_TEST(string, self->type == JV_STRING)
TYPE_TEST(boolean, self->type == JV_BOOL)
TYPE_TEST(integer, self->type == JV_INT)
TYPE_TEST(float, self->type == JV_FLOAT)
/* A boolean is a number to Python. */
TYPE_TEST(number, self->type == JV_INT || self->type == JV_FLOAT || self->type == JV_BOOL)
TYPE_TEST(mapping, self->type == JV_DICT)
/* What has a length and items; a string and an undefined value do. */
TYPE_TEST(sequence, self->type == JV_LIST || self->type == JV_STRING || self->type == JV_DICT ||
			self->type == JV_UNDEFINED)
TYPE_TEST(true, self->type == JV_BOOL && self->b)
TYPE_TEST(false, self->type == JV_BOOL && !self->b)

static int test_odd(SELF)
{
	(void)args, (void)n;
	*out = jvalue_bool(self->type == JV_INT && self->i % 2 != 0);
	return self->type == JV_INT ? 0 : jrun_fail(r, SL_EINVAL, "odd or even of %s",
						     jvalue_type_name(self));
}

static int test_even(SELF)
{
	int rc = test_odd(r, self, args, n, out);
	out->b = !out->b;
	return rc;
}

const struct jfunction jinja_tests[] = {
    {"defined", 0, 0, test_defined}, {"undefined", 0, 0, test_undefined},
    {"none", 0, 0, test_none},       {"string", 0, 0, test_string},
    {"boolean", 0, 0, test_boolean}, {"integer", 0, 0, test_integer},
    {"float", 0, 0, test_float},     {"number", 0, 0, test_number},
    {"mapping", 0, 0, test_mapping}, {"sequence", 0, 0, test_sequence},
    {"iterable", 0, 0, test_sequence},
    {"true", 0, 0, test_true},       {"false", 0, 0, test_false},
    {"odd", 0, 0, test_odd},         {"even", 0, 0, test_even},
    {0},
};

int jinja_find_function(const struct jfunction *table, struct proto_str name)
{
	for (int i = 0; table[i].name != NULL; i++)
		if (strlen(table[i].name) == name.n && memcmp(table[i].name, name.at, name.n) == 0)
			return i;
	return -1;
}
