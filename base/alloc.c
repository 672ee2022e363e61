/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

/* glibc's calloc bypasses the thread's cache of small freed blocks, which malloc uses. Large blocks may come from the
 * system, already zeroed. */
enum { CLEARED_HERE = 1024 };

void *sl_alloc(size_t bytes)
{
	if (fault_hit(FAULT_ALLOC))
		return NULL;
	return malloc(bytes ? bytes : 1);
}

void *sl_zalloc(size_t bytes) { return sl_zalloc_n(1, bytes); }

void *sl_zalloc_n(size_t n, size_t each)
{
	size_t bytes;
	if (__builtin_mul_overflow(n, each, &bytes) || fault_hit(FAULT_ALLOC))
		return NULL;
	if (bytes > CLEARED_HERE)
		return calloc(1, bytes);
	void *p = malloc(bytes ? bytes : 1);
	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

void *sl_realloc_n(void *p, size_t n, size_t each)
{
	size_t bytes;
	if (__builtin_mul_overflow(n, each, &bytes) || fault_hit(FAULT_ALLOC))
		return NULL;
	return realloc(p, bytes ? bytes : 1);
}

char *sl_strndup(const char *s, size_t n)
{
	char *copy = sl_alloc(n + 1);
	if (copy == NULL)
		return NULL;
	if (n > 0)
		memcpy(copy, s, n);
	copy[n] = '\0';
	return copy;
}

char *sl_strdup(const char *s) { return sl_strndup(s, strlen(s)); }

void sl_free(void *p) { free(p); }
