/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary operators: Python's arithmetic on 64-bit integers (beyond them the run fails, where
 * Python would go on) and doubles, and what + * % mean for texts and lists.
 */
#include <math.h>

#include "engine/jinja/jinja.h"

static int power(struct jrun *r, int64_t base, int64_t exponent, int64_t *out)
{
	int64_t x = 1;
	bool over = false;
	while (exponent > 0 && !over) {
		if (exponent & 1)
			over = __builtin_mul_overflow(x, base, &x);
		exponent >>= 1;
		/* The last square is not needed, so it may go over. */
		if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
			over = true;
	}
	*out = x;
	return over ? jrun_fail(r, SL_EINVAL, "a number out of range") : 0;
}

static int integer_op(struct jrun *r, int op, int64_t a, int64_t b, int64_t *out)
{
	bool over = false;
	switch (op) {
	case JO_ADD: over = __builtin_add_overflow(a, b, out); break;
	case JO_SUB: over = __builtin_sub_overflow(a, b, out); break;
	case JO_MUL: over = __builtin_mul_overflow(a, b, out); break;
	case JO_POW: return power(r, a, b, out);
	default: /* // and %: towards minus infinity */
		if (b == 0)
			return jrun_fail(r, SL_EINVAL, "division by zero");
		if (a == INT64_MIN && b == -1) {
			over = op == JO_FLOORDIV;
			*out = 0;
			break;
		}
		int64_t q = a / b, rest = a % b;
		bool down = rest != 0 && (rest < 0) != (b < 0);
		*out = op == JO_FLOORDIV ? q - down : rest + (down ? b : 0);
	}
	return over ? jrun_fail(r, SL_EINVAL, "a number out of range") : 0;
}

static int64_t as_int(const struct jvalue *v) { return v->type == JV_BOOL ? v->b : v->i; }

static double as_double(const struct jvalue *v) { return v->type == JV_FLOAT ? v->f : (double)as_int(v); }

static int arithmetic(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	bool trusted = a->trusted && b->trusted;
	bool ints = a->type != JV_FLOAT && b->type != JV_FLOAT;
	if (ints && op != JO_DIV && !(op == JO_POW && as_int(b) < 0)) {
		int64_t i = 0;
		int rc = integer_op(r, op, as_int(a), as_int(b), &i);
		*out = jvalue_int(i, trusted);
		return rc;
	}
	double x = as_double(a), y = as_double(b), f;
	if (y == 0 && (op == JO_DIV || op == JO_FLOORDIV || op == JO_MOD))
		return jrun_fail(r, SL_EINVAL, "division by zero");
	switch (op) {
	case JO_ADD: f = x + y; break;
	case JO_SUB: f = x - y; break;
	case JO_MUL: f = x * y; break;
	case JO_DIV: f = x / y; break;
	case JO_FLOORDIV: f = floor(x / y); break;
	case JO_POW:
		f = pow(x, y);
		if (x == 0 && y < 0)
			return jrun_fail(r, SL_EINVAL, "division by zero");
		if (isnan(f) && !isnan(x) && !isnan(y))
			return jrun_fail(r, SL_EINVAL, "a power that is no real number");
		break;
	default:
		f = fmod(x, y);
		if (f != 0 && (f < 0) != (y < 0))
			f += y;
	}
	*out = jvalue_float(f, trusted);
	return 0;
}

static int add_lists(struct jrun *r, const struct jlist *a, const struct jlist *b, struct jlist **out)
{
	*out = jlist_new(r, a->n + b->n);
	if (*out == NULL)
		return r->err->code;
	for (size_t i = 0; i < a->n; i++)
		(*out)->items[(*out)->n++] = a->items[i];
	for (size_t i = 0; i < b->n; i++)
		(*out)->items[(*out)->n++] = b->items[i];
	return 0;
}

static int repeat_list(struct jrun *r, const struct jlist *l, int64_t times, struct jlist **out)
{
	size_t total = 0;
	if (times < 0)
		times = 0;
	if (__builtin_mul_overflow(l->n, (size_t)times, &total))
		return jrun_fail(r, SL_ELIMIT, "a list of too many items");
	*out = jlist_new(r, total);
	if (*out == NULL)
		return r->err->code;
	for (size_t i = 0; i < total; i++)
		(*out)->items[(*out)->n++] = l->items[i % l->n];
	return 0;
}

static int concat(struct jrun *r, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	struct jstr parts[2];
	int rc = jvalue_string(r, a, &parts[0]);
	if (rc == 0)
		rc = jvalue_string(r, b, &parts[1]);
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jstr_concat(r, parts, 2, &out->s) : rc;
}

static int format(struct jrun *r, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	struct jvalue one = *b;
	struct jlist alone = {.items = &one, .n = 1, .cap = 1};
	*out = jvalue_string_of((struct jstr){.at = ""});
	/* Python takes what has items for a mapping, of which not all must be used. */
	out->markup = a->markup;
	return jstr_format(r, a->s, b->type == JV_TUPLE ? b->list : &alone,
			   b->type != JV_LIST && b->type != JV_DICT && b->type != JV_UNDEFINED, a->markup, &out->s);
}

static int repeat(struct jrun *r, const struct jvalue *what, const struct jvalue *times, struct jvalue *out)
{
	*out = *what;
	return what->type == JV_STRING ? jstr_repeat(r, what->s, as_int(times), &out->s)
				       : repeat_list(r, what->list, as_int(times), &out->list);
}

int jvalue_binary(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	bool a_many = a->type == JV_STRING || jvalue_is_list(a);
	bool b_many = b->type == JV_STRING || jvalue_is_list(b);
	if (op == JO_ADD && a->type == JV_STRING && b->type == JV_STRING && (a->markup || b->markup))
		return jinja_add_markup(r, a, b, out);
	if (op == JO_CONCAT || (op == JO_ADD && a->type == JV_STRING && b->type == JV_STRING))
		return concat(r, a, b, out);
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return arithmetic(r, op, a, b, out);
	if (op == JO_ADD && jvalue_is_list(a) && a->type == b->type) {
		*out = *a;
		return add_lists(r, a->list, b->list, &out->list);
	}
	if (op == JO_MUL && a_many && jvalue_is_number(b) && b->type != JV_FLOAT)
		return repeat(r, a, b, out);
	if (op == JO_MUL && b_many && jvalue_is_number(a) && a->type != JV_FLOAT)
		return repeat(r, b, a, out);
	if (op == JO_MOD && a->type == JV_STRING)
		return format(r, a, b, out);
	const struct jvalue *undefined = a->type == JV_UNDEFINED ? a : b->type == JV_UNDEFINED ? b : NULL;
	if (undefined != NULL)
		return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined",
				 undefined->name.n < 64 ? (int)undefined->name.n : 64, undefined->name.at);
	return jrun_fail(r, SL_EINVAL, "arithmetic with %s and %s", jvalue_type_name(a), jvalue_type_name(b));
}
