/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes GGUF bytes piece by piece, so that a test can make any piece wrong. Nothing here checks.
 */
#ifndef TESTS_GGUF_WRITE_H
#define TESTS_GGUF_WRITE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

enum { GW_MAX = 8192 };

struct gw {
	uint8_t at[GW_MAX];
	size_t n;
};

static inline void gw_bytes(struct gw *w, const void *p, size_t n)
{
	BUG_IF(n > GW_MAX - w->n, "gguf_write: more than %d bytes", GW_MAX);
	memcpy(w->at + w->n, p, n);
	w->n += n;
}

static inline void gw_int(struct gw *w, uint64_t v, size_t bytes)
{
	gw_bytes(w, &v, bytes); /* little endian, as every machine this builds for */
}

static inline void gw_u32(struct gw *w, uint32_t v) { gw_int(w, v, 4); }
static inline void gw_u64(struct gw *w, uint64_t v) { gw_int(w, v, 8); }

static inline void gw_f32(struct gw *w, float v) { gw_bytes(w, &v, 4); }

static inline void gw_str(struct gw *w, const char *s)
{
	gw_u64(w, strlen(s));
	gw_bytes(w, s, strlen(s));
}

static inline void gw_head(struct gw *w, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
	gw_bytes(w, "GGUF", 4);
	gw_u32(w, version);
	gw_u64(w, n_tensors);
	gw_u64(w, n_keys);
}

/* The name and type of a key; its value comes next. */
static inline void gw_key(struct gw *w, const char *name, uint32_t type)
{
	gw_str(w, name);
	gw_u32(w, type);
}

static inline void gw_array(struct gw *w, const char *name, uint32_t type, uint64_t n)
{
	gw_key(w, name, 9);
	gw_u32(w, type);
	gw_u64(w, n);
}

static inline void gw_tensor(struct gw *w, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
			     uint64_t offset)
{
	gw_str(w, name);
	gw_u32(w, n_dims);
	for (uint32_t i = 0; i < n_dims; i++)
		gw_u64(w, dims[i]);
	gw_u32(w, type);
	gw_u64(w, offset);
}

static inline void gw_pad(struct gw *w, size_t alignment)
{
	while (w->n % alignment != 0)
		gw_int(w, 0, 1);
}

/* A key of each type and tensors of three types; the data ends with the file. */
static inline void gw_good(struct gw *w, uint32_t version)
{
	static const uint64_t vector[] = {5}, matrix[] = {32, 3}, cube[] = {2, 3, 2};
	w->n = 0;
	gw_head(w, version, 3, 17);
	gw_key(w, "general.alignment", 4);
	gw_u32(w, 32);
	gw_key(w, "t.u8", 0), gw_int(w, 200, 1);
	gw_key(w, "t.i8", 1), gw_int(w, (uint64_t)-2, 1);
	gw_key(w, "t.u16", 2), gw_int(w, 60000, 2);
	gw_key(w, "t.i16", 3), gw_int(w, (uint64_t)-300, 2);
	gw_key(w, "t.u32", 4), gw_int(w, 4000000000u, 4);
	gw_key(w, "t.i32", 5), gw_int(w, (uint64_t)-70000, 4);
	gw_key(w, "t.f32", 6), gw_f32(w, 0.5f);
	gw_key(w, "t.bool", 7), gw_int(w, 1, 1);
	gw_key(w, "t.string", 8), gw_str(w, "a\nb");
	gw_array(w, "t.strings", 8, 3);
	gw_str(w, "one"), gw_str(w, ""), gw_str(w, "three");
	gw_array(w, "t.ints", 5, 2);
	gw_u32(w, 7), gw_u32(w, (uint32_t)-8);
	gw_array(w, "t.floats", 6, 2);
	gw_f32(w, 1.5f), gw_f32(w, -2);
	gw_array(w, "t.none", 8, 0);
	gw_key(w, "t.u64", 10), gw_u64(w, 1ull << 40);
	gw_key(w, "t.i64", 11), gw_u64(w, (uint64_t)-9);
	gw_key(w, "t.f64", 12);
	gw_bytes(w, &(double){0.25}, 8);
	gw_tensor(w, "vector", 1, vector, 0, 0);  /* F32, 20 bytes */
	gw_tensor(w, "matrix", 2, matrix, 8, 32); /* Q8_0, 102 bytes */
	gw_tensor(w, "cube", 3, cube, 1, 160);    /* F16, 24 bytes */
	gw_pad(w, 32);
	for (int i = 0; i < 184; i++)
		gw_int(w, (uint64_t)i, 1);
}

/* The bytes as a file in memory; the same path each time. */
static inline const char *gw_file(const void *bytes, size_t n)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("gguf", MFD_CLOEXEC);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	BUG_IF(fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n, "gguf_write: no file");
	return path;
}

#endif
