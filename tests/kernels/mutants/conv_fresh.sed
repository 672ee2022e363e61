# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# What begins reads what was in its slot.
s/bool fresh = c.pos\[run.row\] == 0/bool fresh = false/
