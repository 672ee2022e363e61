# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# The scale of the key after.
s/scales\[8 \* in + lane % 4 \* 2 + e % 2\]/scales[8 * in + lane % 4 * 2 + (e + 1) % 2]/
