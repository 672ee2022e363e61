# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# The sums of the warps are read before they are there.
/sum = kn_warp_sum(sum);/,/kn_barrier();/s/kn_barrier();//
