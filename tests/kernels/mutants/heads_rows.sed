# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A head has the rows of the first.
s/head \* c.n_tiles + tile;/tile;/
