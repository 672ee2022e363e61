# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# Parts of x are added before all warps have them.
/static inline void shrink_tile/,/^}/s/kn_barrier();/;/
