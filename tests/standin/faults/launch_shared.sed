# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A launch asks for more shared memory than there is.
s/^\t*  c->shared,$/c->shared + 49152,/
