# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_merge.h
# Past its end a row has what was there before.
s/k < c.to.n_slabs \* KN_SLAB/k < 0/
