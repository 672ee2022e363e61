# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A step may be as short as it likes.
s/step < c.least ? c.least : //
