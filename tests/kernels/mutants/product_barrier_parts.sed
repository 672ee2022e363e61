# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.cu
# Parts are added up before they are there.
s/kn_barrier();//
