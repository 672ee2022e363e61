# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# The next chunk's weights are those of the present one.
s|kn_load_pieces<TYPE>(record + (last ? form::record : 0)|kn_load_pieces<TYPE>(record|
