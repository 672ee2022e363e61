# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The weights are not transposed.
s/= CUBLAS_OP_T;/= CUBLAS_OP_N;/
