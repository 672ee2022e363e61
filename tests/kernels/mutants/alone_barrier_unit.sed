# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Values and weights are used before other warps have brought them.
s/kn_barrier(); \/\* all warps' units.*$//
