# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.cu
# The first key's head has the gain of queries.
s/if (head >= n_heads)/if (head > n_heads)/
