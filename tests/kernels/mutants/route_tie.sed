# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Of equal scores the higher number comes first.
s/x\[j\] == mine \&\& j < i/x[j] == mine \&\& j > i/
