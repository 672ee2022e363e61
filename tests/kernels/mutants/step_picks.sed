# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# What a gather takes is sent too late.
s/b->picks_at = stage(b, (size_t)rows, &at);/b->picks_at = stage(b, (size_t)rows, \&at); b->n_staged -= (size_t)(paged ? 0 : rows);/
