/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/dequant.h"

#include <string.h>

#include "kernels/cpu/half.h"

void kn_dequantize_row(const struct kn_weight *w, int row, float *y)
{
	const uint8_t *at = (const uint8_t *)w->data + (size_t)row * kn_row_bytes(w->type, (size_t)w->n_in);
	for (int i = 0; i < w->n_in; i++) {
		uint16_t h;
		switch (w->type) {
		case KN_F32: memcpy(&y[i], at + (size_t)i * 4, 4); break;
		case KN_F16:
			memcpy(&h, at + (size_t)i * 2, 2);
			y[i] = kn_f32_from_f16(h);
			break;
		case KN_BF16:
			memcpy(&h, at + (size_t)i * 2, 2);
			y[i] = kn_f32_from_bf16(h);
			break;
		case KN_Q8_0: {
			const uint8_t *block = at + (size_t)(i / 32) * 34;
			memcpy(&h, block, 2);
			y[i] = kn_f32_from_f16(h) * (float)(int8_t)block[2 + i % 32];
			break;
		}
		default: BUG("weight type %d", w->type);
		}
	}
}
