/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests: for `is`, and by name for select and similar filters.
 */
#include "engine/jinja/jinja.h"

/* Whether the type is one of a set: bits of enum jtype. */
static struct jvalue test_type(struct jrun *r, const struct jcall *c)
{
	(void)r;
	return jvalue_bool(((unsigned)c->how >> c->self->type & 1) != 0);
}

#define TYPE(name) (1 << JV_##name)
enum {
	NUMBERS = TYPE(BOOL) | TYPE(INT) | TYPE(FLOAT), /* a boolean is a number to Python */
	SEQUENCES = TYPE(LIST) | TYPE(TUPLE) | TYPE(STRING) | TYPE(DICT) | TYPE(UNDEFINED), /* types with items */
	CALLABLES = TYPE(FUNCTION) | TYPE(MACRO) | TYPE(JOINER) | TYPE(LOOP) | TYPE(UNDEFINED),
};

/* true and false. */
static struct jvalue test_truth(struct jrun *r, const struct jcall *c)
{
	(void)r;
	return jvalue_bool(c->self->type == JV_BOOL && c->self->i == c->how);
}

/* Whether self % by is rest. */
static struct jvalue leaves(struct jrun *r, const struct jvalue *self, const struct jvalue *by, int64_t rest)
{
	const struct jvalue want = jvalue_int(rest, true);
	if (!jvalue_is_number(self) || !jvalue_is_number(by))
		jrun_fail(r, SL_EINVAL, "division of %s by %s", jvalue_type_name(self), jvalue_type_name(by));
	struct jvalue left = jvalue_binary(r, JO_MOD, self, by);
	return jvalue_bool(jvalue_equal(r, &left, &want));
}

/* odd and even. */
static struct jvalue test_parity(struct jrun *r, const struct jcall *c)
{
	const struct jvalue two = jvalue_int(2, true);
	return leaves(r, c->self, &two, c->how);
}

static struct jvalue test_divisibleby(struct jrun *r, const struct jcall *c)
{
	return leaves(r, c->self, &c->args[0], 0);
}

static struct jvalue test_compare(struct jrun *r, const struct jcall *c)
{
	return jvalue_bool(jvalue_compare(r, c->how, c->self, &c->args[0]));
}

/* Python's `is`: identity for lists and dictionaries, otherwise equal type and value. */
static struct jvalue test_sameas(struct jrun *r, const struct jcall *c)
{
	if (c->self->type != c->args[0].type)
		return jvalue_bool(false);
	if (jvalue_is_list(c->self))
		return jvalue_bool(c->self->list == c->args[0].list);
	if (c->self->type == JV_DICT)
		return jvalue_bool(c->self->dict == c->args[0].dict);
	return jvalue_bool(jvalue_equal(r, c->self, &c->args[0]));
}

/* Whether there are letters and all have the case in how. */
struct jvalue jinja_is_case(struct jrun *r, const struct jcall *c)
{
	struct jstr s = jvalue_string(r, c->self), same = jstr_case(r, s, (enum jcase)c->how);
	struct jstr other = jstr_case(r, s, c->how == JCASE_UPPER ? JCASE_LOWER : JCASE_UPPER);
	return jvalue_bool(jstr_equal(s, same) && !jstr_equal(s, other));
}

static struct jvalue test_escaped(struct jrun *r, const struct jcall *c)
{
	(void)r;
	return jvalue_bool(c->self->markup);
}

/* filter and test: whether there is one of that name. */
enum { A_FILTER, A_TEST };

static struct jvalue test_exists(struct jrun *r, const struct jcall *c)
{
	struct proto_str name = jname_of(jinja_want_string(r, c->self));
	return jvalue_bool((c->how == A_TEST ? jinja_find_test(name) : jinja_find_filter(name)) != NULL);
}

const struct jfunction jinja_tests[] = {
    {"defined", "", 0, test_type, ~TYPE(UNDEFINED), 0},
    {"undefined", "", 0, test_type, TYPE(UNDEFINED), 0},
    {"none", "", 0, test_type, TYPE(NONE), 0},
    {"string", "", 0, test_type, TYPE(STRING), 0},
    {"boolean", "", 0, test_type, TYPE(BOOL), 0},
    {"integer", "", 0, test_type, TYPE(INT), 0},
    {"float", "", 0, test_type, TYPE(FLOAT), 0},
    {"number", "", 0, test_type, NUMBERS, 0},
    {"mapping", "", 0, test_type, TYPE(DICT), 0},
    {"sequence", "", 0, test_type, SEQUENCES, 0},
    {"iterable", "", 0, test_type, SEQUENCES, 0},
    {"callable", "", 0, test_type, CALLABLES, 0},
    {"true", "", 0, test_truth, true, 0},
    {"false", "", 0, test_truth, false, 0},
    {"odd", "", 0, test_parity, 1, 0},
    {"even", "", 0, test_parity, 0, 0},
    {"divisibleby", "num", 1, test_divisibleby, 0, 0},
    {"eq", "other", 1, test_compare, JO_EQ, 0},
    {"equalto", "other", 1, test_compare, JO_EQ, 0},
    {"==", "other", 1, test_compare, JO_EQ, 0},
    {"ne", "other", 1, test_compare, JO_NE, 0},
    {"!=", "other", 1, test_compare, JO_NE, 0},
    {"lt", "other", 1, test_compare, JO_LT, 0},
    {"lessthan", "other", 1, test_compare, JO_LT, 0},
    {"<", "other", 1, test_compare, JO_LT, 0},
    {"le", "other", 1, test_compare, JO_LE, 0},
    {"<=", "other", 1, test_compare, JO_LE, 0},
    {"gt", "other", 1, test_compare, JO_GT, 0},
    {"greaterthan", "other", 1, test_compare, JO_GT, 0},
    {">", "other", 1, test_compare, JO_GT, 0},
    {"ge", "other", 1, test_compare, JO_GE, 0},
    {">=", "other", 1, test_compare, JO_GE, 0},
    {"in", "seq", 1, test_compare, JO_IN, 0},
    {"sameas", "other", 1, test_sameas, 0, 0},
    {"lower", "", 0, jinja_is_case, JCASE_LOWER, 0},
    {"upper", "", 0, jinja_is_case, JCASE_UPPER, 0},
    {"escaped", "", 0, test_escaped, 0, 0},
    {"filter", "", 0, test_exists, A_FILTER, 0},
    {"test", "", 0, test_exists, A_TEST, 0},
    {0},
};
