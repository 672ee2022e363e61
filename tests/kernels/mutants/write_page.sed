# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Keys and values go to the next page.
s/row_seq\[row\], pos, i/row_seq[row], pos + pages.page_tokens, i/
