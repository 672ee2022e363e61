# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Shares of products are added before they are there.
/multiply_chunk(s, c.latent_row, t);/,/kn_barrier/s/kn_barrier();//
