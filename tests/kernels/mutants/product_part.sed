# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.h
# The last part is left out.
s/k < KN_PARTS; k++/k < KN_PARTS - 1; k++/
