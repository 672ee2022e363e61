# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A chunk is read while it is brought.
/put<F>(c, next, head/,/kn_barrier/s/kn_barrier();//
