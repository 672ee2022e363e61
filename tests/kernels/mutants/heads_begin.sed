# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# What begins reads the state that is there.
s/if (c.pos\[run.row\] != 0)/if (c.pos[run.row] >= 0)/
