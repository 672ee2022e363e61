# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# Other threads' copies are read before they are there.
0,/kn_barrier();/s/kn_barrier();//
