/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cascade/cascade.h"

static const struct casc_conf_policy usual = {0.5f, 0.2f, 0.15f, 0.15f, 0.25f, 6};

static struct casc_token plain(float p) { return (struct casc_token){.logprob = logf(p)}; }

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

static void one_number_each(void **state)
{
	(void)state;
	struct casc_conf c = {0};
	/* Each part alone. */
	struct casc_conf_policy mean = {1, 0, 0, 0, 0.25f, 3}, least = {0, 1, 0, 0, 0.25f, 3},
				entropy = {0, 0, 1, 0, 1, 3}, margin = {0, 0, 0, 1, 1, 3};
	assert_true(casc_conf_value(&c, &usual) == 0);
	struct casc_token t = plain(0.5f);
	assert_int_equal(casc_conf_add(&c, &mean, &t), 0);
	assert_true(near(casc_conf_value(&c, &mean), 0.5f));
	/* A plain mean at first: of the logarithms of 0.5 and 0.125. */
	t = plain(0.125f);
	assert_int_equal(casc_conf_add(&c, &mean, &t), 0);
	assert_true(near(casc_conf_value(&c, &mean), 0.25f));
	assert_true(near(casc_conf_value(&c, &least), 0.125f));
	/* The window forgets after three. */
	t = plain(0.9f);
	for (int i = 0; i < 3; i++)
		assert_int_equal(casc_conf_add(&c, &least, &t), 0);
	assert_true(near(casc_conf_value(&c, &least), 0.9f));
	/* Two equal tokens and nothing else: two thirds of log 3 would be all; here log 2 of log 3. */
	struct casc_token two = {.logprob = logf(0.5f), .n_top = 2, .top = {logf(0.5f), logf(0.5f)}};
	memset(&c, 0, sizeof c);
	assert_int_equal(casc_conf_add(&c, &entropy, &two), 0);
	assert_true(near(casc_conf_value(&c, &entropy), 1 - logf(2) / logf(3)));
	assert_true(near(casc_conf_value(&c, &margin), 0));
	struct casc_token sure = {.logprob = logf(0.7f), .n_top = 2, .top = {logf(0.7f), logf(0.1f)}};
	memset(&c, 0, sizeof c);
	assert_int_equal(casc_conf_add(&c, &margin, &sure), 0);
	assert_true(near(casc_conf_value(&c, &margin), 0.6f));
	/* One in the list: the rest is the second. */
	sure.n_top = 1;
	memset(&c, 0, sizeof c);
	assert_int_equal(casc_conf_add(&c, &margin, &sure), 0);
	assert_true(near(casc_conf_value(&c, &margin), 0.4f));
}

static void parts_that_lack(void **state)
{
	(void)state;
	struct casc_conf c = {0};
	struct casc_token t = plain(0.6f);
	/* Without a list the shares of entropy and margin are not counted against anybody. */
	assert_int_equal(casc_conf_add(&c, &usual, &t), 0);
	assert_true(near(casc_conf_value(&c, &usual), 0.6f));
	struct casc_conf_policy nothing = {0, 0, 1, 1, 0.5f, 1};
	assert_true(casc_conf_value(&c, &nothing) == 0);
}

static void smoothing(void **state)
{
	(void)state;
	struct casc_conf c = {0};
	struct casc_token good = plain(0.98f), bad = plain(0.05f);
	for (int i = 0; i < 50; i++)
		assert_int_equal(casc_conf_add(&c, &usual, &good), 0);
	float before = casc_conf_value(&c, &usual);
	assert_int_equal(casc_conf_add(&c, &usual, &bad), 0);
	float after_one = casc_conf_value(&c, &usual);
	for (int i = 0; i < 5; i++)
		assert_int_equal(casc_conf_add(&c, &usual, &bad), 0);
	float after_six = casc_conf_value(&c, &usual);
	assert_true(before > 0.95f && after_one > 0.3f && after_one < before - 0.2f && after_six < 0.2f);
}

static void what_is_no_token(void **state)
{
	(void)state;
	static const struct casc_token bad[] = {
	    {.logprob = NAN},
	    {.logprob = 0.5f},
	    {.logprob = INFINITY},
	    {.logprob = -1, .n_top = CASC_TOP + 1},
	    {.logprob = -1, .n_top = 2, .top = {-2, -1}},
	    {.logprob = -1, .n_top = 2, .top = {-1, NAN}},
	    {.logprob = -1, .n_top = 1, .top = {1}},
	};
	struct casc_conf c = {0}, none = {0};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(casc_conf_add(&c, &usual, &bad[i]), SL_EPROTO);
		assert_memory_equal(&c, &none, sizeof c);
	}
	/* A sum that rounds above 1, and a token that could hardly be. */
	struct casc_token t = {.logprob = 1e-6f, .n_top = 1, .top = {1e-6f}};
	assert_int_equal(casc_conf_add(&c, &usual, &t), 0);
	assert_true(casc_conf_value(&c, &usual) <= 1);
	t = (struct casc_token){.logprob = -1e8f};
	assert_int_equal(casc_conf_add(&c, &usual, &t), 0);
	float v = casc_conf_value(&c, &usual);
	assert_true(v >= 0 && v <= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(one_number_each), cmocka_unit_test(parts_that_lack),
					   cmocka_unit_test(smoothing), cmocka_unit_test(what_is_no_token)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
