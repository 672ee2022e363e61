# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Rows of joined keys are taken for those of keys alone.
s/c.q_row = c.k_row = row;/c.q_row = row, c.k_row = kv_width;/
