# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# What there is is not made smaller when a larger maximum comes.
s/\*keep = expf(\*max - m);/*keep = 1.0f;/
