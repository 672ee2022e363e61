# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# A row that pads the step advances a state.
s/runs\[b->n_runs\] = {r, n,/runs[b->n_runs] = {r, n > 0 ? n : 1,/
