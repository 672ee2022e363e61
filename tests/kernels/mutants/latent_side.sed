# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A row goes to the other half of its page.
s/in_page < c.half ? c.k : c.v;/in_page < c.half ? c.v : c.k;/
