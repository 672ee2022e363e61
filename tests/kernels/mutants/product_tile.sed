# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Every tile of rows reads the first one.
s/x += (int64_t)first \* n_in;//
