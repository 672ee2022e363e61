# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# What a gather takes is sent too late.
s/b->texts_at = stage(b, TEXT_INTS \* (size_t)rows, &at);/b->texts_at = stage(b, TEXT_INTS * (size_t)rows, \&at); b->n_staged -= (size_t)(paged ? 0 : (1 + TEXT_INTS) * rows);/
