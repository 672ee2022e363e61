# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Rows of two experts share a tile.
s/= (int)tile \* KN_ROWS + n;/= (int)first + n;/
