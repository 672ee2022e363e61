/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an adapter of random numbers for a base, in either form, for tests and measurements: the same seed makes the
 * same adapter in both, however rows of queries and keys lie there.
 */
#ifndef ENGINE_ADAPTER_MAKE_H
#define ENGINE_ADAPTER_MAKE_H

#include "engine/adapter/adapter.h"

struct adapter_make {
	const char *base, *out;         /* out: a folder, or a file whose name ends with ".gguf" */
	int ranks[ADAPTER_TARGETS];     /* 0: not this one */
	double alphas[ADAPTER_TARGETS]; /* a GGUF file has one for all */
	bool by_root;                   /* rsLoRA; not in GGUF */
	int type;                       /* KN_F32, KN_F16 or KN_BF16 */
	uint64_t seed;
	bool replace; /* what is there */
};

/* Layers without a target's matrix are left out. SL_EUNSUPPORTED: the form has no key for it, no layer has the matrix,
 * or the base has it only joined with others. */
int adapter_make(const struct adapter_make *m, struct sl_err *err);

#endif
