# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A step that failed says nothing.
s/return rc == cudaSuccess ? 0 : fail(d, "a step", rc);/return 0 * (int)rc;/
