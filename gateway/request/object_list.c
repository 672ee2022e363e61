/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/object_list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int older(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	json_int_t i = json_integer_value(json_object_get(x, "created_at"));
	json_int_t k = json_integer_value(json_object_get(y, "created_at"));
	if (i != k)
		return i < k ? -1 : 1;
	return strcmp(json_string_value(json_object_get(x, "id")), json_string_value(json_object_get(y, "id")));
}

json_t *object_list(const char *lines, size_t n, object_of_line *of, void *ctx)
{
	const char *end = lines + n;
	size_t n_lines = 0, i = 0;
	for (const char *p = lines; p < end; p++)
		n_lines += *p == '\n';
	json_t **all = sl_zalloc_n(n_lines + 1, sizeof(json_t *)), *list = json_array();
	bool ok = all != NULL && list != NULL;
	for (const char *p = lines, *stop; ok && p < end && (stop = memchr(p, '\n', (size_t)(end - p))) != NULL;
	     p = stop + 1) {
		ok = of(ctx, p, (size_t)(stop - p), &all[i]) == 0;
		i += ok && all[i] != NULL;
	}
	if (ok && i > 1)
		qsort(all, i, sizeof(json_t *), older);
	for (size_t k = 0; k < i; k++)
		if (json_array_append_new(list, all[k]) != 0)
			ok = false;
	sl_free(all);
	if (ok)
		return list;
	json_decref(list);
	return NULL;
}
