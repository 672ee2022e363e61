/* SPDX-License-Identifier: Apache-2.0
 *
 * Several floats at once, in files that are compiled for every x86-64 processor: products and sums are rounded
 * separately, so an element's result does not depend on whether it is computed with others.
 */
#ifndef KERNELS_CPU_SOME_H
#define KERNELS_CPU_SOME_H

#include <string.h>

typedef float some __attribute__((vector_size(16)));
enum { SOME = sizeof(some) / sizeof(float) };

static inline some some_load(const float *at)
{
	some v;
	memcpy(&v, at, sizeof v);
	return v;
}

static inline void some_store(float *at, some v) { memcpy(at, &v, sizeof v); }

#endif
