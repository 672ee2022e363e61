/* SPDX-License-Identifier: Apache-2.0
 *
 * What tells a model's files from any others, and from what they were before: so that something made of them
 * can be kept and never be taken for another model's.
 *
 * In it are, of every part: its length, when its content last changed and when anything of it did (the system
 * sets the latter, nobody else can: a file that was written to has another one even if its other time was
 * set back), a digest of its whole head (keys, names, types, shapes, offsets) and of some bytes of every tensor. Not in
 * it are its path and inode, so a file may be opened by any name; moving or copying it makes another stamp, which costs
 * making things again and nothing else.
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

/* False where there is none: of a Hugging Face folder. */
bool model_stamp_of(const struct model_file *f, struct model_stamp *out);

#endif
