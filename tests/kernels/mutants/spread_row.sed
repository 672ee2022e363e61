# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/experts.cu
# A slot has the row of its own number.
s/(int64_t)(slot \/ c.n_used) \* c.width/(int64_t)(s \/ c.n_used) * c.width/
