# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# What there is is not made smaller when a larger maximum comes.
s/s.sum\[j \* hd + d\] \* keep\[j\]/s.sum[j * hd + d]/
