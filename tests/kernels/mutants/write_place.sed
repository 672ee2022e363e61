# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# One place further in the page.
s/int in_page = kn_pos_in_page(pages, pos)/int in_page = kn_pos_in_page(pages, pos + 1)/
