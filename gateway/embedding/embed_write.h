/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalises vectors and writes them as JSON or base64. Pure.
 */
#ifndef GATEWAY_EMBED_WRITE_H
#define GATEWAY_EMBED_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* out = the first n numbers of v, scaled to unit length (Matryoshka representations, Kusupati et al. 2022: a prefix of
 * a vector is a vector too). A zero vector stays zero. */
void embed_unit(const float *v, uint32_t n, float *out);
/* The cosine of two vectors of n numbers, in [-1, 1]; 0 if one is zero. */
double embed_cosine(const float *a, const float *b, uint32_t n);
/* Converts a logit to a probability. */
double embed_sigmoid(double logit);
/* Appends a JSON array of numbers, or a string: the float32s, little endian, in base64 (RFC 4648). SL_ENOMEM,
 * SL_ELIMIT. */
int embed_put(struct sl_buf *out, const float *v, uint32_t n, bool base64);

#endif
