/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/decimal.h"

#include <string.h>

/* ---- reading ---- */

static size_t digits(struct proto_str s, size_t at)
{
	size_t i = at;
	while (i < s.n && s.at[i] >= '0' && s.at[i] <= '9')
		i++;
	return i - at;
}

struct parts {
	size_t whole, n_whole, frac, n_frac, exponent;
	bool negative, has_exponent;
};

static bool split(struct proto_str s, struct parts *p)
{
	size_t i = 0;
	*p = (struct parts){.negative = s.n > 0 && s.at[0] == '-'};
	i += p->negative;
	p->whole = i;
	p->n_whole = digits(s, i);
	if (p->n_whole == 0 || (p->n_whole > 1 && s.at[i] == '0'))
		return false;
	i += p->n_whole;
	if (i < s.n && s.at[i] == '.') {
		p->frac = ++i;
		p->n_frac = digits(s, i);
		if (p->n_frac == 0)
			return false;
		i += p->n_frac;
	}
	if (i < s.n && (s.at[i] == 'e' || s.at[i] == 'E')) {
		p->has_exponent = true;
		p->exponent = ++i;
		i += i < s.n && (s.at[i] == '+' || s.at[i] == '-');
		size_t n = digits(s, i);
		if (n == 0)
			return false;
		i += n;
	}
	return i == s.n;
}

bool decimal_is_number(struct proto_str text)
{
	struct parts p;
	return split(text, &p);
}

/* Exponents are capped at 10^6. */
static long exponent_of(struct proto_str s, const struct parts *p)
{
	long v = 0;
	if (!p->has_exponent)
		return 0;
	bool negative = s.at[p->exponent] == '-';
	for (size_t i = p->exponent + (negative || s.at[p->exponent] == '+'); i < s.n; i++)
		v = v > 1000000 ? v : v * 10 + (s.at[i] - '0');
	return negative ? -v : v;
}

/* buf: all digits, with a point after the first `whole` of them. */
static void trim(struct decimal *out, const char *buf, size_t n, size_t whole)
{
	size_t begin = 0;
	while (begin < whole && buf[begin] == '0')
		begin++;
	while (n > whole && buf[n - 1] == '0')
		n--;
	out->whole = buf + begin;
	out->n_whole = whole - begin;
	out->frac = buf + whole;
	out->n_frac = n - whole;
	out->negative = out->negative && out->n_whole + out->n_frac > 0;
}

static bool all_zero(struct proto_str s, const struct parts *p)
{
	for (size_t i = p->whole; i < p->whole + p->n_whole; i++)
		if (s.at[i] != '0')
			return false;
	for (size_t i = 0; i < p->n_frac; i++)
		if (s.at[p->frac + i] != '0')
			return false;
	return true;
}

bool decimal_read(struct con *c, struct proto_str text, struct decimal *out)
{
	struct parts p;
	*out = (struct decimal){.whole = "", .frac = ""};
	if (!split(text, &p))
		return con_fail(c, SL_EINVAL, "malformed number") == 0;
	if (all_zero(text, &p))
		return true;
	long exponent = exponent_of(text, &p), point = (long)p.n_whole + exponent;
	size_t n = p.n_whole + p.n_frac;
	size_t before = point < 0 ? (size_t)-point : 0, after = point > (long)n ? (size_t)(point - (long)n) : 0;
	if (n > DECIMAL_MAX_DIGITS || before > DECIMAL_MAX_DIGITS || after > DECIMAL_MAX_DIGITS) {
		con_fail(c, SL_ELIMIT, "the number %.*s has more than %d digits", (int)(text.n < 60 ? text.n : 60),
			 text.at, DECIMAL_MAX_DIGITS);
		return false;
	}
	char *buf = con_alloc(c, before + n + after + 1, 1);
	if (buf == NULL)
		return false;
	memset(buf, '0', before + n + after);
	memcpy(buf + before, text.at + p.whole, p.n_whole);
	if (p.n_frac > 0)
		memcpy(buf + before + p.n_whole, text.at + p.frac, p.n_frac);
	out->negative = p.negative;
	trim(out, buf, before + n + after, (size_t)(point + (long)before));
	return true;
}

bool decimal_is_zero(const struct decimal *d) { return d->n_whole + d->n_frac == 0; }
bool decimal_is_whole(const struct decimal *d) { return d->n_frac == 0; }

static int compare_digits(const char *a, size_t n, const char *b, size_t m)
{
	int order = memcmp(a, b, n < m ? n : m);
	return order != 0 ? order : n < m ? -1 : n > m;
}

static int compare_magnitude(const struct decimal *a, const struct decimal *b)
{
	if (a->n_whole != b->n_whole)
		return a->n_whole < b->n_whole ? -1 : 1;
	int order = compare_digits(a->whole, a->n_whole, b->whole, b->n_whole);
	return order != 0 ? order : compare_digits(a->frac, a->n_frac, b->frac, b->n_frac);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
	if (a->negative != b->negative)
		return a->negative ? -1 : 1;
	return a->negative ? compare_magnitude(b, a) : compare_magnitude(a, b);
}

/* ---- languages of numbers without a sign ---- */

static rx digit_between(struct con *c, char from, char to)
{
	struct rx_range range = {(uint32_t)from, (uint32_t)to};
	return from > to ? RX_NONE : rx_chars(c->pool, &range, 1);
}

static rx digit_any(struct con *c) { return digit_between(c, '0', '9'); }

static rx digits_any(struct con *c, size_t least, size_t most)
{
	return rx_repeat(c->pool, digit_any(c), (uint32_t)least, most == SIZE_MAX ? RX_UNBOUNDED : (uint32_t)most);
}

static rx zeros(struct con *c, uint32_t least) { return rx_repeat(c->pool, con_text(c, "0"), least, RX_UNBOUNDED); }

/* A point and digits, or nothing. */
static rx any_fraction(struct con *c)
{
	return con_optional(c, rx_cat(c->pool, con_text(c, "."), digits_any(c, 1, SIZE_MAX)));
}

static rx zero_fraction(struct con *c) { return con_optional(c, rx_cat(c->pool, con_text(c, "."), zeros(c, 1))); }

static rx any_whole(struct con *c)
{
	rx longer = rx_cat(c->pool, digit_between(c, '1', '9'), digits_any(c, 0, SIZE_MAX));
	return rx_or(c->pool, con_text(c, "0"), longer);
}

/* The same whole part as d. */
static rx same_whole(struct con *c, const struct decimal *d)
{
	return d->n_whole == 0 ? con_text(c, "0") : rx_literal(c->pool, d->whole, d->n_whole);
}

/* Whole parts less or more than d's. */
static rx other_whole(struct con *c, const struct decimal *d, bool more)
{
	struct rx_pool *p = c->pool;
	size_t n = d->n_whole;
	rx out;
	if (n == 0)
		return more ? rx_cat(p, digit_between(c, '1', '9'), digits_any(c, 0, SIZE_MAX)) : RX_NONE;
	if (more)
		out = rx_cat(p, digit_between(c, '1', '9'), digits_any(c, n, SIZE_MAX));
	else
		out = n == 1
			  ? con_text(c, "0")
			  : rx_or(p, con_text(c, "0"), rx_cat(p, digit_between(c, '1', '9'), digits_any(c, 0, n - 2)));
	for (size_t i = 0; i < n; i++) {
		char at = d->whole[i];
		rx digit =
		    more ? digit_between(c, (char)(at + 1), '9') : digit_between(c, i == 0 ? '1' : '0', (char)(at - 1));
		if (digit != RX_NONE)
			out = rx_or(p, out,
				    rx_cat(p, rx_literal(p, d->whole, i),
					   rx_cat(p, digit, digits_any(c, n - i - 1, n - i - 1))));
	}
	return out;
}

/* Fractions (with their point, or nothing) less or more than d's. */
static rx other_fraction(struct con *c, const struct decimal *d, bool more)
{
	struct rx_pool *p = c->pool;
	rx out = RX_NONE, point = con_text(c, ".");
	for (size_t i = 0; i < d->n_frac; i++) {
		char at = d->frac[i];
		rx digit = more ? digit_between(c, (char)(at + 1), '9') : digit_between(c, '0', (char)(at - 1));
		rx before = rx_literal(p, d->frac, i);
		if (digit != RX_NONE)
			out = rx_or(p, out, rx_cat(p, before, rx_cat(p, digit, digits_any(c, 0, SIZE_MAX))));
		if (!more && i > 0) /* a shorter fraction */
			out = rx_or(p, out, before);
	}
	if (more)
		out = rx_or(p, out,
			    rx_cat(p, rx_cat(p, rx_literal(p, d->frac, d->n_frac), zeros(c, 0)),
				   rx_cat(p, digit_between(c, '1', '9'), digits_any(c, 0, SIZE_MAX))));
	if (out != RX_NONE)
		out = rx_cat(p, point, out);
	return !more && d->n_frac > 0 ? con_optional(c, out) : out;
}

static rx same_fraction(struct con *c, const struct decimal *d)
{
	if (d->n_frac == 0)
		return zero_fraction(c);
	return rx_cat(c->pool, rx_cat(c->pool, con_text(c, "."), rx_literal(c->pool, d->frac, d->n_frac)), zeros(c, 0));
}

/* Plain magnitudes less or more than d's; d's own too if equal is set. */
static rx magnitude(struct con *c, const struct decimal *d, bool more, bool equal)
{
	struct rx_pool *p = c->pool;
	rx whole = rx_cat(p, other_whole(c, d, more), any_fraction(c));
	rx frac = other_fraction(c, d, more);
	if (equal)
		frac = rx_or(p, frac, same_fraction(c, d));
	return rx_or(p, whole, rx_cat(p, same_whole(c, d), frac));
}

static rx plain_magnitude(struct con *c) { return rx_cat(c->pool, any_whole(c), any_fraction(c)); }

static rx negated(struct con *c, rx a) { return rx_cat(c->pool, con_text(c, "-"), a); }

/* ---- zero, over all numbers ---- */

static rx exponent_any(struct con *c)
{
	rx e = rx_cat(c->pool, con_class(c, "eE"), con_optional(c, con_class(c, "+-")));
	return con_optional(c, rx_cat(c->pool, e, digits_any(c, 1, SIZE_MAX)));
}

static rx zero_magnitude(struct con *c)
{
	return rx_cat(c->pool, rx_cat(c->pool, con_text(c, "0"), zero_fraction(c)), exponent_any(c));
}

static rx ordered_by_zero(struct con *c, enum decimal_order order)
{
	rx all = rx_cat(c->pool, plain_magnitude(c), exponent_any(c)), zero = zero_magnitude(c);
	rx some = con_minus(c, all, zero);
	bool positive = order == DECIMAL_MORE || order == DECIMAL_AT_LEAST;
	rx out = positive ? some : negated(c, some);
	if (order == DECIMAL_AT_MOST || order == DECIMAL_AT_LEAST)
		out = rx_or(c->pool, out, rx_cat(c->pool, con_optional(c, con_text(c, "-")), zero));
	return out;
}

/* ---- languages ---- */

rx decimal_plain(struct con *c) { return rx_cat(c->pool, con_optional(c, con_text(c, "-")), plain_magnitude(c)); }

rx decimal_whole(struct con *c, bool with_zeros)
{
	rx whole = rx_cat(c->pool, con_optional(c, con_text(c, "-")), any_whole(c));
	return with_zeros ? rx_cat(c->pool, whole, zero_fraction(c)) : whole;
}

rx decimal_equal(struct con *c, const struct decimal *d)
{
	rx a = rx_cat(c->pool, same_whole(c, d), same_fraction(c, d));
	if (decimal_is_zero(d))
		return rx_cat(c->pool, con_optional(c, con_text(c, "-")), a);
	return d->negative ? negated(c, a) : a;
}

rx decimal_decided(struct con *c, const struct decimal *d)
{
	return decimal_is_zero(d) ? con_any_number(c) : decimal_plain(c);
}

rx decimal_ordered(struct con *c, const struct decimal *d, enum decimal_order order)
{
	bool more = order == DECIMAL_MORE || order == DECIMAL_AT_LEAST;
	bool equal = order == DECIMAL_AT_MOST || order == DECIMAL_AT_LEAST;
	if (decimal_is_zero(d))
		return ordered_by_zero(c, order);
	/* On d's side of zero, magnitudes are compared; on the other side, either all numbers belong or none. */
	rx near = magnitude(c, d, more != d->negative, equal);
	rx zero = rx_cat(c->pool, con_text(c, "0"), zero_fraction(c));
	if (d->negative) {
		rx out = negated(c, near), others = rx_or(c->pool, plain_magnitude(c), negated(c, zero));
		return more ? rx_or(c->pool, out, others) : con_minus(c, out, negated(c, zero));
	}
	if (more)
		return near;
	return rx_or(c->pool, near, negated(c, plain_magnitude(c)));
}
