# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The arguments of a launch are in another order.
s/^\tc->thunk(c, where);/&\n\tvoid *first = where[0];\n\twhere[0] = where[1];\n\twhere[1] = first;/
