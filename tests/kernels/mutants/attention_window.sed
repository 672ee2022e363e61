# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The window is one position too long.
s/p + e < all.first\[j\]/p + e + 1 < all.first[j]/
