# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pack.cu
# The last chunk's half lacks its scale.
s/if (chunk \* KN_CHUNK + KN_CHUNK \/ 2 < n_in)/if (chunk * KN_CHUNK + KN_CHUNK < n_in)/
