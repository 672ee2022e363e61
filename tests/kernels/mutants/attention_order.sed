# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Parts are merged from the last to the first.
s/block + i < last ? block + i : last)/block + i < last ? first + last - block - i : first)/
