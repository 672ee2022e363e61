# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Time runs from the end to the beginning.
s/cudaEventElapsedTime(\&ms, first, last)/cudaEventElapsedTime(\&ms, last, first)/
