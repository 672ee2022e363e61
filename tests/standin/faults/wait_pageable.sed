# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A copy that can't be staged is not waited for.
/^static cudaError_t copy_pageable/,/^}/s/finish(d)/rc/
