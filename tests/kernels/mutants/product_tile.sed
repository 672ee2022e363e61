# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# Every block of rows reads the first one.
s/uint8_t \*stage, int first_tile, int slab)/uint8_t *stage, int, int slab)/; s/first_tile + n/n/g
