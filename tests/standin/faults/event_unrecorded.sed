# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The time of a stretch without work is asked for.
s/rc == cudaSuccess && d->working/rc == cudaSuccess/
