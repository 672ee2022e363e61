# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# The next row.
s/rows\[blockIdx.x\]/rows[(blockIdx.x + 1) % gridDim.x]/
