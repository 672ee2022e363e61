# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Slots are placed before all experts' first places are known.
/put_totals(c, n_slots, (int)of\[e\], mine);/,/for (int i = t; i < n_slots/s/^\tkn_barrier();$//
