/* SPDX-License-Identifier: Apache-2.0
 *
 * The head needs its counts, so keys and tensors are collected in two buffers and written with the first byte of data.
 * The file's length is known then too, so a full disk is detected before anything is written.
 */
#include "engine/file/gguf_write.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/out_file.h"
#include "kernels/kernels.h"

enum { ALIGNMENT = 32, MAX_HEAD = 1 << 30, MAX_TENSORS = 1 << 16 };

struct gguf_writer {
	char *path;
	struct out_file out; /* not open: to a file that is the caller's */
	int fd;
	struct sl_err err; /* the first fault */
	struct sl_buf keys, infos;
	uint64_t n_keys, data_bytes; /* data_bytes: of the tensors added, with their padding */
	uint64_t *sizes;             /* of each tensor */
	size_t n_tensors;
	bool started;
	size_t at_tensor;
	uint64_t at_byte; /* of that tensor */
};

static void fault(struct gguf_writer *w, int code, const char *what)
{
	if (w->err.code == 0)
		sl_errf(&w->err, code, "%s: %s", w->path, what);
}

/* ---- the head ---- */

static void put(struct gguf_writer *w, struct sl_buf *to, const void *p, size_t n)
{
	int rc = w->err.code == 0 ? buf_append(to, p, n) : 0;
	if (rc != 0)
		fault(w, rc, "no memory for its head");
}

static void put_int(struct gguf_writer *w, struct sl_buf *to, uint64_t v, size_t bytes)
{
	uint8_t le[8];
	for (size_t i = 0; i < bytes; i++)
		le[i] = (uint8_t)(v >> (8 * i));
	put(w, to, le, bytes);
}

static void put_text(struct gguf_writer *w, struct sl_buf *to, const char *s, size_t n)
{
	put_int(w, to, n, 8);
	put(w, to, s, n);
}

static void put_key(struct gguf_writer *w, const char *key, size_t n, enum gguf_value type)
{
	BUG_IF(w->started || w->n_tensors > 0, "%s: a key after tensors", w->path);
	put_text(w, &w->keys, key, n);
	put_int(w, &w->keys, type, 4);
	w->n_keys++;
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n)
{
	put_key(w, key, strlen(key), GGUF_STRING);
	put_text(w, &w->keys, s, n);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
	put_key(w, key, strlen(key), GGUF_U32);
	put_int(w, &w->keys, v, 4);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	put_key(w, key, strlen(key), GGUF_F32);
	put_int(w, &w->keys, bits, 4);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
	put_key(w, key, strlen(key), GGUF_BOOL);
	put_int(w, &w->keys, v, 1);
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value type, uint64_t n)
{
	put_key(w, key, strlen(key), GGUF_ARRAY);
	put_int(w, &w->keys, type, 4);
	put_int(w, &w->keys, n, 8);
}

void gguf_item_str(struct gguf_writer *w, const char *s, size_t n) { put_text(w, &w->keys, s, n); }
void gguf_item_bytes(struct gguf_writer *w, const void *p, size_t n) { put(w, &w->keys, p, n); }

void gguf_put_raw(struct gguf_writer *w, struct proto_str key, enum gguf_value type, struct proto_str value)
{
	put_key(w, key.at, key.n, type);
	put(w, &w->keys, value.at, value.n);
}

void gguf_add_tensor(struct gguf_writer *w, const char *name, int type, int n_dims, const uint64_t *dims)
{
	BUG_IF(w->started, "%s: a tensor after data", w->path);
	size_t block = (size_t)kn_type_block(type);
	uint64_t bytes = block > 0 ? kn_type_block_bytes(type) : 0;
	if (!kn_type_in_files(type) || dims[0] % block != 0 || w->n_tensors == MAX_TENSORS) {
		fault(w, SL_EINVAL, "a tensor that can't be written");
		return;
	}
	put_text(w, &w->infos, name, strlen(name));
	put_int(w, &w->infos, (uint64_t)n_dims, 4);
	for (int d = 0; d < n_dims; d++) {
		uint64_t n = d == 0 ? dims[d] / block : dims[d];
		if (__builtin_mul_overflow(bytes, n, &bytes) || bytes > INT64_MAX / 2)
			fault(w, SL_EINVAL, "a tensor of impossible size");
		put_int(w, &w->infos, dims[d], 8);
	}
	put_int(w, &w->infos, (uint64_t)type, 4);
	put_int(w, &w->infos, w->data_bytes, 8);
	if (w->err.code != 0)
		return;
	w->sizes[w->n_tensors++] = bytes;
	w->data_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- the disk ---- */

static void write_all(struct gguf_writer *w, const void *p, size_t n)
{
	if (w->err.code == 0 && file_write(w->fd, p, n) != 0)
		sl_errf(&w->err, SL_EIO, "%s: %m", w->path);
}

static void pad(struct gguf_writer *w, uint64_t written)
{
	static const uint8_t zeros[ALIGNMENT];
	write_all(w, zeros, (size_t)((ALIGNMENT - written % ALIGNMENT) % ALIGNMENT));
}

static void start(struct gguf_writer *w)
{
	struct sl_buf head;
	buf_init(&head, 64);
	put(w, &head, "GGUF", 4);
	put_int(w, &head, 3, 4);
	put_int(w, &head, w->n_tensors, 8);
	put_int(w, &head, w->n_keys, 8);
	w->started = true;
	if (w->out.partial != NULL && w->err.code == 0)
		out_file_room(&w->out, head.len + w->keys.len + w->infos.len + ALIGNMENT + w->data_bytes, &w->err);
	write_all(w, buf_data(&head), head.len);
	write_all(w, buf_data(&w->keys), w->keys.len);
	write_all(w, buf_data(&w->infos), w->infos.len);
	pad(w, head.len + w->keys.len + w->infos.len);
	buf_dispose(&head);
	buf_dispose(&w->keys);
	buf_dispose(&w->infos);
}

void gguf_write_data(struct gguf_writer *w, const void *p, size_t n)
{
	if (w->err.code != 0)
		return;
	if (!w->started)
		start(w);
	BUG_IF(w->at_tensor == w->n_tensors || n > w->sizes[w->at_tensor] - w->at_byte,
	       "%s: more bytes than tensors promise", w->path);
	write_all(w, p, n);
	w->at_byte += n;
	if (w->at_byte == w->sizes[w->at_tensor]) {
		pad(w, w->at_byte);
		w->at_tensor++;
		w->at_byte = 0;
	}
}

int gguf_writer_status(const struct gguf_writer *w) { return w->err.code; }

/* ---- the file ---- */

static struct gguf_writer *make(const char *path, struct sl_err *err)
{
	struct gguf_writer *w = sl_zalloc(sizeof *w);
	if (w != NULL) {
		w->fd = -1;
		w->path = sl_strdup(path);
		w->sizes = sl_zalloc_n(MAX_TENSORS, sizeof *w->sizes);
		buf_init(&w->keys, MAX_HEAD);
		buf_init(&w->infos, MAX_HEAD);
	}
	if (w == NULL || w->path == NULL || w->sizes == NULL) {
		gguf_writer_abort(w);
		sl_errf(err, SL_ENOMEM, "%s: no memory", path);
		return NULL;
	}
	return w;
}

int gguf_writer_create(const char *path, bool replace, struct gguf_writer **out, struct sl_err *err)
{
	struct gguf_writer *w = make(path, err);
	if (w == NULL)
		return SL_ENOMEM;
	int rc = out_file_open(path, replace, &w->out, err);
	w->fd = w->out.fd;
	if (rc != 0) {
		gguf_writer_abort(w);
		return rc;
	}
	*out = w;
	return 0;
}

int gguf_writer_create_fd(int fd, const char *name, struct gguf_writer **out, struct sl_err *err)
{
	struct gguf_writer *w = make(name, err);
	if (w == NULL)
		return SL_ENOMEM;
	w->fd = fd;
	*out = w;
	return 0;
}

void gguf_writer_abort(struct gguf_writer *w)
{
	if (w == NULL)
		return;
	out_file_abort(&w->out);
	buf_dispose(&w->keys);
	buf_dispose(&w->infos);
	sl_free(w->sizes);
	sl_free(w->path);
	sl_free(w);
}

int gguf_writer_finish(struct gguf_writer *w, struct sl_err *err)
{
	if (w->err.code == 0 && !w->started)
		start(w);
	BUG_IF(w->err.code == 0 && w->at_tensor != w->n_tensors, "%s: tensors lack bytes", w->path);
	if (w->err.code == 0 && w->out.partial != NULL)
		out_file_finish(&w->out, &w->err);
	int rc = w->err.code;
	if (rc != 0 && err != NULL)
		*err = w->err;
	gguf_writer_abort(w);
	return rc;
}
