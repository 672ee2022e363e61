# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/packed.h
# The second half of a chunk has the first one's scale.
s/scale\[0\] = slab < KN_SLABS \/ 2 ? h.d : h.m;/scale[0] = h.d;/
