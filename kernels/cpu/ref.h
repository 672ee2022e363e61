/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CPU_REF_H
#define KERNELS_CPU_REF_H

#include "kernels/kernels.h"

extern const struct kn_ops kn_ref_ops;

#endif
