# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Parts before the window, which nothing wrote, are merged with the others.
s/^\tfirst \/= KN_ATTN_BLOCK;/\tfirst = 0;/
