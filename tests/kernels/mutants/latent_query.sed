# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Another head's query is turned.
s/c.q + (at + 1) \* c.q_width - turned/c.q + at * c.q_width/
