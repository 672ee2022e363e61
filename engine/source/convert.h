/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of floats to a weight type on several threads, for quantizing and for random files. The result does not
 * depend on the number of threads.
 */
#ifndef ENGINE_CONVERT_H
#define ENGINE_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/file/gguf_write.h"
#include "kernels/quantize.h"

struct convert {
	/* Fills row's floats; several threads call it at once. */
	void (*row)(void *ctx, uint64_t row, float *out);
	/* Fills row's bytes in that type instead; or NULL. */
	void (*raw_row)(void *ctx, uint64_t row, uint8_t *out);
	void *ctx;
	const struct kn_inputs *inputs; /* NULL, or of the matrix: values are rounded for them */
	int type;                       /* to */
	size_t width;                   /* elements of a row, a multiple of the type's block */
	int n_threads;                  /* 0: one for each core */
};

/* Converts rows first…first+n-1 into n · kn_row_bytes at out. SL_EINVAL: a value cannot be represented in that type
 * (not finite, too large); SL_ENOMEM. */
int convert_rows(const struct convert *c, uint64_t first, uint64_t n, void *out);

/* Reports progress, in bytes of the file's data. NULL: no report. */
struct convert_progress {
	void (*report)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	uint64_t done, total;
};
void convert_advance(struct convert_progress *p, uint64_t bytes);

/* Writes a whole tensor of n_rows rows to the file, in pieces of a few MiB. name is for messages. */
int convert_write(const struct convert *c, const char *name, uint64_t n_rows, struct gguf_writer *w,
		  struct convert_progress *p, struct sl_err *err);

#endif
