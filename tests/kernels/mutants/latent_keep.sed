# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Values are not rescaled for a new maximum.
s/value\[j\]\[k\] \*= s.keep\[j\]/value[j][k] *= 1.0f/
