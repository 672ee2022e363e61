# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# A unit is used before other warps have brought their part of it.
s/kn_barrier(); \/\* unit u is complete.*$//
