# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A grid has no blocks along z.
s/c->grid\[2\])/c->grid[2] - 1)/
