# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# The next stage goes where the present one is.
s|uint8_t \*stage = stages + half % P::stages|uint8_t *stage = stages + (half + 1) % P::stages|
