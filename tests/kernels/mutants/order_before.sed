# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# An expert has its place after one expert less.
s/for (int i = t; i < e; i += THREADS)/for (int i = t; i < e - 1; i += THREADS)/
