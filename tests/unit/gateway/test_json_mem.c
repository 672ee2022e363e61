/* SPDX-License-Identifier: Apache-2.0
 *
 * A text is parsed whole or not at all, whichever allocation fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/json_mem.h"

static const char text[] = "{\"a long name that makes the lexer's buffer grow\":[\"and \\\"another\\\" text, with escapes "
			   "\\u00e9\\ud83d\\ude00 \\\\ that makes it grow once more, and once more again\",1.5,{\"b\":null}]}";

static void whole_or_not_at_all(void **state)
{
	json_error_t e;
	long passes, n = 0, failures = 0;
	(void)state;
	json_mem_install();
	json_t *want = json_mem_load(text, sizeof text - 1, 0, &e);
	assert_non_null(want);
	do {
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, ++n, 1);
		json_t *v = json_mem_load(text, sizeof text - 1, 0, &e);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (v != NULL)
			assert_true(json_equal(v, want));
		else
			assert_string_equal(e.text, "");
		failures += v == NULL;
		json_decref(v);
	} while (passes >= n);
	assert_int_equal(failures, n - 1);
	assert_true(n > 10);
	json_decref(want);
}

static void bad_text_is_told(void **state)
{
	json_error_t e;
	(void)state;
	json_mem_install();
	assert_null(json_mem_load("{\"a\":}", 6, 0, &e));
	assert_true(e.text[0] != '\0');
	/* A failure before it leaves no trace. */
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_null(json_object());
	fault_disarm_all();
	json_t *v = json_mem_load("{}", 2, 0, &e);
	assert_non_null(v);
	json_decref(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_or_not_at_all),
	    cmocka_unit_test(bad_text_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
