/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors as numbers of unit length and as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "gateway/embedding/embed_write.h"

static void expect_text(const float *v, uint32_t n, bool base64, const char *want)
{
	struct sl_buf b;
	buf_init(&b, 1 << 16);
	assert_int_equal(embed_put(&b, v, n, base64), 0);
	assert_int_equal(b.len, strlen(want));
	assert_memory_equal(buf_data(&b), want, b.len);
	buf_dispose(&b);
}

/* RFC 4648; a number's four bytes are 1, 2 or no bytes beyond a multiple of three. */
static void numbers_are_written(void **state)
{
	static const float v[] = {1, -0.5f, 0.1f};
	(void)state;
	expect_text(v, 1, true, "\"AACAPw==\"");
	expect_text(v, 2, true, "\"AACAPwAAAL8=\"");
	expect_text(v, 3, true, "\"AACAPwAAAL/NzMw9\"");
	expect_text(v, 3, false, "[1,-0.5,0.100000001]");
}

static void no_room_is_told(void **state)
{
	static const float v[1000];
	struct sl_buf b;
	(void)state;
	buf_init(&b, 64);
	assert_int_equal(embed_put(&b, v, 1000, true), SL_ELIMIT);
	assert_int_equal(embed_put(&b, v, 1000, false), SL_ELIMIT);
	buf_dispose(&b);
}

static void vectors_have_length_one(void **state)
{
	static const float v[] = {3, 4, 12}, zeros[3] = {0}, large[] = {3e30f, 4e30f};
	float out[3];
	(void)state;
	embed_unit(v, 2, out);
	assert_true(out[0] == 0.6f && out[1] == 0.8f);
	embed_unit(v, 3, out);
	assert_true(fabs((double)out[0] - 3.0 / 13) < 1e-7 && fabs((double)out[2] - 12.0 / 13) < 1e-7);
	embed_unit(large, 2, out);
	assert_true(fabs((double)out[0] - 0.6) < 1e-7 && fabs((double)out[1] - 0.8) < 1e-7);
	embed_unit(zeros, 3, out);
	assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
}

static void scores(void **state)
{
	static const float a[] = {1, 2, 3}, b[] = {2, 4, 6}, c[] = {-1, -2, -3}, d[] = {3, 0, -1}, zeros[3] = {0};
	(void)state;
	assert_true(fabs(embed_cosine(a, b, 3) - 1) < 1e-15 && embed_cosine(a, b, 3) <= 1);
	assert_true(fabs(embed_cosine(a, c, 3) + 1) < 1e-15 && embed_cosine(a, c, 3) >= -1);
	assert_true(embed_cosine(a, d, 3) == 0 && embed_cosine(a, zeros, 3) == 0);
	assert_true(embed_sigmoid(0) == 0.5 && embed_sigmoid(-800) == 0 && embed_sigmoid(800) == 1);
	assert_true(fabs(embed_sigmoid(2) - 0.88079707797788) < 1e-13);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_written), cmocka_unit_test(no_room_is_told),
					   cmocka_unit_test(vectors_have_length_one), cmocka_unit_test(scores)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
