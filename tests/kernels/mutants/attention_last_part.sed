# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The last part is left out when parts are combined.
s/block <= (end - 1) \/ KN_ATTN_BLOCK;/block < (end - 1) \/ KN_ATTN_BLOCK;/
