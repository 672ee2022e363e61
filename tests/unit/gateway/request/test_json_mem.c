/* SPDX-License-Identifier: Apache-2.0
 *
 * A text is parsed whole or not at all, whichever allocation fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/request/json_mem.h"

static const char text[] =
    "{\"a long name that makes the lexer's buffer grow\":[\"and \\\"another\\\" text, with escapes "
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

/* The same for a document, below and above the length that lies in chunks; a value may be larger than a chunk. */
static void a_document_whole_or_not_at_all(void **state)
{
	static const size_t lengths[] = {1, 900, 15000, 30000};
	static char long_text[40000];
	json_error_t e;
	(void)state;
	json_mem_install();
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct json_doc d;
		long n = 0, passes, failures = 0;
		int used = snprintf(long_text, sizeof long_text, "[%s,\"%0*d\"]", text, (int)lengths[i], 7);
		json_t *want = json_mem_load(long_text, (size_t)used, 0, &e);
		assert_non_null(want);
		do {
			long before = fault_passes(FAULT_ALLOC);
			fault_arm(FAULT_ALLOC, ++n, 1);
			int rc = json_doc_load(long_text, (size_t)used, 0, &d, &e);
			passes = fault_passes(FAULT_ALLOC) - before;
			fault_disarm_all();
			assert_int_equal(rc, d.root != NULL ? 0 : SL_ENOMEM);
			assert_true(d.root == NULL || json_equal(d.root, want));
			assert_true(d.root != NULL || d.chunks == NULL);
			assert_true(d.root == NULL || (d.chunks != NULL) == (lengths[i] < 16000));
			failures += d.root == NULL;
			json_doc_dispose(&d);
			assert_null(d.root);
			json_doc_dispose(&d);
		} while (passes >= n);
		assert_int_equal(failures, n - 1);
		json_decref(want);
	}
}

/* What is allocated while a document is there, and freed before or after it, has nothing to do with it. */
static void a_document_leaves_others_alone(void **state)
{
	struct json_doc a, b;
	json_error_t e;
	(void)state;
	json_mem_install();
	json_t *other = json_string("other");
	assert_int_equal(json_doc_load(text, sizeof text - 1, 0, &a, &e), 0);
	json_t *copy = json_deep_copy(a.root);
	assert_int_equal(json_doc_load("[1,2]", 5, 0, &b, &e), 0);
	json_decref(other);
	assert_true(json_equal(copy, a.root));
	json_doc_dispose(&a);
	assert_int_equal(json_integer_value(json_array_get(b.root, 1)), 2);
	json_doc_dispose(&b);
	assert_int_equal(json_array_size(json_object_get(copy, "a long name that makes the lexer's buffer grow")), 3);
	json_decref(copy);
	assert_int_equal(json_doc_load("{\"a\":[1,{\"b\":}", 14, 0, &a, &e), SL_EINVAL);
	assert_true(e.text[0] != '\0' && a.root == NULL && a.chunks == NULL);
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
	    cmocka_unit_test(a_document_whole_or_not_at_all),
	    cmocka_unit_test(a_document_leaves_others_alone),
	    cmocka_unit_test(bad_text_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
