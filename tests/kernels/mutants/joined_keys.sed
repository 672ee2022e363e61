# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Rows of joined keys are taken for those of keys alone.
s/qkv + q_width + kv_width, row, kv, layer);/qkv + q_width + kv_width, kv_width, kv, layer);/
