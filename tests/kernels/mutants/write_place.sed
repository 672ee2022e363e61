# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rope.h
# One place further in the page.
s/in_page = kn_pos_in_page(pages, pos)/in_page = kn_pos_in_page(pages, pos + 1)/
