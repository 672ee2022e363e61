# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# The state of what does not begin is not read.
s/if (c.pos\[run.row\] != 0)/if (c.pos[run.row] < 0)/
