# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A part of a column is left out of its sums.
s/step = F::LANES \/ 2; step > 0/step = F::LANES \/ 2; step > 1/
