# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# Outputs are made before t is there.
/inline void expand_output(/,/^}/s/kn_barrier();/;/
