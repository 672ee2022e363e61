/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files, read by mmap: eight bytes of length, a JSON head of that length, then the
 * tensors' bytes. Every length, offset and shape is checked before it is used, tensors neither
 * overlap nor leave gaps, and a malformed file costs a few MiB at most and one clear line. Source:
 * the format's description in the safetensors repository.
 */
#ifndef ENGINE_SAFETENSORS_H
#define ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ST_MAX_DIMS = 8, ST_MAX_TENSORS = 1 << 16, ST_MAX_NAME = 255 };

struct st_tensor {
	const char *name;  /* terminated; no control characters */
	const char *dtype; /* "BF16"; static */
	int type;          /* enum kn_type for F32, F16, BF16; else -1 */
	int n_dims;
	uint64_t dims[ST_MAX_DIMS]; /* as in the file: the last one is contiguous */
	const void *data;           /* aligned to its element */
	uint64_t bytes;
};

struct safetensors;

/* The mapping lives until safetensors_close. The message names the file and the tensor. */
int safetensors_open(const char *path, struct safetensors **out, struct sl_err *err);
/* As safetensors_open, but its bytes, at most `most`, are read into memory: later changes of the file have no effect.
 */
int safetensors_read(const char *path, uint64_t most, struct safetensors **out, struct sl_err *err);
void safetensors_close(struct safetensors *s);
uint64_t safetensors_bytes(const struct safetensors *s);
size_t safetensors_n(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i);

#endif
