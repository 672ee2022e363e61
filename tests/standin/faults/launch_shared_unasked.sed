# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A kernel that needs more shared memory than it gets by itself does not ask for it.
s/c->shared <= SHARED/c->shared > 0/
