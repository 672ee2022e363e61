# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Weights are used before they are made.
/weigh(all, s, block_max, t);/{n;s/kn_barrier();//}
