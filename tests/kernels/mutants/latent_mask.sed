# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/latent.cu
# A query sees what comes after it.
s/\&\& begin + i < s.end\[j\];/\&\& begin + i < s.end[j] + 1;/
