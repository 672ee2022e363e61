# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# What is left of a row over eights is left out.
s/for (int k = whole; k < n_in; k++)/for (int k = whole + 1; k < n_in; k++)/
