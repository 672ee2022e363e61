# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pack.cu
# Scale j of the last four has its upper bits from another.
s/sc\[j - 4\] >> 6) << 4);/sc[j - 3] >> 6) << 4);/
