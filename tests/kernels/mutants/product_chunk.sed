# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# A chunk begins one record too early.
s/p.n_chunks + chunk) \* form::record/p.n_chunks + (chunk > 0 ? chunk - 1 : 0)) * form::record/
