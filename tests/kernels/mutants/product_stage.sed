# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# The next stage goes where the present one is.
s/stages + next % 2 \* STAGE/stages + (next + 1) % 2 * STAGE/
