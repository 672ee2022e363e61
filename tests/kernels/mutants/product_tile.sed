# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# Every block of rows reads the first one.
s|bool there = first_tile + n < n_tiles|first_tile = 0; bool there = n < n_tiles|
