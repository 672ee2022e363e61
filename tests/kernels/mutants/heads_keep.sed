# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# What a key finds has not decayed.
s/column_sum<F>(own_sum<F>(four)) \* keep)/column_sum<F>(own_sum<F>(four)))/
