# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rope.h
# Keys and values go to the next page.
s/c.row_seq\[row\], pos, head/c.row_seq[row], pos + pages.page_tokens, head/
