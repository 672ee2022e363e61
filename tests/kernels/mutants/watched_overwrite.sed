# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# A block reads a number of the next row, which that row's block overwrites, and does not use it.
/void norm_wide(struct row_call c)/{n;s/{/{\n\tvolatile float ahead = c.x[(int64_t)((blockIdx.x + 1) % gridDim.x) * c.width];\n\t(void)ahead;/}
