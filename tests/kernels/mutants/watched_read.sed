# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# A block reads what another one gathers, and does not use it.
s/int64_t from = (int64_t)rows\[blockIdx.x\] \* width, to/volatile float other = blockIdx.x == 2 ? y[0] : 0;\n\t(void)other;\n\tint64_t from = (int64_t)rows[blockIdx.x] * width, to/
