# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# Half of the lanes do not shuffle.
s/sum = kn_warp_sum(sum);/if (t % 2) sum = kn_warp_sum(sum);/
