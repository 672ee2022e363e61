# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# One place further in the page.
s/int in_page = pos %/int in_page = (pos + 1) %/
