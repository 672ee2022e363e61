# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A copy takes its bytes from the caller's memory, not from the staging memory.
s/cudaMemcpyAsync(to, stage, bytes,/cudaMemcpyAsync(to, host, bytes,/
