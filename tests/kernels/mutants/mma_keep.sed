# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# Weights so far are not made smaller when a larger maximum comes.
s/b->sum\[j\] \* keep\[j\] + total/b->sum[j] + total/
