# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The library is promised more alignment than there is.
s/const uint32_t aligned = ALIGNED;/const uint32_t aligned = 256;/
