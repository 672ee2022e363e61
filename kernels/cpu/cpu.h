/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

extern const struct kn_ops kn_avx2_ops, kn_avx2_int8_ops, kn_avx512_ops, kn_vnni_ops, kn_amx_ops, kn_amx_int8_ops;

#endif
