# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/activations.h
# The largest of a row is looked for before all warps have theirs.
0,/kn_barrier();/s/kn_barrier();//
