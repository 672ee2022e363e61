# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# A stage is read before other threads' copies are there, and written to while others still read it.
0,/kn_barrier();/s/kn_barrier();//
