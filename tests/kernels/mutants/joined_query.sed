# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Rows of joined queries are taken for those of queries alone.
s/if (c.attn.q_row == 0)/if (c.attn.q_row >= 0)/
