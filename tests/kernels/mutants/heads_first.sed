# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# The first chunk is read before it is there.
/put<F>(c, n, head, taken, shared);/,/kn_barrier/s/kn_barrier();//
