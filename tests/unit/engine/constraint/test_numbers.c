/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: bounds and multiples of numbers against arithmetic.
 */
#include <math.h>
#include <stdio.h>

#include "tests/unit/engine/constraint/accept.h"

static const char *const bounds[] = {"0",   "1",    "-1",   "5",     "-5",    "10",   "99",  "-100",
				     "0.5", "-0.5", "1.25", "-2.75", "12.34", "0.05", "1e1", "-25e-1"};
static const char *const keywords[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

static bool holds(double x, int keyword, double d)
{
	return keyword == 0 ? x >= d : keyword == 1 ? x <= d : keyword == 2 ? x > d : x < d;
}

/* Whole numbers of twentieths from -130 to 130, spelled with 0 to 3 digits after the point. */
static void check_numbers(struct grammar *g, const char *schema, int keyword, double d, bool inverted)
{
	for (int i = -2600; i <= 2600; i++) {
		double x = i / 20.0;
		for (int digits = 0; digits <= 3; digits++) {
			char text[40];
			snprintf(text, sizeof text, "%.*f", digits, x);
			if (atof(text) != x)
				continue;
			accept_expect(g, schema, text, holds(x, keyword, d) != inverted);
		}
	}
}

static void test_bounds(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
		for (int k = 0; k < 4; k++)
			for (int inverted = 0; inverted < 2; inverted++) {
				char schema[120];
				struct sl_err err;
				snprintf(schema, sizeof schema,
					 inverted ? "{\"type\":\"number\",\"not\":{\"%s\":%s}}"
						  : "{\"type\":\"number\",\"%s\":%s}",
					 keywords[k], bounds[i]);
				struct grammar *g =
				    accept_compile(CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &err);
				if (g == NULL)
					fail_msg("%s: %s", schema, err.text);
				check_numbers(g, schema, k, atof(bounds[i]), inverted);
				grammar_unref(g);
			}
}

static void test_multiples(void **state)
{
	(void)state;
	/* step, and what it is in thousandths */
	static const struct {
		const char *text;
		int thousandths;
	} steps[] = {{"1", 1000},  {"2", 2000},   {"3", 3000},   {"4", 4000},     {"5", 5000},
		     {"7", 7000},  {"12", 12000}, {"60", 60000}, {"100", 100000}, {"0.5", 500},
		     {"0.01", 10}, {"0.25", 250}, {"1.5", 1500}, {"0.3", 300}};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		char schema[80];
		struct sl_err err;
		snprintf(schema, sizeof schema, "{\"type\":\"number\",\"multipleOf\":%s}", steps[i].text);
		struct grammar *g = accept_compile(CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &err);
		if (g == NULL)
			fail_msg("%s: %s", schema, err.text);
		for (int v = -250000; v <= 250000; v += v % 1000 == 0 && v > 4000 ? 1000 : 1) {
			char text[40];
			int digits = v % 1000 == 0 ? 0 : v % 100 == 0 ? 1 : v % 10 == 0 ? 2 : 3;
			if (v < -4000 && v % 1000 != 0)
				continue;
			snprintf(text, sizeof text, "%.*f", digits, v / 1000.0);
			accept_expect(g, schema, text, v % steps[i].thousandths == 0);
		}
		accept_expect(g, schema, "1e3", false);
		grammar_unref(g);
	}
}

static const struct accept_case others[] = {
    {"{\"type\":\"number\",\"minimum\":0}", {"0", "-0", "-0.0", "1e-07", "2.5E+10", "0e5"}, {"-1", "-1e-7", "-0.1"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", {"1e-07", "0.001"}, {"0", "0.0", "-0", "0e9"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"type\":\"number\",\"minimum\":1,\"exclusiveMinimum\":true}",
     {"1.5"},
     {"1", "1.0"}},
    {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":18446744073709551615}",
     {"18446744073709551615", "1"},
     {"0", "18446744073709551616"}},
    {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":3}", {"-3", "0", "3"}, {"-4", "4", "10", "-10", "1.5"}},
    {"{\"enum\":[1.5,-2,0]}", {"1.5", "1.50", "-2", "0", "-2.0"}, {"1.55", "2", "1"}},
    {"{\"type\":\"number\",\"not\":{\"const\":5}}", {"4", "5.5", "55"}, {"5", "5.0"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {"1.5", "-0.25"}, {"1", "1.0", "-3"}},
};

static void test_others(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, others);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds), cmocka_unit_test(test_multiples),
					   cmocka_unit_test(test_others)};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
