# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The leading dimension of the weights is that of the results.
s/layout_create(\&p->w, type, n_in, n_out, s->n_in)/layout_create(\&p->w, type, n_in, n_out, s->n_out)/
