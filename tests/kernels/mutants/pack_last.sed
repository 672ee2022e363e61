# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pack.cu
# The last output is not packed.
s/if (out < n_rows \&\& k < n_in)/if (out < n_rows - 1 \&\& k < n_in)/
