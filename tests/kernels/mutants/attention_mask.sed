# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# A row sees the position after its own.
s/\*end = c.row_pos\[row\] + 1;/*end = c.row_pos[row] + 2;/
