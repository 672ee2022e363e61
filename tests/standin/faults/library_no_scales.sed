# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The scales have no address.
s/DESC_A_SCALE_POINTER, \&w, sizeof w/DESC_B_SCALE_POINTER, \&x, sizeof x/
