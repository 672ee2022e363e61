# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# A launch asks for more shared memory than there is.
s/where, c->shared, d->stream)/where, c->shared + 49152, d->stream)/
