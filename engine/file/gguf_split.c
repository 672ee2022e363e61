/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the name leads to the other files, so a file with a name of another form is rejected. The keys prove that the
 * files belong together.
 */
#include "engine/file/gguf_split.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { SUFFIX_LENGTH = sizeof "-00001-of-00004.gguf" - 1, MAX_TENSORS_IN_ALL = 1 << 16 };

/* 0 where the key is absent. */
static int get_count(const struct gguf *g, const char *key, uint32_t most, uint32_t *out, struct sl_err *err)
{
	*out = 0;
	int rc = gguf_get_u32(g, key, out, err);
	if (rc == SL_ENOTFOUND)
		return 0;
	if (rc == 0 && *out > most)
		return sl_errf(err, SL_EINVAL, "%s: %s is %u, more than %u", gguf_path(g), key, *out, most);
	return rc;
}

/* The length of path without "-00002-of-00004.gguf" for that part; 0 when it does not end so. */
static size_t prefix_length(const char *path, uint32_t part, uint32_t count)
{
	char suffix[64];
	size_t n = strlen(path);
	snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", part + 1, count);
	return n > SUFFIX_LENGTH && strcmp(path + n - SUFFIX_LENGTH, suffix) == 0 ? n - SUFFIX_LENGTH : 0;
}

/* Part i beside the one whose path's first bytes are the prefix; opened and checked. */
static int open_part(const char *path, size_t prefix, uint32_t i, uint32_t count, struct gguf **out, struct sl_err *err)
{
	struct sl_err why = {0};
	size_t bytes = prefix + SUFFIX_LENGTH + 1;
	char *name = sl_alloc(bytes);
	if (name == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	snprintf(name, bytes, "%.*s-%05u-of-%05u.gguf", (int)prefix, path, i + 1, count);
	struct gguf *g = NULL;
	int rc = gguf_open(name, &g, &why);
	uint32_t no = 0, its_count = 0;
	if (rc == 0)
		rc = get_count(g, "split.no", UINT32_MAX, &no, &why);
	if (rc == 0)
		rc = get_count(g, "split.count", UINT32_MAX, &its_count, &why);
	if (rc != 0)
		sl_errf(err, rc, "part %u of %u: %s", i + 1, count, why.text);
	else if (no != i || its_count != count)
		rc = sl_errf(err, SL_EINVAL, "%s: declares itself part %u of %u (split.no, split.count)", name, no + 1,
			     its_count);
	sl_free(name);
	if (rc == 0)
		*out = g;
	else
		gguf_close(g);
	return rc;
}

static int check_tensors(struct gguf **parts, uint32_t count, struct sl_err *err)
{
	uint32_t promised;
	size_t n = 0;
	int rc = get_count(parts[0], "split.tensors.count", MAX_TENSORS_IN_ALL, &promised, err);
	for (uint32_t i = 0; i < count; i++)
		n += gguf_n_tensors(parts[i]);
	if (rc == 0 && n != promised)
		return sl_errf(err, SL_EINVAL, "%s: split.tensors.count is %u, but the %u parts have %zu tensors",
			       gguf_path(parts[0]), promised, count, n);
	return rc;
}

static int open_others(const char *path, struct gguf **parts, uint32_t mine, uint32_t count, struct sl_err *err)
{
	size_t prefix = prefix_length(path, mine, count), n_tensors = gguf_n_tensors(parts[mine]);
	if (prefix == 0)
		return sl_errf(err, SL_EINVAL,
			       "%s: it is part %u of %u, but its name does not end in that form (-%05u-of-%05u.gguf), "
			       "so the others "
			       "can't be found",
			       path, mine + 1, count, mine + 1, count);
	int rc = 0;
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		if (i == mine)
			continue;
		rc = open_part(path, prefix, i, count, &parts[i], err);
		n_tensors += rc == 0 ? gguf_n_tensors(parts[i]) : 0;
		if (n_tensors > MAX_TENSORS_IN_ALL)
			rc = sl_errf(err, SL_EINVAL, "%s: more than %d tensors in all parts", path, MAX_TENSORS_IN_ALL);
	}
	return rc != 0 ? rc : check_tensors(parts, count, err);
}

int gguf_open_parts(const char *path, struct gguf ***out, size_t *n, struct sl_err *err)
{
	struct gguf *first;
	uint32_t no = 0, count;
	int rc = gguf_open(path, &first, err);
	if (rc != 0)
		return rc;
	rc = get_count(first, "split.count", GGUF_MAX_PARTS, &count, err);
	if (rc == 0)
		rc = get_count(first, "split.no", GGUF_MAX_PARTS, &no, err);
	if (count < 2) {
		count = 1;
		no = 0;
	}
	if (rc == 0 && no >= count)
		rc = sl_errf(err, SL_EINVAL, "%s: split.no is %u of split.count %u", path, no, count);
	struct gguf **parts = sl_zalloc_n(count, sizeof(struct gguf *));
	if (rc == 0 && parts == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	if (rc != 0) {
		sl_free(parts);
		gguf_close(first);
		return rc;
	}
	parts[no] = first;
	if (count > 1)
		rc = open_others(path, parts, no, count, err);
	if (rc != 0) {
		gguf_close_parts(parts, count);
		return rc;
	}
	*out = parts;
	*n = count;
	return 0;
}

void gguf_close_parts(struct gguf **parts, size_t n)
{
	for (size_t i = 0; parts != NULL && i < n; i++)
		gguf_close(parts[i]);
	sl_free(parts);
}
