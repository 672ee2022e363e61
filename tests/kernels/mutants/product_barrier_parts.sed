# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.h
# Parts are added up before they are there.
s/kn_barrier();//
