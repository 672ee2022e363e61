# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# Rows are overwritten while they are read.
s/kn_barrier(); \/\* the last rows and weights are no longer needed \*\///
