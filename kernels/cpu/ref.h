/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CPU_REF_H
#define KERNELS_CPU_REF_H

#include "kernels/kernels.h"

/* ref_recurrent.c: kn_ops.conv, kn_ops.delta and kn_ops.ssm of a step. */
int ref_conv_rows(const struct kn_step *s, const struct kn_conv *c, const float *x, int n_rows, float *y);
int ref_delta_rows(const struct kn_step *s, const struct kn_delta *d, const float *qkv, const float *beta,
		   const float *alpha, int n_rows, float *y);
int ref_ssm_rows(const struct kn_step *s, const struct kn_ssm *m, const float *xbc, const float *step, int n_rows,
		 float *y);

extern const struct kn_ops kn_ref_ops;

#endif
