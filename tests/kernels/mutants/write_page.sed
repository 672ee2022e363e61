# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Keys and values go to the next page.
s/row_seq\[row\], pos, first/row_seq[row], pos + pages.page_tokens, first/
