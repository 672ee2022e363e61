# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/spills_cuda.cu
# Every launch of a kernel with local memory is told.
s/\tif (!enter(s, c->kernel))/\tif (!enter(s, c->kernel) \&\& s->n == 0)/
