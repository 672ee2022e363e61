# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# The window of inputs stands still.
s/now->seen\[k\] = now->seen\[k + 1\]/now->seen[k] = now->seen[k]/
