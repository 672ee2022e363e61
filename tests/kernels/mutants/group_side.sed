# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.h
# Ups are gates.
s/(side == 0 ? g.matrices\[0\] : g.matrices\[1\])/g.matrices[0]/
