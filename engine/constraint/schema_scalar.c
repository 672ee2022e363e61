/* SPDX-License-Identifier: Apache-2.0
 *
 * Keywords of numbers and strings.
 */
#include <string.h>

#include "engine/constraint/decimal.h"
#include "engine/constraint/regex.h"
#include "engine/constraint/schema.h"

/* ---- numbers ---- */

/* All values, but only numbers in lang; inverted: the decided numbers outside of lang. */
static struct set *numbers(struct schema *s, rx lang, rx decided, bool inverted)
{
	struct set *out = inverted ? set_none(s) : set_all(s);
	if (out != NULL)
		out->number = inverted ? con_minus(s->c, decided, lang) : lang;
	return out;
}

static bool bound(struct schema *s, const struct jv *of, const char *keyword, struct decimal *out)
{
	const struct jv *v = jv_get(of, keyword);
	if (v == NULL)
		return false;
	if (v->kind != JV_NUMBER) {
		schema_fail(s, SL_EINVAL, of, keyword, "must be a number");
		return false;
	}
	return decimal_read(s->c, v->text, out);
}

static struct set *ordered(struct schema *s, const struct decimal *d, enum decimal_order order, bool inverted)
{
	return numbers(s, decimal_ordered(s->c, d, order), decimal_decided(s->c, d), inverted);
}

struct set *keyword_minimum(struct schema *s, const struct jv *of, bool inverted)
{
	struct decimal d;
	if (!bound(s, of, "minimum", &d))
		return NULL;
	bool exclusive = jv_is(jv_get(of, "exclusiveMinimum"), JV_TRUE); /* draft 4 */
	return ordered(s, &d, exclusive ? DECIMAL_MORE : DECIMAL_AT_LEAST, inverted);
}

struct set *keyword_maximum(struct schema *s, const struct jv *of, bool inverted)
{
	struct decimal d;
	if (!bound(s, of, "maximum", &d))
		return NULL;
	bool exclusive = jv_is(jv_get(of, "exclusiveMaximum"), JV_TRUE);
	return ordered(s, &d, exclusive ? DECIMAL_LESS : DECIMAL_AT_MOST, inverted);
}

static struct set *exclusive(struct schema *s, const struct jv *of, const char *keyword, enum decimal_order order,
			     bool inverted)
{
	const struct jv *v = jv_get(of, keyword);
	struct decimal d;
	if (jv_is(v, JV_TRUE) || jv_is(v, JV_FALSE) || !bound(s, of, keyword, &d))
		return NULL;
	return ordered(s, &d, order, inverted);
}

struct set *keyword_exclusive_minimum(struct schema *s, const struct jv *of, bool inverted)
{
	return exclusive(s, of, "exclusiveMinimum", DECIMAL_MORE, inverted);
}

struct set *keyword_exclusive_maximum(struct schema *s, const struct jv *of, bool inverted)
{
	return exclusive(s, of, "exclusiveMaximum", DECIMAL_LESS, inverted);
}

struct set *keyword_multiple(struct schema *s, const struct jv *of, bool inverted)
{
	struct decimal d;
	if (!bound(s, of, "multipleOf", &d))
		return NULL;
	if (d.negative || decimal_is_zero(&d)) {
		schema_fail(s, SL_EINVAL, of, "multipleOf", "must be above 0");
		return NULL;
	}
	rx lang = decimal_multiple(s->c, &d);
	if (lang == RX_NONE && s->c->rc == 0)
		schema_fail(s, SL_EUNSUPPORTED, of, "multipleOf", "multiples of this number are not supported");
	return numbers(s, lang, decimal_plain(s->c), inverted);
}

/* ---- strings ---- */

/* All values, but only these strings; inverted: only strings, all others. */
static struct set *strings(struct schema *s, struct strings of, bool inverted)
{
	struct set *out = inverted ? set_none(s) : set_all(s);
	if (out != NULL)
		out->string = of;
	return out;
}

static struct set *of_length(struct schema *s, uint32_t least, uint32_t most, bool inverted)
{
	return strings(s, (struct strings){.lang = con_any_text(s->c), .least = least, .most = most}, inverted);
}

static struct set *of_lang(struct schema *s, rx lang, bool inverted)
{
	struct strings of = {.lang = inverted ? con_minus(s->c, con_any_text(s->c), lang) : lang, .most = NO_MOST};
	return strings(s, of, inverted);
}

struct set *keyword_min_length(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "minLength", &n) || n == 0)
		return NULL;
	return inverted ? of_length(s, 0, n - 1, true) : of_length(s, n, NO_MOST, false);
}

struct set *keyword_max_length(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "maxLength", &n))
		return NULL;
	return inverted ? of_length(s, n + 1, NO_MOST, true) : of_length(s, 0, n, false);
}

rx schema_pattern(struct schema *s, const struct jv *at, const char *keyword, struct proto_str pattern, bool bytes)
{
	struct regex_fault fault;
	rx lang = regex_rx(s->c, pattern.at, pattern.n, REGEX_SEARCH | (bytes ? REGEX_BYTES : 0), &fault);
	if (fault.code != 0)
		schema_fail(s, fault.code, at, keyword, "regular expression: %s at offset %zu", fault.what, fault.at);
	return lang;
}

struct set *keyword_pattern(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "pattern");
	if (v == NULL)
		return NULL;
	if (v->kind != JV_STRING) {
		schema_fail(s, SL_EINVAL, of, "pattern", "must be a string");
		return NULL;
	}
	return of_lang(s, schema_pattern(s, of, "pattern", v->text, inverted), inverted);
}

struct set *keyword_format(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "format");
	rx lang;
	if (!jv_is(v, JV_STRING) || !schema_format(s, v->text, &lang))
		return NULL;
	if (inverted && jv_text_is(v, "regex"))
		schema_fail(s, SL_EUNSUPPORTED, of, "format", "the complement of regex is not supported");
	return of_lang(s, lang, inverted);
}
