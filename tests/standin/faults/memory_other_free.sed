# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Memory of the device is freed as pinned.
s/memory_on_host ? cudaFreeHost(p) : cudaFree(p)/cudaFreeHost(p)/
