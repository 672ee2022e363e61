# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# An eight-bit row has another row's scale.
s/scales_at + 4 \* token);/scales_at + 4 * (token ^ 1));/
