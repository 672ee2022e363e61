# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# The turned elements of a key are written before they are.
s/^\tkn_warp_barrier(); \/\* other lanes normed.*$//
