# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# Positions that are added up together have one output.
s/out.y\[(at + k) \* out.row\]/out.y[at * out.row]/
