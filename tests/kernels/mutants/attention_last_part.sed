# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The last part is left out when parts are combined.
s/int last = (end - 1) \/ KN_ATTN_BLOCK;/int last = (end - 1) \/ KN_ATTN_BLOCK - (end > KN_ATTN_BLOCK);/
