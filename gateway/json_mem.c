/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson's lexer (2.14, load.c) does not look at whether its buffer could grow: it loses the byte
 * and goes on. When a later attempt succeeds, a string has a hole, or has lost its closing quote and
 * is copied beyond its end. So while a text is parsed the first allocation that fails is followed by
 * nothing but failures: the copy of the string then fails too, and the parser gives up.
 *
 * Thread: any; what failed is told by thread.
 */
#include "gateway/json_mem.h"

#include <stdbool.h>

#include "base/alloc.h"

static _Thread_local bool parsing, failed;

static void *json_mem_alloc(size_t bytes)
{
	void *p = parsing && failed ? NULL : sl_alloc(bytes);
	failed = failed || p == NULL;
	return p;
}

void json_mem_install(void)
{
	json_set_alloc_funcs(json_mem_alloc, sl_free);
}

json_t *json_mem_load(const char *bytes, size_t n, size_t flags, json_error_t *where)
{
	parsing = true;
	failed = false;
	json_t *v = json_loadb(bytes, n, flags, where);
	parsing = false;
	if (failed) {
		json_decref(v);
		if (where != NULL)
			where->text[0] = '\0';
		return NULL;
	}
	return v;
}
