# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Values are weighed before the weights are there.
/weigh(c, s, begin, anew, t);/,/kn_barrier/s/kn_barrier();//
