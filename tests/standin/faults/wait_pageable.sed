# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# A copy from memory of the caller's is not waited for.
s/cudaMemcpyAsync(to, stage, bytes,/cudaMemcpyAsync(to, host, bytes,/
