/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of the request parsers: tables of rejected requests, and parsing with the nth allocation failing,
 * including the JSON library's.
 */
#ifndef TESTS_SUPPORT_REQUEST_RIG_H
#define TESTS_SUPPORT_REQUEST_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/utf8.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/request_fields.h"

struct refusal {
	const char *body, *param, *code;
};

/* Parses and frees the result. */
typedef int request_try_fn(const char *body, struct request_error *e);

static inline void assert_refused(request_try_fn *try, const struct refusal *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct request_error e = {0};
		int rc = try(cases[i].body, &e);
		if (rc != SL_EINVAL || strcmp(e.param, cases[i].param) != 0 || e.code == NULL ||
		    strcmp(e.code, cases[i].code) != 0)
			fail_msg("%s: %d, param %s, code %s: %s", cases[i].body, rc, e.param,
				 e.code != NULL ? e.code : "null", e.message);
		assert_true(e.message[0] != '\0' && utf8_valid(e.message, strlen(e.message)));
	}
}

/* want: the result without faults. */
static inline void sweep_allocations(request_try_fn *try, const char *body, int want)
{
	long n = 0, passes;
	int rc;
	json_mem_install();
	do {
		struct request_error e = {0};
		long before = fault_passes(FAULT_ALLOC);
		n++;
		fault_arm(FAULT_ALLOC, n, 1);
		rc = try(body, &e);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (passes >= n && rc != SL_ENOMEM)
			fail_msg("allocation %ld: %d, param %s: %s", n, rc, e.param, e.message);
		assert_true(n < 10000);
	} while (passes >= n);
	assert_int_equal(rc, want);
	assert_true(n > 2); /* something could fail */
}

#endif
