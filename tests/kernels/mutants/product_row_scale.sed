# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Rows are scaled and not scaled back.
s/inverse\[row\] = kn_power(-exponent);/inverse[row] = kn_power(exponent \& 0);/
