# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# The scale of the key after.
s/scales\[i \/ 2 \* 8 + a.lane % 4 \* 2 + i % 2\]/scales[i \/ 2 * 8 + a.lane % 4 * 2 + (i + 1) % 2]/
