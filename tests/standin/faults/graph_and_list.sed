# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/list.cu
# A list runs beside its graph.
s/^\tgraph->used = ++g->clock;/&\n\t(void)kn_list_run(d, l, 0, n);/
