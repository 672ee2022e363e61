# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The scales of weights and rows change places.
s/c->w_scale : l->workspace, \*x = c != NULL ? c->x_scale/c->x_scale : l->workspace, *x = c != NULL ? c->w_scale/
