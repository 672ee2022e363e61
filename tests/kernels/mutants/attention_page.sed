# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The page of a position after.
s/four = c.k + kn_block_at(pages, all.seq, p, /four = c.k + kn_block_at(pages, all.seq, p + 4, /
