/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are used as they lie in a mapped file can leave memory and come back. Everything else of a model stays:
 * tokenizer, template, work space. Weights that were converted or rearranged into memory of the process stay, too.
 */
#ifndef ENGINE_RESIDENCE_H
#define ENGINE_RESIDENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/source/convert.h"

/* Places in mapped files, in the order of loading. */
struct residence {
	struct residence_place {
		const uint8_t *at;
		size_t bytes;
	} * places;
	size_t n, cap;
	uint64_t bytes; /* of all places */
	uint64_t fixed; /* bytes of weights that are in no mapped file */
};

/* Weights that a model uses there; in_place: as they lie in its file or its cache, if that is mapped. */
void residence_add(struct residence *r, const void *at, size_t bytes, bool in_place);
void residence_dispose(struct residence *r);
/* Reads every place into memory, a few MiB at a time, so that steps never wait for the disk. SL_EIO: the disk fails;
 * SL_ECLOSED: *stop was set. Any thread; nothing may drop them meanwhile. */
int residence_bring(const struct residence *r, struct convert_progress *progress, const atomic_bool *stop);
/* Gives the memory back to the system. No step may run. */
void residence_drop(const struct residence *r);

#endif
