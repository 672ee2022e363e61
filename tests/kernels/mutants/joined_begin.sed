# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pack.cu
# A joined matrix begins where the first one does.
s/row_bytes, begin + first, n);/row_bytes, first, n);/
