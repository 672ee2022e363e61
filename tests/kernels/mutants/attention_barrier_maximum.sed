# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The maximum of the other warps is read before it is there.
/score<F32>(c, all, s, begin, t);/{n;s/kn_barrier();//}
