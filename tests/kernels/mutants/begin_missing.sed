# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# A kernel does not wait for the one before it, which may still run.
/__global__ void gather(/,/^}/s/kn_begin();//
