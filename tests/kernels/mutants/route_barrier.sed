# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Scores become shares while others still add them up.
s/kn_barrier(); \/\* all have read the scores \*\///
