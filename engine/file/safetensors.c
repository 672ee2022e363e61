/* SPDX-License-Identifier: Apache-2.0
 *
 * The head is walked twice: once to count tensors and their names' bytes, then to fill what was
 * allocated for exactly these. The walker (base/json_scan) builds no tree, so that a head of many
 * megabytes costs no more than its tensors do.
 */
#include "engine/file/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_scan.h"
#include "base/text.h"
#include "engine/file/map_file.h"
#include "kernels/kernels.h"

/* The reference reader's own bound on the head. */
enum { MAX_HEAD = 100000000 };

struct safetensors {
	char *path;
	struct map_file map;
	const uint8_t *data; /* behind the head */
	uint64_t data_bytes;
	struct st_tensor *tensors;
	size_t n;
	char *names;
};

static const struct {
	const char *name;
	uint64_t bytes;
	int type;
} dtypes[] = {
    {"F32", 4, KN_F32}, {"F16", 2, KN_F16}, {"BF16", 2, KN_BF16}, {"F64", 8, -1},     {"I64", 8, -1}, {"I32", 4, -1},
    {"I16", 2, -1},     {"I8", 1, -1},      {"U8", 1, -1},        {"U16", 2, -1},     {"U32", 4, -1}, {"U64", 8, -1},
    {"BOOL", 1, -1},    {"F8_E4M3", 1, -1}, {"F8_E5M2", 1, -1},   {"F8_E8M0", 1, -1}, {"C64", 8, -1},
};

static int malformed(const struct safetensors *s, const struct json_scan *j, struct sl_err *err)
{
	return sl_errf(err, SL_EINVAL, "%s: byte %zu of the head: %s", s->path, (size_t)(j->at - j->text), j->bad);
}

static bool is_metadata(struct proto_str key) { return json_is(key, "__metadata__"); }

static int count_tensors(struct safetensors *s, struct proto_str head, size_t *name_bytes, struct sl_err *err)
{
	struct json_scan j;
	struct proto_str key;
	json_scan_init(&j, head.at, head.n);
	json_scan_object(&j);
	while (json_scan_key(&j, &key)) {
		json_scan_skip(&j);
		if (is_metadata(key))
			continue;
		s->n++;
		*name_bytes += key.n + 1;
		if (s->n > ST_MAX_TENSORS)
			return sl_errf(err, SL_EINVAL, "%s: more than %d tensors", s->path, ST_MAX_TENSORS);
	}
	return json_scan_end(&j) ? 0 : malformed(s, &j, err);
}

/* Checks and copies a name: messages contain it, and its length is bounded. */
static int copy_name(const struct safetensors *s, struct proto_str key, char **at, struct sl_err *err)
{
	char *name = *at;
	size_t n = json_unescape(key, name);
	if (n == 0 || n > ST_MAX_NAME || text_has_control(name, n))
		return sl_errf(err, SL_EINVAL, "%s: a tensor has no proper name", s->path);
	name[n] = '\0';
	*at = name + n + 1;
	return 0;
}

static void scan_shape(struct json_scan *j, struct st_tensor *t, const char **wrong)
{
	json_scan_array(j);
	t->n_dims = 0;
	while (json_scan_item(j)) {
		uint64_t dim;
		if (!json_scan_uint(j, &dim))
			return;
		if (t->n_dims == ST_MAX_DIMS) {
			*wrong = "too many dimensions";
			return;
		}
		t->dims[t->n_dims++] = dim;
	}
}

/* Reads a tensor's entry of the head. */
static int scan_tensor(struct safetensors *s, struct json_scan *j, struct st_tensor *t, struct proto_str *dtype,
		       uint64_t offsets[2], struct sl_err *err)
{
	struct proto_str key;
	int n_offsets = -1;
	const char *wrong = NULL;
	t->n_dims = -1;
	json_scan_object(j);
	while (wrong == NULL && json_scan_key(j, &key)) {
		if (json_is(key, "dtype")) {
			json_scan_string(j, dtype);
		} else if (json_is(key, "shape")) {
			scan_shape(j, t, &wrong);
		} else if (json_is(key, "data_offsets")) {
			json_scan_array(j);
			for (n_offsets = 0; json_scan_item(j); n_offsets++) {
				uint64_t v = 0;
				json_scan_uint(j, &v);
				if (n_offsets < 2)
					offsets[n_offsets] = v;
			}
		} else {
			json_scan_skip(j);
		}
	}
	if (j->bad != NULL)
		return malformed(s, j, err);
	if (wrong == NULL && (t->n_dims < 0 || n_offsets != 2 || dtype->n == 0))
		wrong = "dtype, shape or data_offsets is missing or malformed";
	if (wrong != NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: %s", s->path, t->name, wrong);
	return 0;
}

static int read_tensor(struct safetensors *s, struct json_scan *j, struct st_tensor *t, struct sl_err *err)
{
	struct proto_str dtype = {.at = "", .n = 0};
	uint64_t offsets[2] = {0, 0}, want = 0;
	int rc = scan_tensor(s, j, t, &dtype, offsets, err);
	if (rc != 0)
		return rc;
	t->type = -1;
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		if (json_is(dtype, dtypes[i].name)) {
			t->dtype = dtypes[i].name;
			t->type = dtypes[i].type;
			want = dtypes[i].bytes;
		}
	}
	if (want == 0)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s has dtype %.*s, which this version does not support", s->path, t->name,
			       (int)(dtype.n > 20 ? 20 : dtype.n), dtype.at);
	uint64_t element = want;
	for (int d = 0; d < t->n_dims; d++)
		if (t->dims[d] == 0 || __builtin_mul_overflow(want, t->dims[d], &want) || want > INT64_MAX)
			return sl_errf(err, SL_EINVAL, "%s: tensor %s has an impossible shape", s->path, t->name);
	if (offsets[0] > offsets[1] || offsets[1] > s->data_bytes)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is at bytes %llu to %llu, but the file has %llu of data",
			       s->path, t->name, (unsigned long long)offsets[0], (unsigned long long)offsets[1],
			       (unsigned long long)s->data_bytes);
	if (offsets[1] - offsets[0] != want)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s has %llu bytes, but its shape and dtype make %llu",
			       s->path, t->name, (unsigned long long)(offsets[1] - offsets[0]),
			       (unsigned long long)want);
	t->data = s->data + offsets[0];
	t->bytes = want;
	if ((uintptr_t)t->data % element != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is not aligned to its elements", s->path, t->name);
	if (t->n_dims == 0) {
		t->n_dims = 1;
		t->dims[0] = 1;
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const uint8_t *x = (*(const struct st_tensor *const *)a)->data,
		      *y = (*(const struct st_tensor *const *)b)->data;
	return (x > y) - (x < y);
}

/* The tensors fill the data exactly: nothing is shared by two, nothing hides between them. */
static int check_places(const struct safetensors *s, struct sl_err *err)
{
	const struct st_tensor **order = sl_zalloc_n(s->n, sizeof(struct st_tensor *));
	if (order == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", s->path);
	for (size_t i = 0; i < s->n; i++)
		order[i] = &s->tensors[i];
	qsort(order, s->n, sizeof(struct st_tensor *), by_place);
	const uint8_t *at = s->data;
	int rc = 0;
	for (size_t i = 0; i < s->n && rc == 0; i++) {
		const uint8_t *begin = order[i]->data;
		if (begin != at)
			rc = sl_errf(err, SL_EINVAL, "%s: tensor %s %s", s->path, order[i]->name,
				     begin < at ? "overlaps another" : "comes after bytes that belong to no tensor");
		at = begin + order[i]->bytes;
	}
	if (rc == 0 && at != s->data + s->data_bytes)
		rc = sl_errf(err, SL_EINVAL, "%s: its last %llu bytes belong to no tensor", s->path,
			     (unsigned long long)(s->data + s->data_bytes - at));
	sl_free(order);
	return rc;
}

static int read_head(struct safetensors *s, struct sl_err *err)
{
	uint64_t n = 0;
	if (s->map.bytes < 8)
		return sl_errf(err, SL_EINVAL, "%s: not a safetensors file: it has %zu bytes", s->path, s->map.bytes);
	for (int i = 0; i < 8; i++)
		n |= (uint64_t)s->map.at[i] << (8 * i);
	if (n < 2 || n > MAX_HEAD || n > s->map.bytes - 8)
		return sl_errf(err, SL_EINVAL, "%s: not a safetensors file: a head of %llu bytes in a file of %zu",
			       s->path, (unsigned long long)n, s->map.bytes);
	struct proto_str head = {.at = (const char *)s->map.at + 8, .n = (size_t)n}, key;
	s->data = s->map.at + 8 + n;
	s->data_bytes = s->map.bytes - 8 - n;
	size_t name_bytes = 0;
	int rc = count_tensors(s, head, &name_bytes, err);
	if (rc != 0)
		return rc;
	s->tensors = sl_zalloc_n(s->n, sizeof *s->tensors);
	s->names = sl_zalloc(name_bytes);
	if (s->tensors == NULL || s->names == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", s->path, s->n);
	struct json_scan j;
	char *name_at = s->names;
	struct st_tensor *t = s->tensors;
	json_scan_init(&j, head.at, head.n);
	json_scan_object(&j);
	while (json_scan_key(&j, &key)) {
		if (is_metadata(key)) {
			json_scan_skip(&j);
			continue;
		}
		t->name = name_at;
		if ((rc = copy_name(s, key, &name_at, err)) != 0 || (rc = read_tensor(s, &j, t, err)) != 0)
			return rc;
		t++;
	}
	return check_places(s, err);
}

/* most 0: mapped; otherwise read into memory, so many bytes at most. */
static int open_as(const char *path, uint64_t most, struct safetensors **out, struct sl_err *err)
{
	struct safetensors *s = sl_zalloc(sizeof *s);
	if (s != NULL)
		s->path = sl_strdup(path);
	if (s == NULL || s->path == NULL) {
		sl_free(s);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	int rc = most > 0 ? map_file_read(path, most, &s->map, err) : map_file_open(path, &s->map, err);
	if (rc == 0)
		rc = read_head(s, err);
	if (rc != 0) {
		safetensors_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

int safetensors_open(const char *path, struct safetensors **out, struct sl_err *err)
{
	return open_as(path, 0, out, err);
}

int safetensors_read(const char *path, uint64_t most, struct safetensors **out, struct sl_err *err)
{
	return open_as(path, most, out, err);
}

void safetensors_close(struct safetensors *s)
{
	if (s == NULL)
		return;
	map_file_close(&s->map);
	sl_free(s->tensors);
	sl_free(s->names);
	sl_free(s->path);
	sl_free(s);
}

uint64_t safetensors_bytes(const struct safetensors *s) { return s->map.bytes; }
size_t safetensors_n(const struct safetensors *s) { return s->n; }
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i) { return &s->tensors[i]; }
