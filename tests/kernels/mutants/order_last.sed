# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Some block orders what others may not have chosen yet.
s/if (kn_is_last_block(arrived, gridDim.x))/if (blockIdx.x == 0)/
