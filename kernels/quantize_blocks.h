/* SPDX-License-Identifier: Apache-2.0
 *
 * What the quantizers of small and large blocks share. Private to kernels/.
 */
#ifndef KERNELS_QUANTIZE_BLOCKS_H
#define KERNELS_QUANTIZE_BLOCKS_H

#include <stdint.h>

/* To the nearest, ties to even. */
uint16_t kn_f16_from_f32(float f);
uint16_t kn_bf16_from_f32(float f);
/* v as float16 at `at`, and what it became. SL_EINVAL when that is infinite. */
int kn_put_f16(uint8_t *at, float v, float *stored);
/* The lower four bits of 32 indices in 16 bytes. */
void kn_put_nibbles(uint8_t *qs, const uint8_t *q);

/* The fifth bits of 32 indices in 4 bytes. */
void kn_put_fifth_bits(uint8_t *qh, const uint8_t *q);
/* The indices of 256 values, from 0, in a block whose scales are there. */
void kn_pack_q2_k(const uint8_t *q, uint8_t *at);
void kn_pack_q3_k(const uint8_t *q, uint8_t *at);
void kn_pack_q4_k(const uint8_t *q, uint8_t *at);
void kn_pack_q5_k(const uint8_t *q, uint8_t *at);
void kn_pack_q6_k(const uint8_t *q, uint8_t *at);

/* 256 finite values to a block. SL_EINVAL when they are beyond the type's range. */
int kn_encode_q2_k(const float *x, uint8_t *at);
int kn_encode_q3_k(const float *x, uint8_t *at);
int kn_encode_q4_k(const float *x, uint8_t *at);
int kn_encode_q5_k(const float *x, uint8_t *at);
int kn_encode_q6_k(const float *x, uint8_t *at);
int kn_encode_iq4_xs(const float *x, uint8_t *at);

#endif
