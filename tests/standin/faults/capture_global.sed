# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A capture forbids calls of other threads.
s/cudaStreamCaptureModeThreadLocal/cudaStreamCaptureModeGlobal/
