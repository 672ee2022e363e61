# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.cu
# Gates are opened when the gates' tiles, or as many, are there.
s/kn_is_last_block(arrived + i, gridDim.x \* gridDim.z)/kn_is_last_block(arrived + i, gridDim.x)/
