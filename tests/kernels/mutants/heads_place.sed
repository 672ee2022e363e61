# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A head's results lie close together.
s/(int64_t)head \* c.y_width;/(int64_t)head * c.n_out;/
