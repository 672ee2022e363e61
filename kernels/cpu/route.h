/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts compute a row, and with what weights, shared by the reference and every instruction set: the choice
 * must not depend on the backend's rounding more than the logits do.
 */
#ifndef KERNELS_CPU_ROUTE_H
#define KERNELS_CPU_ROUTE_H

#include "kernels/kernels.h"

/* For logits[r->n] of one row, into chosen[r->n_used] and weights[r->n_used]. */
void kn_route_row(const struct kn_route *r, const float *logits, int32_t *chosen, float *weights);

#endif
