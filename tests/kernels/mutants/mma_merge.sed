# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# Values so far are not made smaller when a larger maximum comes.
s|was\[i\] \* keep|was[i]|
