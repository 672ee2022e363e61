# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/wgmma.cu
# The second group has the wrong outputs of the second half.
s|(gates ? 0 : p.n_out / 2 / KN_OUTS)|(gates ? 0 : p.n_out / 2 / KN_OUTS - 1)|
