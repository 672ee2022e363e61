# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# Another product's adapter.
/__launch_bounds__(THREADS) shrink/,/^}/s/sites + c.site/sites + 0/
