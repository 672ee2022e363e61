# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/mma.cu
# A stage is read while it is on its way.
s|kn_cp_async_wait<P::stages - 2>|kn_cp_async_wait<P::stages - 1>|
