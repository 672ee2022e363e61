# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Rows are multiplied before they are there.
/bring_rows(c, all, s, begin, t);/,/kn_barrier/s/kn_barrier();//
