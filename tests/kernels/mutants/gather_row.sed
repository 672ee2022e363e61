# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# The next row.
s/rows\[i \/ width\]/rows[(i + 1) \/ width]/
