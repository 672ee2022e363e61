# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# A copy from pageable memory is not waited for.
s/!is_pinned(host)/is_pinned(host)/
