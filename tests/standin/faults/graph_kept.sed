# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/list.cu
# The graph that is replaced is left.
s/drop(d, \&g->all\[--g->n\]);/--g->n;/
