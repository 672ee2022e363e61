/* SPDX-License-Identifier: Apache-2.0
 *
 * Half-precision numbers by bits alone (IEEE 754 binary16, bfloat16): the same on every machine.
 */
#ifndef KERNELS_CPU_HALF_H
#define KERNELS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline float kn_f32_from_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline float kn_f32_from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31u, man = h & 0x3FFu;
	if (exp == 31)
		return kn_f32_from_bits(sign | 0x7F800000u | man << 13);
	if (exp != 0)
		return kn_f32_from_bits(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * 0x1.0p-24f; /* zero and subnormals, exact */
	return sign ? -f : f;
}

static inline float kn_f32_from_bf16(uint16_t h) { return kn_f32_from_bits((uint32_t)h << 16); }

#endif
