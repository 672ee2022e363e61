/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifies the state of a model's files, so that derived data can be cached and never be taken for another model's.
 *
 * For every file it covers the length, mtime and ctime (only the kernel sets the latter, so a modified file differs
 * even if its mtime was reset), and a digest of its whole head (keys, names, types, shapes, offsets) and of some bytes
 * of every tensor. It does not cover path and inode, so a file may be opened by any name. Moving or copying a file
 * changes the stamp; then the data are derived again.
 */
#ifndef ENGINE_MODEL_STAMP_H
#define ENGINE_MODEL_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/source/model_file.h"

struct model_stamp {
	uint64_t digest[2];
	uint64_t changed_ns; /* the last change of any part, since 1970 */
};

/* False: none (a Hugging Face folder). */
bool model_stamp_of(const struct model_file *f, struct model_stamp *out);

#endif
