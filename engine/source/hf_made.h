/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor that its folder does not have as the engine uses it: made on demand of what the folder has.
 */
#ifndef ENGINE_HF_MADE_H
#define ENGINE_HF_MADE_H

#include <stdint.h>

#include "base/err.h"

struct hf_made {
	/* Fills the tensor's bytes, on several threads (0: all). path is the folder's, for messages. */
	int (*make)(const void *of, const char *path, int n_threads, void *out, struct sl_err *err);
	const void *of;     /* struct hf_matrix or struct hf_woven */
	const void *source; /* mapped bytes that are rarely read again */
	uint64_t source_bytes;
	int bits; /* of a weight in the folder, without scales; 0: those of the tensor's type */
};

#endif
