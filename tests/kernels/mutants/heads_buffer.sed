# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A chunk is brought to where the last one is still read.
s/shared\[(buffer + 1) % F::BUFFERS\]/shared[buffer]/
