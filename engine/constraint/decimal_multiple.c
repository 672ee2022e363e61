/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiples. x is a multiple of d = m / 10^k if the digits of x, k of them after the point, are a multiple of the
 * integer m. With j < k digits after the point, they must be a multiple of m / gcd(m, 10^(k-j)). With m = 2^a 5^b r,
 * that means: the last max(a, b) digits are a multiple of 2^a 5^b, and the remainder modulo r, which an automaton of r
 * states tracks, is zero. Both read digits and skip the point.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/constraint/decimal.h"

enum { MAX_STATES = 16, MAX_PLACES = 4 }; /* of the machine that becomes an expression; 10^places ends are listed */

static rx digit_is(struct con *c, char digit) { return rx_literal(c->pool, &digit, 1); }

static rx any_digits(struct con *c, uint32_t least, uint32_t most)
{
	return rx_repeat(c->pool, con_class(c, "0123456789"), least, most);
}

/* The expression of a machine of n states from 0 to 0: Kleene's elimination. edges[i * n + j]. */
static rx eliminate(struct con *c, rx *edges, size_t n)
{
	struct rx_pool *p = c->pool;
	for (size_t k = n; k-- > 1 && con_step(c, n * n);) {
		rx loop = rx_repeat(p, edges[k * n + k], 0, RX_UNBOUNDED);
		for (size_t i = 0; i < k; i++)
			for (size_t j = 0; j < k; j++) {
				rx around = rx_cat(p, rx_cat(p, edges[i * n + k], loop), edges[k * n + j]);
				edges[i * n + j] = rx_or(p, edges[i * n + j], around);
			}
	}
	return rx_repeat(p, edges[0], 0, RX_UNBOUNDED);
}

static rx divisible(struct con *c, uint32_t r)
{
	rx *edges = con_alloc(c, (size_t)r * r, sizeof *edges);
	if (edges == NULL)
		return RX_NONE;
	for (uint32_t from = 0; from < r; from++) {
		edges[from * r + from] = con_text(c, ".");
		for (uint32_t d = 0; d < 10; d++) {
			rx *edge = &edges[from * r + (from * 10 + d) % r];
			*edge = rx_or(c->pool, *edge, digit_is(c, (char)('0' + d)));
		}
	}
	return eliminate(c, edges, r);
}

/* Digits, with an optional point between any two. */
static rx pointed(struct con *c, const char *text, unsigned n)
{
	rx out = RX_EPS, point = con_optional(c, con_text(c, "."));
	for (unsigned i = n; i-- > 0;)
		out = rx_cat(c->pool, digit_is(c, text[i]), i + 1 < n ? rx_cat(c->pool, point, out) : out);
	return out;
}

/* The last `places` digits are a multiple of m, a divisor of 10^places; shorter numbers get leading zeros. */
static rx ends_in_multiple(struct con *c, uint64_t m, unsigned places)
{
	struct rx_pool *p = c->pool;
	rx before = rx_repeat(p, con_class(c, "0123456789."), 0, RX_UNBOUNDED), out = RX_NONE;
	uint64_t end = 1;
	char text[MAX_PLACES];
	for (unsigned i = 0; i < places; i++)
		end *= 10;
	for (uint64_t v = 0; v < end && con_step(c, 4); v += m) {
		uint64_t rest = v;
		unsigned first = places;
		for (unsigned i = places; i-- > 0; rest /= 10) {
			text[i] = (char)('0' + rest % 10);
			first = rest % 10 != 0 ? i : first;
		}
		out = rx_or(p, out, rx_cat(p, before, pointed(c, text, places)));
		for (unsigned i = 1; i <= first && i < places; i++)
			out = rx_or(p, out, pointed(c, text + i, places - i));
	}
	return places == 0 ? before : out;
}

/* Digits and points that are a multiple of m. */
static rx multiple_digits(struct con *c, uint64_t m)
{
	uint64_t ends = 1, r = m;
	unsigned twos = 0, fives = 0;
	for (; r % 2 == 0; r /= 2, ends *= 2)
		twos++;
	for (; r % 5 == 0; r /= 5, ends *= 5)
		fives++;
	unsigned places = twos > fives ? twos : fives;
	if (r > MAX_STATES || places > MAX_PLACES) {
		con_fail(c, SL_EUNSUPPORTED, "multiples have too many remainders");
		return RX_NONE;
	}
	rx out = ends_in_multiple(c, ends, places);
	return r == 1 ? out : rx_and(c->pool, out, divisible(c, (uint32_t)r));
}

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

/* Numbers without sign with j digits after the point. */
static rx shaped(struct con *c, uint32_t j)
{
	rx whole = rx_or(c->pool, con_text(c, "0"),
			 rx_cat(c->pool, con_class(c, "123456789"), any_digits(c, 0, RX_UNBOUNDED)));
	return j == 0 ? whole : rx_cat(c->pool, whole, rx_cat(c->pool, con_text(c, "."), any_digits(c, j, j)));
}

static rx magnitudes(struct con *c, uint64_t m, unsigned k)
{
	struct rx_pool *p = c->pool;
	rx out = RX_NONE, zeros = rx_repeat(p, con_text(c, "0"), 0, RX_UNBOUNDED);
	uint64_t scale = 1;
	for (unsigned j = k + 1; j-- > 0; scale *= 10) {
		rx digits = multiple_digits(c, m / common_divisor(m, scale));
		rx numbers = rx_and(p, shaped(c, j), digits);
		rx more = j < k ? RX_EPS : k > 0 ? zeros : con_optional(c, rx_cat(p, con_text(c, ".0"), zeros));
		out = rx_or(p, out, rx_cat(p, numbers, more));
	}
	return out;
}

rx decimal_multiple(struct con *c, const struct decimal *d)
{
	char text[20];
	if (d->n_whole + d->n_frac >= sizeof text) {
		con_fail(c, SL_EUNSUPPORTED, "too many digits");
		return RX_NONE;
	}
	memcpy(text, d->whole, d->n_whole);
	memcpy(text + d->n_whole, d->frac, d->n_frac);
	text[d->n_whole + d->n_frac] = '\0';
	uint64_t m = strtoull(text, NULL, 10);
	if (m == 0)
		return RX_NONE;
	return rx_cat(c->pool, con_optional(c, con_text(c, "-")), magnitudes(c, m, (unsigned)d->n_frac));
}
