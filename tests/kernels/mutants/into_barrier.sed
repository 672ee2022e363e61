# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# A warp's largest is written where another reads sums of squares.
/most = kn_warp_max(most);/,/if (t % KN_WARP == 0)/s/kn_barrier();//
