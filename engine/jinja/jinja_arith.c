/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary operators: Python's arithmetic on doubles and 64-bit integers (a run fails on overflow, where Python has
 * larger integers), and + * % on strings and lists.
 */
#include <math.h>

#include "engine/jinja/jinja.h"

/* Returns whether it overflows. */
static bool power(int64_t base, int64_t exponent, int64_t *out)
{
	bool over = false;
	for (*out = 1; exponent > 0 && !over;) {
		if (exponent & 1)
			over = __builtin_mul_overflow(*out, base, out);
		exponent >>= 1;
		/* The last square is unused, so it may overflow. */
		if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
			over = true;
	}
	return over;
}

static int64_t integer_op(struct jrun *r, int op, int64_t a, int64_t b)
{
	bool over = false;
	int64_t out = 0;
	switch (op) {
	case JO_ADD: over = __builtin_add_overflow(a, b, &out); break;
	case JO_SUB: over = __builtin_sub_overflow(a, b, &out); break;
	case JO_MUL: over = __builtin_mul_overflow(a, b, &out); break;
	case JO_POW: over = power(a, b, &out); break;
	default: /* // and %: towards minus infinity */
		if (b == 0)
			jrun_fail(r, SL_EINVAL, "division by zero");
		if (a == INT64_MIN && b == -1) {
			over = op == JO_FLOORDIV;
			break;
		}
		int64_t q = a / b, rest = a % b;
		bool down = rest != 0 && (rest < 0) != (b < 0);
		out = op == JO_FLOORDIV ? q - down : rest + (down ? b : 0);
	}
	if (over)
		jrun_fail(r, SL_EINVAL, "a number out of range");
	return out;
}

static double double_op(struct jrun *r, int op, double x, double y)
{
	double f;
	if (y == 0 && (op == JO_DIV || op == JO_FLOORDIV || op == JO_MOD))
		jrun_fail(r, SL_EINVAL, "division by zero");
	switch (op) {
	case JO_ADD: return x + y;
	case JO_SUB: return x - y;
	case JO_MUL: return x * y;
	case JO_DIV: return x / y;
	case JO_FLOORDIV: return floor(x / y);
	case JO_POW:
		f = pow(x, y);
		if (x == 0 && y < 0)
			jrun_fail(r, SL_EINVAL, "division by zero");
		if (isnan(f) && !isnan(x) && !isnan(y))
			jrun_fail(r, SL_EINVAL, "a power that is no real number");
		return f;
	default: f = fmod(x, y); return f != 0 && (f < 0) != (y < 0) ? f + y : f;
	}
}

static struct jvalue arithmetic(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b)
{
	bool trusted = a->trusted && b->trusted, ints = a->type != JV_FLOAT && b->type != JV_FLOAT;
	if (ints && op != JO_DIV && !(op == JO_POW && b->i < 0))
		return jvalue_int(integer_op(r, op, a->i, b->i), trusted);
	return jvalue_float(double_op(r, op, jvalue_double(a), jvalue_double(b)), trusted);
}

static struct jlist *add_lists(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
	struct jlist *l = jlist_new(r, a->n + b->n);
	for (size_t i = 0; i < a->n + b->n; i++)
		jlist_put(l, i < a->n ? a->items[i] : b->items[i - a->n]);
	return l;
}

static struct jlist *repeat_list(struct jrun *r, const struct jlist *l, int64_t times)
{
	size_t total = 0;
	if (__builtin_mul_overflow(l->n, (size_t)(times < 0 ? 0 : times), &total))
		jrun_fail(r, SL_ELIMIT, "a list of too many items");
	struct jlist *out = jlist_new(r, total);
	while (out->n < total)
		jlist_put(out, l->items[out->n % l->n]);
	return out;
}

/* markup: both are escaped first. */
static struct jvalue concat(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool markup)
{
	struct jstr parts[2];
	parts[0] = markup ? jinja_escape(r, a) : jvalue_string(r, a);
	parts[1] = markup ? jinja_escape(r, b) : jvalue_string(r, b);
	return jvalue_string_of(jstr_concat(r, parts, 2), markup);
}

static struct jvalue format(struct jrun *r, const struct jvalue *a, const struct jvalue *b)
{
	struct jvalue one = *b;
	struct jlist alone = {.items = &one, .n = 1, .cap = 1};
	/* In Python a value with items is a mapping, which may have unused ones. */
	bool exact = b->type != JV_LIST && b->type != JV_DICT && b->type != JV_UNDEFINED;
	struct jstr s = jstr_format(r, a->s, b->type == JV_TUPLE ? b->list : &alone, exact, a->markup);
	return jvalue_string_of(s, a->markup);
}

static struct jvalue repeat(struct jrun *r, const struct jvalue *what, int64_t times)
{
	struct jvalue out = *what;
	if (what->type == JV_STRING)
		out.s = jstr_repeat(r, what->s, times);
	else
		out.list = repeat_list(r, what->list, times);
	return out;
}

struct jvalue jvalue_binary(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b)
{
	bool texts = op == JO_ADD && a->type == JV_STRING && b->type == JV_STRING;
	if (op == JO_CONCAT || texts)
		return concat(r, a, b, texts && (a->markup || b->markup));
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return arithmetic(r, op, a, b);
	if (op == JO_ADD && jvalue_is_list(a) && a->type == b->type) {
		struct jvalue sum = *a;
		sum.list = add_lists(r, a->list, b->list);
		return sum;
	}
	if (op == JO_MUL && (a->type == JV_STRING || jvalue_is_list(a)) && jvalue_is_integer(b))
		return repeat(r, a, b->i);
	if (op == JO_MUL && (b->type == JV_STRING || jvalue_is_list(b)) && jvalue_is_integer(a))
		return repeat(r, b, a->i);
	if (op == JO_MOD && a->type == JV_STRING)
		return format(r, a, b);
	if (a->type == JV_UNDEFINED || b->type == JV_UNDEFINED)
		jrun_fail_undefined(r, a->type == JV_UNDEFINED ? a : b);
	jrun_fail(r, SL_EINVAL, "arithmetic with %s and %s", jvalue_type_name(a), jvalue_type_name(b));
}
