# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Rows of F32 are those of the first group.
s/x += (int64_t)at.row \* n_in;/x += 0 * n_in;/
