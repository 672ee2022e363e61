# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A block of positions goes on with the sums of the last.
s/bool anew = true;/bool anew = block == first;/
