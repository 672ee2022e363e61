# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# A row that was gathered before is copied from there, where another block may not have written it yet.
s/int64_t from = (int64_t)rows\[blockIdx.x\] \* width, to/const float *of = blockIdx.x == 2 ? y : x;\n\tint64_t from = blockIdx.x == 2 ? 0 : (int64_t)rows[blockIdx.x] * width, to/
s/load4(x + from, i, width, wide)/load4(of + from, i, width, wide)/
