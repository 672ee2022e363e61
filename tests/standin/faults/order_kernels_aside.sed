# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Kernels run in the stream of copies aside.
s/^\t*  d->stream,$/c->grid[0] % 2 ? d->aside : d->stream,/
