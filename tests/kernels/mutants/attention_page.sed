# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The page of the position after.
s/kn_page_at(pages, all.seq, p, /kn_page_at(pages, all.seq, p + 1, /
