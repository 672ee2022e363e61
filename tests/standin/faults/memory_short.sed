# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Memory is shorter than asked for.
s/size_t room = bytes > 0 ? bytes : 1;/size_t room = bytes > 300 ? bytes - 256 : 1;/
