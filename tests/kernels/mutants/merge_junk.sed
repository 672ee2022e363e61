# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_merge.h
# Parts before the window, which nothing wrote, are awaited and merged with the others.
s/^\tfirst \/= KN_ATTN_BLOCK;/\tfirst = 0;/
