# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A state space passes its input by.
s/F::SSM ? kn_fma(skip, value, sum) : sum/sum/
