# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# Numbers of 8 bits are used before other warps have made them float16.
s/kn_barrier(); \/\* its float16.*$//
