# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# The inputs of a run's second block are missing.
s/r >= run.row)/r >= row)/
