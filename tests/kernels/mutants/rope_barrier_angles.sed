# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Angles are used before they are made.
0,/kn_barrier();/s/kn_barrier();//
