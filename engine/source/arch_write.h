/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a family's description as GGUF keys and tensors: the inverse of arch_gguf.c.
 */
#ifndef ENGINE_ARCH_WRITE_H
#define ENGINE_ARCH_WRITE_H

#include "engine/source/arch.h"
#include "engine/file/gguf_write.h"

/* general.architecture and all "<family>." keys. SL_EUNSUPPORTED: GGUF has no key for a field. */
int arch_write_keys(const struct model_arch *a, struct gguf_writer *w, struct sl_err *err);

/* Tensors that are not weights but belong to the description: rope_freqs, rope_factors_long and _short. Writes *n of
 * them, at most ARCH_EXTRA_TENSORS, into out: F32 vectors of n_rot / 2. */
enum { ARCH_EXTRA_TENSORS = 2 };
struct arch_extra {
	const char *name;
	int n;
	float values[ARCH_MAX_ROT];
};
int arch_write_extras(const struct model_arch *a, struct arch_extra *out);

#endif
