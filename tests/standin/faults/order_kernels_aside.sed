# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# Kernels run in the stream of copies aside.
s/where, c->shared, d->stream)/where, c->shared, c->grid[0] % 2 ? d->aside : d->stream)/
