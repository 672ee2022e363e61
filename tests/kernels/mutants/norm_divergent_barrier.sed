# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# One thread does not come to the barrier.
/sum = kn_warp_sum(sum);/,/kn_barrier();/s/kn_barrier();/if (t != 5) kn_barrier();/
