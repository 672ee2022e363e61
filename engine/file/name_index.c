/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/file/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

struct named {
	name_index_at *at;
	const void *list;
};

static int compare(struct proto_str a, struct proto_str b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int c = n > 0 ? memcmp(a.at, b.at, n) : 0;
	return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_numbers(const void *a, const void *b, void *ctx)
{
	const struct named *of = ctx;
	return compare(of->at(of->list, *(const uint32_t *)a), of->at(of->list, *(const uint32_t *)b));
}

int name_index_make(name_index_at *at, const void *list, size_t n, uint32_t **out, size_t *twice)
{
	struct named of = {at, list};
	uint32_t *index = sl_zalloc_n(n, sizeof *index);
	if (index == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++)
		index[i] = (uint32_t)i;
	qsort_r(index, n, sizeof *index, compare_numbers, &of);
	*twice = n;
	for (size_t i = 1; i < n; i++)
		if (compare_numbers(&index[i - 1], &index[i], &of) == 0)
			*twice = index[i];
	*out = index;
	return 0;
}

size_t name_index_find(const uint32_t *index, size_t n, name_index_at *at, const void *list, struct proto_str name)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = compare(name, at(list, index[mid]));
		if (c == 0)
			return index[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return n;
}
