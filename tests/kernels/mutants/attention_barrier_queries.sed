# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Queries are used before they are there, weights overwritten while they are read.
s/kn_barrier(); \/\* the queries.*$//
