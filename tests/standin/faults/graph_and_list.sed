# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/list.cu
# A list runs beside its graph.
s/^\t\tg->hits++;/\t\tg->hits++, (void)kn_list_run(d, l, 0, n);/
