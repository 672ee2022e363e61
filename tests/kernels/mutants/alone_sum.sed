# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# The sum of a tile's second half comes after the last barrier.
s/if (v == 0 \&\& a.warp % 2 == 1/if (v == 1 \&\& a.warp % 2 == 1/
