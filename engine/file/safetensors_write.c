/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/file/safetensors_write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/out_file.h"
#include "engine/file/safetensors.h"
#include "kernels/kernels.h"

enum { MAX_HEAD_BYTES = 64 << 20 };

struct st_writer {
	struct out_file file;
	struct sl_buf head;
	uint64_t bytes, written; /* of data */
	bool head_is_out;
	struct sl_err err; /* code 0: no fault */
};

int st_writer_create(const char *path, bool replace, struct st_writer **out, struct sl_err *err)
{
	struct st_writer *w = sl_zalloc(sizeof *w);
	if (w == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	buf_init(&w->head, MAX_HEAD_BYTES);
	int rc = out_file_open(path, replace, &w->file, err);
	if (rc == 0 && (rc = buf_append(&w->head, "{", 1)) != 0)
		sl_errf(err, rc, "%s: no memory", path);
	if (rc != 0) {
		st_writer_abort(w);
		return rc;
	}
	*out = w;
	return 0;
}

void st_add_matrix(struct st_writer *w, const char *name, int type, uint64_t n_rows, uint64_t width)
{
	char line[ST_MAX_NAME + 160];
	unsigned long long from = w->bytes, to = from + n_rows * kn_row_bytes(type, (size_t)width);
	BUG_IF(w->head_is_out || (type != KN_F32 && type != KN_F16 && type != KN_BF16), "tensor %s", name);
	int n = snprintf(line, sizeof line,
			 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu,%llu],\"data_offsets\":[%llu,%llu]}",
			 from > 0 ? "," : "", name, kn_type_name(type), (unsigned long long)n_rows,
			 (unsigned long long)width, from, to);
	w->bytes = to;
	if (w->err.code == 0 && buf_append(&w->head, line, (size_t)n) != 0)
		sl_errf(&w->err, SL_ENOMEM, "%s: no memory", w->file.path);
}

static void put(struct st_writer *w, const void *p, size_t n)
{
	const uint8_t *at = p;
	while (n > 0 && w->err.code == 0) {
		ssize_t k = write(w->file.fd, at, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0) {
			sl_errf(&w->err, SL_EIO, "%s: %s", w->file.path, strerror(errno));
			return;
		}
		at += k;
		n -= (size_t)k;
	}
}

/* Its length is a multiple of eight, so that data are aligned. */
static void put_head(struct st_writer *w)
{
	uint8_t length[8];
	w->head_is_out = true;
	int rc = buf_append(&w->head, "}", 1);
	while (rc == 0 && w->head.len % 8 != 0)
		rc = buf_append(&w->head, " ", 1);
	if (rc != 0 && w->err.code == 0)
		sl_errf(&w->err, rc, "%s: no memory", w->file.path);
	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)((uint64_t)w->head.len >> (8 * i));
	put(w, length, sizeof length);
	put(w, buf_data(&w->head), w->head.len);
}

void st_write_data(struct st_writer *w, const void *p, size_t n)
{
	if (!w->head_is_out)
		put_head(w);
	put(w, p, n);
	w->written += n;
}

int st_writer_finish(struct st_writer *w, struct sl_err *err)
{
	int rc = w->err.code;
	if (rc == 0 && w->written != w->bytes)
		rc = sl_errf(&w->err, SL_EINVAL, "%s: its tensors lack bytes", w->file.path);
	if (rc == 0) {
		rc = out_file_finish(&w->file, err);
	} else {
		out_file_abort(&w->file);
		sl_errf(err, rc, "%s", w->err.text);
	}
	buf_dispose(&w->head);
	sl_free(w);
	return rc;
}

void st_writer_abort(struct st_writer *w)
{
	if (w == NULL)
		return;
	out_file_abort(&w->file);
	buf_dispose(&w->head);
	sl_free(w);
}
