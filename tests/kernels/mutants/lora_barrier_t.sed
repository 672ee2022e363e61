# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# Outputs are made before t is there.
/__launch_bounds__(THREADS) expand/,/^}/s/kn_barrier();/;/
