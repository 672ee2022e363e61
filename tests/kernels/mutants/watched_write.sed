# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# A block gathers the same row for another one, too.
s/store4(y + to, i, width, wide, load4(x + from, i, width, wide));/{\n\t\tstore4(y + to, i, width, wide, load4(x + from, i, width, wide));\n\t\tif (blockIdx.x == 0 \&\& gridDim.x > 2 \&\& rows[2] == rows[0])\n\t\t\tstore4(y + 2 * width, i, width, wide, load4(x + from, i, width, wide));\n\t}/
