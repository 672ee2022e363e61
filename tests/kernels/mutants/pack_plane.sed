# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pack.cu
# The upper bits are those of the next plane.
s/code\[e\] >> low \& ((1u << P) - 1)/code[e] >> (low ? low + 1 : 0) \& ((1u << P) - 1)/
