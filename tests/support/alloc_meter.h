/* SPDX-License-Identifier: Apache-2.0
 *
 * A base/alloc that counts current and peak bytes, including jansson's allocations. Included by one file of a test, it
 * replaces the real one. Threads may allocate.
 */
#ifndef TESTS_ALLOC_METER_H
#define TESTS_ALLOC_METER_H

#include <jansson.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static atomic_size_t meter_live, meter_peak;
static atomic_long meter_fail_at; /* 1: the next allocation fails; 0: none does */

static bool meter_fails(void) { return atomic_load(&meter_fail_at) > 0 && atomic_fetch_sub(&meter_fail_at, 1) == 1; }

static void meter_add(void *p)
{
	size_t now = atomic_fetch_add(&meter_live, malloc_usable_size(p)) + malloc_usable_size(p);
	size_t peak = atomic_load(&meter_peak);
	while (now > peak && !atomic_compare_exchange_weak(&meter_peak, &peak, now))
		;
}

void *sl_alloc(size_t bytes)
{
	void *p = meter_fails() ? NULL : malloc(bytes ? bytes : 1);
	if (p != NULL)
		meter_add(p);
	return p;
}

void sl_free(void *p)
{
	if (p != NULL)
		atomic_fetch_sub(&meter_live, malloc_usable_size(p));
	free(p);
}

void *sl_zalloc(size_t bytes)
{
	void *p = sl_alloc(bytes);
	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

void *sl_zalloc_n(size_t n, size_t each)
{
	size_t bytes;
	return __builtin_mul_overflow(n, each, &bytes) ? NULL : sl_zalloc(bytes);
}

void *sl_realloc_n(void *p, size_t n, size_t each)
{
	size_t bytes, old = p != NULL ? malloc_usable_size(p) : 0;
	if (__builtin_mul_overflow(n, each, &bytes) || meter_fails())
		return NULL;
	void *q = realloc(p, bytes ? bytes : 1);
	if (q != NULL) {
		atomic_fetch_sub(&meter_live, old);
		meter_add(q);
	}
	return q;
}

char *sl_strndup(const char *s, size_t n)
{
	char *p = sl_alloc(n + 1);
	if (p != NULL) {
		memcpy(p, s, n);
		p[n] = '\0';
	}
	return p;
}

char *sl_strdup(const char *s) { return sl_strndup(s, strlen(s)); }

/* Counted but never failing: jansson's lexer asserts success. */
static void *meter_json_alloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);
	if (p != NULL)
		meter_add(p);
	return p;
}

/* Before the first allocation of jansson's. */
static inline void meter_install(void) { json_set_alloc_funcs(meter_json_alloc, sl_free); }

static inline void meter_reset(void) { atomic_store(&meter_peak, atomic_load(&meter_live)); }

#endif
