# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A run in several blocks leaves what the first of them saw.
s/all ? now.seen\[k\]/true ? now.seen[k]/
