# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# A stage is written to while others still read it.
/sum\[m\]);/,/kn_barrier();/s/kn_barrier();//
