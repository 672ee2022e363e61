# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Sums of activations lack a lane.
s/sum\[h\] += kn_shuffle_xor(sum\[h\], 2);//
