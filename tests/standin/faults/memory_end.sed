# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The end of memory is a fault.
s/rc == cudaErrorMemoryAllocation/rc == cudaErrorUnknown/
