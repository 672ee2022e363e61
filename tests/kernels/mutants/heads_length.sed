# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A query is not scaled by its length.
s/(is_query() ? c.query_factor : 1.0f) \//(is_query() ? c.query_factor : 1.0f) \/ 1.0f \* 0 + 1.0f \//
