/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests: what stands behind `is`, and what select and its like name.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

#define TYPE_TEST(name, condition)              \
	static int test_##name(JSELF)           \
	{                                       \
		(void)r, (void)args, (void)all; \
		*out = jvalue_bool(condition);  \
		return 0;                       \
	}
TYPE_TEST(defined, self->type != JV_UNDEFINED)
TYPE_TEST(undefined, self->type == JV_UNDEFINED)
TYPE_TEST(none, self->type == JV_NONE)
TYPE_TEST(string, self->type == JV_STRING)
TYPE_TEST(boolean, self->type == JV_BOOL)
TYPE_TEST(integer, self->type == JV_INT)
TYPE_TEST(float, self->type == JV_FLOAT)
/* A boolean is a number to Python. */
TYPE_TEST(number, jvalue_is_number(self))
TYPE_TEST(mapping, self->type == JV_DICT)
/* What has a length and items; a string and an undefined value do. */
TYPE_TEST(sequence,
	  jvalue_is_list(self) || self->type == JV_STRING || self->type == JV_DICT || self->type == JV_UNDEFINED)
TYPE_TEST(true, self->type == JV_BOOL && self->b)
TYPE_TEST(false, self->type == JV_BOOL && !self->b)
TYPE_TEST(callable, self->type == JV_FUNCTION || self->type == JV_MACRO || self->type == JV_JOINER ||
			self->type == JV_LOOP || self->type == JV_UNDEFINED)

/* Whether self % by is rest. */
static int leaves(struct jrun *r, const struct jvalue *self, const struct jvalue *by, int64_t rest, struct jvalue *out)
{
	struct jvalue left, want = jvalue_int(rest, true);
	bool same = false;
	if (!jvalue_is_number(self) || !jvalue_is_number(by))
		return jrun_fail(r, SL_EINVAL, "division of %s by %s", jvalue_type_name(self), jvalue_type_name(by));
	int rc = jvalue_binary(r, JO_MOD, self, by, &left);
	if (rc == 0)
		rc = jvalue_equal(r, &left, &want, &same);
	*out = jvalue_bool(same);
	return rc;
}

static int test_odd(JSELF)
{
	const struct jvalue two = jvalue_int(2, true);
	(void)args, (void)all;
	return leaves(r, self, &two, 1, out);
}

static int test_even(JSELF)
{
	const struct jvalue two = jvalue_int(2, true);
	(void)args, (void)all;
	return leaves(r, self, &two, 0, out);
}

static int test_divisibleby(JSELF)
{
	(void)all;
	return leaves(r, self, &args[0], 0, out);
}

static int compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	bool yes;
	int rc = jvalue_compare(r, op, a, b, &yes);
	*out = jvalue_bool(yes);
	return rc;
}

#define COMPARE_TEST(name, op)                              \
	static int test_##name(JSELF)                       \
	{                                                   \
		(void)all;                                  \
		return compare(r, op, self, &args[0], out); \
	}
COMPARE_TEST(eq, JO_EQ)
COMPARE_TEST(ne, JO_NE)
COMPARE_TEST(lt, JO_LT)
COMPARE_TEST(le, JO_LE)
COMPARE_TEST(gt, JO_GT)
COMPARE_TEST(ge, JO_GE)
COMPARE_TEST(in, JO_IN)

/* Python's `is`: for lists and dictionaries the same one, for the rest the same value and type. */
static int test_sameas(JSELF)
{
	bool same = self->type == args[0].type;
	int rc = 0;
	(void)all;
	if (same && (jvalue_is_list(self) || self->type == JV_DICT))
		same = jvalue_is_list(self) ? self->list == args[0].list : self->dict == args[0].dict;
	else if (same)
		rc = jvalue_equal(r, self, &args[0], &same);
	*out = jvalue_bool(same);
	return rc;
}

/* Has letters, and all are of that case. */
static int is_case(struct jrun *r, const struct jvalue *self, enum jcase to, struct jvalue *out)
{
	struct jstr s, same, other;
	int rc = jvalue_string(r, self, &s);
	if (rc == 0)
		rc = jstr_case(r, s, to, &same);
	if (rc == 0)
		rc = jstr_case(r, s, to == JCASE_UPPER ? JCASE_LOWER : JCASE_UPPER, &other);
	if (rc == 0)
		*out = jvalue_bool(jstr_equal(s, same) && !jstr_equal(s, other));
	return rc;
}

int jinja_method_islower(JSELF)
{
	(void)args, (void)all;
	return is_case(r, self, JCASE_LOWER, out);
}

int jinja_method_isupper(JSELF)
{
	(void)args, (void)all;
	return is_case(r, self, JCASE_UPPER, out);
}

static int test_escaped(JSELF)
{
	(void)r, (void)args, (void)all;
	*out = jvalue_bool(self->markup);
	return 0;
}

static int test_filter(JSELF)
{
	(void)args, (void)all;
	int rc = jinja_want_string(r, self);
	if (rc == 0)
		*out = jvalue_bool(jinja_find_filter((struct proto_str){self->s.at, self->s.n}) != NULL);
	return rc;
}

static int test_test(JSELF)
{
	(void)args, (void)all;
	int rc = jinja_want_string(r, self);
	if (rc == 0)
		*out = jvalue_bool(jinja_find_test((struct proto_str){self->s.at, self->s.n}) != NULL);
	return rc;
}

const struct jfunction jinja_tests[] = {
    {"defined", "", 0, test_defined, 0},
    {"undefined", "", 0, test_undefined, 0},
    {"none", "", 0, test_none, 0},
    {"string", "", 0, test_string, 0},
    {"boolean", "", 0, test_boolean, 0},
    {"integer", "", 0, test_integer, 0},
    {"float", "", 0, test_float, 0},
    {"number", "", 0, test_number, 0},
    {"mapping", "", 0, test_mapping, 0},
    {"sequence", "", 0, test_sequence, 0},
    {"iterable", "", 0, test_sequence, 0},
    {"callable", "", 0, test_callable, 0},
    {"true", "", 0, test_true, 0},
    {"false", "", 0, test_false, 0},
    {"odd", "", 0, test_odd, 0},
    {"even", "", 0, test_even, 0},
    {"divisibleby", "num", 1, test_divisibleby, 0},
    {"eq", "other", 1, test_eq, 0},
    {"equalto", "other", 1, test_eq, 0},
    {"==", "other", 1, test_eq, 0},
    {"ne", "other", 1, test_ne, 0},
    {"!=", "other", 1, test_ne, 0},
    {"lt", "other", 1, test_lt, 0},
    {"lessthan", "other", 1, test_lt, 0},
    {"<", "other", 1, test_lt, 0},
    {"le", "other", 1, test_le, 0},
    {"<=", "other", 1, test_le, 0},
    {"gt", "other", 1, test_gt, 0},
    {"greaterthan", "other", 1, test_gt, 0},
    {">", "other", 1, test_gt, 0},
    {"ge", "other", 1, test_ge, 0},
    {">=", "other", 1, test_ge, 0},
    {"in", "seq", 1, test_in, 0},
    {"sameas", "other", 1, test_sameas, 0},
    {"lower", "", 0, jinja_method_islower, 0},
    {"upper", "", 0, jinja_method_isupper, 0},
    {"escaped", "", 0, test_escaped, 0},
    {"filter", "", 0, test_filter, 0},
    {"test", "", 0, test_test, 0},
    {0},
};
