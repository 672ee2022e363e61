# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A block of positions replaces those before.
s/total\[j\]\[k\] \* s.keep\[j\] + value/total[j][k] * 0 + value/
