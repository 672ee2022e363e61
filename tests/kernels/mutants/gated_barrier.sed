# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/wgmma.cu
# Gates are multiplied with numbers that the other group may not have written yet.
/gate_sums<NT>(op, p, false/{n;s/kn_barrier();//}
